/** The list of runs as the server has it, kept current by the live feed. */

import { type InfiniteData, useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import type { RunView } from "../api/client";
import { type RunFilter, runsQuery } from "../api/queries";
import type { News } from "../live/feed";
import { useNews } from "../live/live";

interface Page {
	items: RunView[];
	next?: string | null;
}

const FLUSH_MS = 250;
const REFRESH_MS = 1500;

/** Put what the feed told into pages of runs; rows nobody spoke of stay the same objects. */
export function withNews(pages: Page[], news: Map<string, News>): Page[] {
	return pages.map((page) => {
		if (!page.items.some((item) => news.has(item.run))) return page;
		const items = page.items.flatMap((item) => {
			const told = news.get(item.run);
			if (!told) return [item];
			if (told.kind === "removed") return [];
			const { seq: _seq, kind: _kind, at: _at, ...fields } = told;
			return [{ ...item, ...fields } as RunView];
		});
		return { ...page, items };
	});
}

export function useRuns(filter: RunFilter) {
	const queries = useQueryClient();
	const query = useInfiniteQuery(runsQuery(filter));
	const runs = useMemo(() => query.data?.pages.flatMap((page) => page.items) ?? [], [query.data]);
	const known = useRef(new Set<string>());
	known.current = useMemo(() => new Set(runs.map((run) => run.run)), [runs]);
	const heard = useRef(new Map<string, News>());
	const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
	const refresh = useRef<ReturnType<typeof setTimeout>>(undefined);

	function flush() {
		timer.current = undefined;
		const news = heard.current;
		heard.current = new Map();
		queries.setQueriesData<InfiniteData<Page, string | undefined>>(
			{ queryKey: ["runs"] },
			(data) => data && { ...data, pages: withNews(data.pages, news) },
		);
		const unknown = [...news].some(([run, told]) => told.kind !== "removed" && !known.current.has(run));
		if (unknown) askAgain();
	}
	function askAgain() {
		refresh.current ??= setTimeout(() => {
			refresh.current = undefined;
			queries.invalidateQueries({ queryKey: ["runs"] });
		}, REFRESH_MS);
	}
	useNews(
		"states",
		"*",
		(news) => {
			heard.current.set(news.run, news);
			timer.current ??= setTimeout(flush, FLUSH_MS);
		},
		askAgain,
	);
	useEffect(
		() => () => {
			clearTimeout(timer.current);
			clearTimeout(refresh.current);
			timer.current = refresh.current = undefined;
		},
		[],
	);
	return { ...query, runs };
}

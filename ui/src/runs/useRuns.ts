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
const NEWEST = "-created_at";

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

/** Whether a run still is among those asked for, as far as the feed tells; what was searched for does not change. */
export function fits(run: Partial<RunView>, filter: RunFilter): boolean {
	const same = (wanted: string | undefined, is: string | null | undefined) =>
		wanted === undefined || is === undefined || wanted === is;
	return (
		(!filter.state?.length || !run.state || filter.state.includes(run.state)) &&
		same(filter.environment, run.environment) &&
		same(filter.algorithm, run.algorithm) &&
		same(filter.project, run.project) &&
		same(filter.group, run.group) &&
		(filter.tag === undefined || !run.tags || run.tags.includes(filter.tag))
	);
}

/** As the server sorts: what has no number comes last, equal ones by name. */
export function inOrder(sort: string): (one: RunView, other: RunView) => number {
	const name = sort.replace(/^-/, "") as keyof RunView;
	const sign = sort.startsWith("-") ? -1 : 1;
	return (one, other) => {
		const [a, b] = [one[name], other[name]];
		if (a != null && b != null && a !== b) return a < b ? -sign : sign;
		if ((a == null) !== (b == null)) return a == null ? 1 : -1;
		return one.run < other.run ? -1 : one.run > other.run ? 1 : 0;
	};
}

/** Pages with news put in: those that no longer fit are gone, the others in their order. */
export function refreshed(pages: Page[], news: Map<string, News>, filter: RunFilter): Page[] {
	const after = withNews(pages, news).map((page, i) =>
		page === pages[i] ? page : { ...page, items: page.items.filter((run) => fits(run, filter)) },
	);
	const all = after.flatMap((page) => page.items);
	const sorted = [...all].sort(inOrder(filter.sort ?? NEWEST));
	if (sorted.every((run, i) => run === all[i])) return after;
	let from = 0;
	return after.map((page) => {
		const items = sorted.slice(from, from + page.items.length);
		from += page.items.length;
		return { ...page, items };
	});
}

export function useRuns(filter: RunFilter) {
	const queries = useQueryClient();
	const query = useInfiniteQuery(runsQuery(filter));
	const runs = useMemo(() => {
		const all = query.data?.pages.flatMap((page) => page.items) ?? [];
		return [...new Map(all.map((run) => [run.run, run])).values()]; // one may move to the next page meanwhile
	}, [query.data]);
	const known = useRef(new Set<string>());
	known.current = useMemo(() => new Set(runs.map((run) => run.run)), [runs]);
	const latest = useRef(filter);
	latest.current = filter;
	const heard = useRef(new Map<string, News>());
	/** Run → the state it was last heard of in. */
	const states = useRef(new Map<string, unknown>());
	const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
	const refresh = useRef<ReturnType<typeof setTimeout>>(undefined);

	function flush() {
		timer.current = undefined;
		const news = heard.current;
		heard.current = new Map();
		for (const { queryKey } of queries.getQueryCache().findAll({ queryKey: ["runs"] }))
			queries.setQueryData<InfiniteData<Page, string | undefined>>(
				queryKey,
				(data) => data && { ...data, pages: refreshed(data.pages, news, queryKey[1] as RunFilter) },
			);
		if ([...news.values()].filter(isNew).length > 0) askAgain();
	}
	/** Whether a run may belong here now and did not before; the same news again are none. */
	function isNew(told: News): boolean {
		if (told.kind === "removed") {
			states.current.delete(told.run);
			return false;
		}
		const before = states.current.get(told.run);
		states.current.set(told.run, told.state);
		if (known.current.has(told.run) || before === told.state) return false;
		return fits(told as Partial<RunView>, latest.current);
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
	// biome-ignore lint/correctness/useExhaustiveDependencies: what was of no interest may be now
	useEffect(() => states.current.clear(), [JSON.stringify(filter)]);
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

/** A run's metrics: what REST has of before, then what the feed tells, redrawn at most four times a second. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { metricsQuery } from "../api/queries";
import { type Columns, History } from "../chart/history";
import { useNews } from "../live/live";

const REDRAW_MS = 200;

export function useHistory(run: string) {
	const query = useQuery(metricsQuery(run));
	const history = useRef(new History());
	const early = useRef<Columns[]>([]);
	const [columns, setColumns] = useState<Columns>({});
	const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

	const draw = useRef(() => {
		timer.current = undefined;
		setColumns(Object.fromEntries(Object.entries(history.current.columns).map(([k, v]) => [k, v.slice()])));
	});

	useEffect(() => {
		if (!query.data) return;
		history.current = History.of(query.data.columns);
		for (const news of early.current) history.current.append(news); // heard while REST was asked
		early.current = [];
		draw.current();
	}, [query.data]);

	useNews(
		"metrics",
		run,
		(news) => {
			if (news.kind === "removed") return;
			const told = news.columns as Columns;
			if (query.isFetching) early.current.push(told);
			history.current.append(told);
			timer.current ??= setTimeout(draw.current, REDRAW_MS);
		},
		() => query.refetch(),
	);
	useEffect(
		() => () => {
			clearTimeout(timer.current);
			timer.current = undefined;
		},
		[],
	);
	return { columns, isPending: query.isPending, error: query.error, refetch: query.refetch };
}

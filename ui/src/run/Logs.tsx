/** The last lines of a run's processes; follows them until you scroll up. */

import { Button, Group, Select, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { api, ask, type LogLines } from "../api/client";
import { useNews } from "../live/live";
import { Failed, Loading } from "../shell/states";

const MOST_LINES = 2000;
const route = getRouteApi("/runs/$run");

interface Line {
	key: number;
	process: string;
	text: string;
}

export function Logs({ run }: { run: string }) {
	const process = route.useSearch().process ?? null;
	const navigate = useNavigate({ from: "/runs/$run" });
	const query = useQuery({
		queryKey: ["logs", run, process],
		queryFn: ({ signal }) =>
			ask(
				api.GET("/api/v1/runs/{run}/logs", {
					params: { path: { run }, query: { lines: 500, process: process ?? undefined } },
					signal,
				}),
			) as Promise<LogLines>, // text is what a follower gets, and this asks once
		gcTime: 0,
		staleTime: 0,
	});
	const [lines, setLines] = useState<Line[]>([]);
	const [following, setFollowing] = useState(true);
	const key = useRef(0);
	const box = useRef<HTMLDivElement>(null);

	const early = useRef<Line[]>([]);
	// biome-ignore lint/correctness/useExhaustiveDependencies: another process comes with other lines
	useEffect(() => {
		if (!query.data) return;
		const asked = query.data.lines.map((line) => ({ ...line, key: key.current++ }));
		setLines(withEarly(asked, early.current, process).slice(-MOST_LINES));
		early.current = [];
	}, [query.data]);
	useNews(
		"logs",
		run,
		(news) => {
			const told = news.processes as Record<string, { lines: string[]; skipped: number }> | undefined;
			if (!told) return;
			const fresh = Object.entries(told)
				.filter(([name]) => process === null || name === process)
				.flatMap(([name, part]) => [
					...(part.skipped
						? [{ key: key.current++, process: name, text: `… ${part.skipped} lines left out` }]
						: []),
					...part.lines.map((text) => ({ key: key.current++, process: name, text })),
				]);
			if (query.isFetching) early.current = [...early.current, ...fresh].slice(-MOST_LINES);
			setLines((before) => [...before, ...fresh].slice(-MOST_LINES));
		},
		() => query.refetch(),
	);
	// biome-ignore lint/correctness/useExhaustiveDependencies: scrolls when lines come
	useEffect(() => {
		if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
	}, [lines, following]);

	if (query.error && !query.data) return <Failed error={query.error} retry={query.refetch} />;
	if (!query.data) return <Loading what="logs" />;
	return (
		<>
			<Group mb="xs" gap="sm">
				<Select
					aria-label="Process"
					placeholder="All processes"
					data={query.data.processes}
					value={process}
					onChange={(value) =>
						navigate({ search: (before) => ({ ...before, process: value ?? undefined }), replace: true })
					}
					clearable
					w={180}
				/>
				{following ? (
					<Text fz="xs" c="dimmed">
						Following
					</Text>
				) : (
					<Button variant="light" onClick={() => setFollowing(true)}>
						Follow the end
					</Button>
				)}
			</Group>
			<div
				ref={box}
				className="panel log"
				role="log"
				aria-label="Log lines"
				// biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
				tabIndex={0}
				onScroll={(event) => {
					const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
					setFollowing(scrollHeight - scrollTop - clientHeight < 40);
				}}
			>
				{lines.length === 0 && <Text c="dimmed">No lines yet.</Text>}
				{lines.map((line) => (
					<div key={line.key}>
						<span className="from">{line.process} </span>
						{readable(line.text)}
					</div>
				))}
			</div>
		</>
	);
}

/** What was asked for, then what was heard meanwhile and is not in it. */
export function withEarly<T extends { process: string; text: string }>(
	asked: T[],
	early: T[],
	process: string | null,
): T[] {
	const known = new Set(asked.map((line) => `${line.process}\n${line.text}`));
	const missed = early.filter(
		(line) => (process === null || line.process === process) && !known.has(`${line.process}\n${line.text}`),
	);
	return [...asked, ...missed];
}

/** Our own lines are JSON: time, event, then its fields. Others are shown as they are. */
export function readable(text: string): string {
	try {
		const { at, level, event, process: _p, run: _r, ...fields } = JSON.parse(text);
		if (typeof event !== "string") return text;
		const rest = Object.entries(fields).map(
			([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`,
		);
		const loud = level && level !== "info" ? `${String(level).toUpperCase()} ` : "";
		return `${String(at).slice(11, 23)} ${loud}${event.replaceAll("_", " ")} ${rest.join(" ")}`.trimEnd();
	} catch {
		return text;
	}
}

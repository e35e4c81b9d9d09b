/** Commands on their way: asked, accepted, and when one sees that they have taken effect. */

import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import type { ActorView, CommandView, RunDetail } from "../api/client";
import { actorsQuery, runQuery } from "../api/queries";
import { useNews } from "../live/live";

export interface Seen {
	detail: RunDetail | undefined;
	actors: ActorView[] | undefined;
	/** The learner's newest report. */
	report: Record<string, number | null>;
}

export interface Wish {
	/** As in "Scale to 6 actors". */
	title: string;
	ask: () => Promise<{ command: CommandView }>;
	/** Whether it can be seen; without it a command is done once it was applied. */
	done?: (seen: Seen, command: CommandView) => boolean;
}

export interface Effect {
	key: number;
	title: string;
	state: "asking" | "accepted" | "done" | "refused";
	seconds: number;
	problem?: Error;
}

const LOOK_MS = 250;
const SHOWN_MS = 8000;
const PATIENCE_SECONDS = 180;

export function useEffects(run: string) {
	const queries = useQueryClient();
	const [effects, setEffects] = useState<Effect[]>([]);
	const report = useRef<Record<string, number | null>>({});
	const next = useRef(0);
	const timers = useRef(new Set<ReturnType<typeof setInterval>>());
	useNews(
		"metrics",
		run,
		(news) => keepNewest(report.current, news.columns),
		() => {},
	);

	useEffect(() => {
		const all = timers.current;
		return () => {
			for (const timer of all) clearInterval(timer);
			all.clear();
		};
	}, []);

	const change = useCallback(
		(key: number, part: Partial<Effect>) =>
			setEffects((list) => list.map((one) => (one.key === key ? { ...one, ...part } : one))),
		[],
	);
	const dismiss = useCallback(
		(key: number) => setEffects((list) => list.filter((one) => one.key !== key)),
		[],
	);

	const steer = useCallback(
		async (wish: Wish): Promise<boolean> => {
			const key = next.current++;
			const begun = Date.now();
			const seconds = () => (Date.now() - begun) / 1000;
			setEffects((list) => [...list.slice(-4), { key, title: wish.title, state: "asking", seconds: 0 }]);
			let command: CommandView;
			try {
				command = (await wish.ask()).command;
			} catch (error) {
				change(key, { state: "refused", seconds: seconds(), problem: error as Error });
				return false;
			}
			change(key, { state: "accepted", seconds: seconds() });
			for (const name of ["run", "actors", "checkpoints", "evaluations", "commands"])
				queries.invalidateQueries({ queryKey: name === "commands" ? [name] : [name, run] });
			const timer = setInterval(() => {
				const seen: Seen = {
					detail: queries.getQueryData(runQuery(run).queryKey),
					actors: queries.getQueryData(actorsQuery(run, true).queryKey),
					report: report.current,
				};
				const done = !wish.done || wish.done(seen, command);
				change(key, done ? { state: "done", seconds: seconds() } : { seconds: seconds() });
				if (!done && seconds() < PATIENCE_SECONDS) return;
				clearInterval(timer);
				timers.current.delete(timer);
				setTimeout(() => dismiss(key), SHOWN_MS);
			}, LOOK_MS);
			timers.current.add(timer);
			return true;
		},
		[change, dismiss, queries, run],
	);
	return { effects, steer, dismiss };
}

function keepNewest(report: Record<string, number | null>, columns: unknown): void {
	if (!columns) return;
	for (const [name, values] of Object.entries(columns as Record<string, (number | null)[]>))
		report[name] = values.at(-1) ?? null;
}

/** Whether the learner's newest report was made with these settings. */
export function reportsSettings(
	report: Seen["report"],
	settings: Record<string, unknown>,
	since: number,
): boolean {
	if ((report.time ?? 0) <= since) return false;
	return Object.entries(settings).every(([name, value]) => {
		const used = report[`charts/${name}`];
		if (typeof value !== "number" || used == null) return true; // a schedule, or nothing the learner reports
		return Math.abs(used - value) <= Math.abs(value) * 1e-5 + 1e-12;
	});
}

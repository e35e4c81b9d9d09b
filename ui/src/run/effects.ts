/** Commands on their way: asked, accepted, and when one sees that they have taken effect. */

import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import type { CommandView } from "../api/client";
import { actorsQuery, evaluationsQuery, recordingsQuery, runQuery } from "../api/queries";
import { useNews } from "../live/live";
import type { Done, Seen } from "./seen";

export interface Wish {
	/** As in "Scale to 6 actors". */
	title: string;
	ask: () => Promise<{ command: CommandView }>;
	/** Without it a command is done once it was applied. */
	done?: Done;
}

export interface Effect {
	key: number;
	title: string;
	state: "asking" | "accepted" | "done" | "refused" | "failed" | "unseen";
	seconds: number;
	/** What it waits for, where that is known. */
	words?: string;
	problem?: Error;
}

const LOOK_MS = 250;
const SHOWN_MS = 8000;
const PATIENCE_SECONDS = 180;

export function useEffects(run: string) {
	const queries = useQueryClient();
	const [effects, setEffects] = useState<Effect[]>([]);
	const report = useRef<Seen["report"]>({});
	const events = useRef<Seen["events"]>({});
	const next = useRef(0);
	const timers = useRef(new Set<ReturnType<typeof setInterval>>());
	useNews(
		"metrics",
		run,
		(news) => keepNewest(report.current, news.columns),
		() => {},
	);
	useNews(
		"events",
		run,
		(news) => keepTimes(events.current, news.events),
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
			if (command.outcome === "refused") {
				change(key, {
					state: "refused",
					seconds: seconds(),
					problem: new Error(command.reason ?? "No reason was given."),
				});
				return false;
			}
			change(key, { state: "accepted", seconds: seconds() });
			for (const name of ["run", "actors", "checkpoints", "evaluations", "recordings", "commands"])
				queries.invalidateQueries({ queryKey: name === "commands" ? [name] : [name, run] });
			let waited = 0; // seconds it had to wait for something else do not alarm anybody
			const timer = setInterval(() => {
				const seen: Seen = {
					detail: queries.getQueryData(runQuery(run).queryKey),
					actors: queries.getQueryData(actorsQuery(run, true).queryKey),
					evaluations: queries.getQueryData(evaluationsQuery(run).queryKey),
					recordings: queries.getQueryData(recordingsQuery(run).queryKey),
					report: report.current,
					events: events.current,
				};
				const done = wish.done ? wish.done(seen, command) : true;
				if (typeof done === "string") {
					waited = seconds();
					return change(key, { seconds: waited, words: done });
				}
				if (!done && seconds() - waited < PATIENCE_SECONDS)
					return change(key, { seconds: seconds(), words: undefined });
				clearInterval(timer);
				timers.current.delete(timer);
				if (done instanceof Error) return change(key, { state: "failed", problem: done, seconds: seconds() });
				change(key, { state: done ? "done" : "unseen", seconds: seconds() });
				if (done) setTimeout(() => dismiss(key), SHOWN_MS);
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

function keepTimes(times: Record<string, number>, events: unknown): void {
	for (const { event, time } of (events ?? []) as { event: string; time: number }[])
		times[event] = Math.max(times[event] ?? 0, time);
}

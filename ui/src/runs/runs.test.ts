import { expect, test } from "vitest";
import type { RunView } from "../api/client";
import { aligned } from "../compare/aligned";
import { age, bytes, clock, duration, measure, milliseconds, tick } from "../format";
import type { News } from "../live/feed";
import { readable, withEarly } from "../run/Logs";
import { planCharts } from "../run/plan";
import { sparkPoints } from "./Sparkline";
import { fits, inOrder, refreshed, withNews } from "./useRuns";

const row = (run: string) => ({ run, state: "running", steps: 1 }) as RunView;
const news = (run: string, fields: object) =>
	[run, { seq: 1, kind: "states", run, at: 0, ...fields } as News] as const;

test("news change their rows and leave the others as they are", () => {
	const pages = [{ items: [row("a"), row("b")] }, { items: [row("c")] }];
	const after = withNews(pages, new Map([news("b", { steps: 7 })]));
	expect(after[0]?.items[1]?.steps).toBe(7);
	expect(after[0]?.items[0]).toBe(pages[0]?.items[0]);
	expect(after[1]).toBe(pages[1]);
});

test("a deleted run leaves the list", () => {
	const after = withNews([{ items: [row("a"), row("b")] }], new Map([news("a", { kind: "removed" })]));
	expect(after[0]?.items.map((item) => item.run)).toEqual(["b"]);
});

test("rows that no longer fit the filter go, and the others stand in their order", () => {
	const pages = [{ items: [row("a"), row("b")] }, { items: [row("c")] }];
	const told = new Map([news("a", { state: "done" }), news("c", { steps: 9 })]);
	const after = refreshed(pages, told, { state: ["running"], sort: "-steps" });
	expect(after.map((page) => page.items.map((item) => item.run))).toEqual([["c"], ["b"]]);
	expect(refreshed(pages, told, { sort: "run" }).flatMap((page) => page.items)).toHaveLength(3);
});

test("runs are sorted as the server sorts them", () => {
	const runs = [
		{ run: "b", mean_return: null },
		{ run: "c", mean_return: 2 },
		{ run: "a", mean_return: 1 },
		{ run: "d", mean_return: 2 },
	] as RunView[];
	expect([...runs].sort(inOrder("-mean_return")).map(({ run }) => run)).toEqual(["c", "d", "a", "b"]);
	expect([...runs].sort(inOrder("mean_return")).map(({ run }) => run)).toEqual(["a", "c", "d", "b"]);
});

test("what the feed does not tell of a run is no reason to leave it out", () => {
	expect(fits({ state: "running" }, { project: "rates", tag: "x" })).toBe(true);
	expect(fits({ tags: ["y"] }, { tag: "x" })).toBe(false);
});

test("a sparkline spans its box", () => {
	expect(sparkPoints([0, 10])).toBe("0.0,21.0 100.0,3.0");
});

test("charts follow the names a learner reports", () => {
	const groups = planCharts([
		"steps",
		"charts/episodic_return",
		"losses/q",
		"losses/entropy",
		"seconds/learner/waiting",
	]);
	expect(groups.map((group) => group.title)).toEqual(["Progress", "Learning", "Speed"]);
	expect(groups[1]?.charts.map((chart) => chart.title)).toEqual(["Entropy", "Q"]);
	expect(groups[2]?.charts[0]?.stacked).toBe(true);
});

test("numbers are short", () => {
	expect([measure(0.000012), measure(0.123456), measure(1234567), measure(null)]).toEqual([
		"1.20e-5",
		"0.1235",
		"1.2M",
		"–",
	]);
	expect([bytes(134548), duration(75), age(0, 7200)]).toEqual(["135 kB", "1 min 15 s", "2 h"]);
	expect([clock(4), clock(164), clock(3764)]).toEqual(["0:04", "2:44", "1:02:44"]);
});

test("ticks beside each other differ", () => {
	expect([1_250_000, 1_300_000, 12_500, 0.5].map(tick)).toEqual(["1.25M", "1.3M", "12.5K", "0.5"]);
	expect([milliseconds(0.0001), milliseconds(0.0123)]).toEqual(["less than 1 ms", "12 ms"]);
});

test("lines heard while the log was asked for are not lost, and none comes twice", () => {
	const line = (text: string, process = "learner") => ({ process, text });
	const got = withEarly([line("a"), line("b")], [line("b"), line("c"), line("d", "keeper")], "learner");
	expect(got.map(({ text }) => text)).toEqual(["a", "b", "c"]);
});

test("log lines of ours are readable, others stay", () => {
	const line =
		'{"at":"2026-11-16T04:55:33.628Z","level":"warning","event":"actor_lost","process":"keeper","run":"x","slot":1}';
	expect(readable(line)).toBe("04:55:33.628 WARNING actor lost slot=1");
	expect(readable("Traceback (most recent call last):")).toBe("Traceback (most recent call last):");
});

test("curves meet on one axis", () => {
	expect(aligned([0, 5, 10, 15], [0, 10], [0, 100])).toEqual([0, 50, 100, null]);
	expect(aligned([0, 5, 10], [5, 10], [1, 2])).toEqual([null, 1, 2]);
});

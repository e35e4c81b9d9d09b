import { expect, test } from "vitest";
import { History, MOST_POINTS, smoothed, stacked } from "./history";

test("an hour of reports stays within its bound and keeps the newest", () => {
	const history = new History();
	for (let i = 1; i <= 36_000; i++) history.append({ steps: [i], "charts/SPS": [i * 2] });
	expect(history.length).toBeLessThanOrEqual(MOST_POINTS);
	expect(history.columns.steps?.at(-1)).toBe(36_000);
	expect(history.columns["charts/SPS"]?.at(-1)).toBe(72_000);
	expect(history.columns["charts/SPS"]).toHaveLength(history.length);
	expect(history.columns.steps?.[0]).toBe(1);
});

test("where steps go back, what lay beyond is dropped", () => {
	const history = History.of({ steps: [1, 2, 3, 4], a: [1, 2, 3, 4] });
	history.append({ steps: [3, 5], a: [30, 50] });
	expect(history.columns).toMatchObject({ steps: [1, 2, 3, 5], a: [1, 2, 30, 50] });
});

test("a metric that begins late has nulls before", () => {
	const history = History.of({ steps: [1, 2], a: [1, 2] });
	history.append({ steps: [3], b: [9] });
	expect(history.columns).toMatchObject({ a: [1, 2, null], b: [null, null, 9] });
});

test("smoothing begins at the first value and keeps gaps", () => {
	const values = smoothed([10, null, 20], 0.5);
	expect(values[0]).toBe(10);
	expect(values[1]).toBeNull();
	expect(values[2]).toBeCloseTo(16.667, 2);
	expect(smoothed([1, 2], 0)).toEqual([1, 2]);
});

test("stacked shares sum up to one", () => {
	const { shares, tops } = stacked([
		[1, 0],
		[3, 0],
	]);
	expect(shares.map((column) => column[0])).toEqual([0.25, 0.75]);
	expect(tops.map((column) => column[0])).toEqual([0.25, 1]);
	expect(tops[0]?.[1]).toBeNull();
});

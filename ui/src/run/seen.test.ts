import { expect, test } from "vitest";
import type { CommandView } from "../api/client";
import { actorsAlive, evaluated, inUse, labelled, learnerThere, recorded, type Seen } from "./seen";

const nothing: Seen = {
	detail: undefined,
	actors: undefined,
	evaluations: undefined,
	recordings: undefined,
	report: {},
	events: {},
};
const seen = (part: object) => ({ ...nothing, ...part }) as Seen;
const command = (part: object = {}) => ({ id: "c1", at: 6, new: null, ...part }) as CommandView;

test("a changed setting is in effect once a later report was made with it", () => {
	const set = command({ new: { learning_rate: 1e-4 } });
	const report = (time: number, rate: number) => seen({ report: { time, "charts/learning_rate": rate } });
	expect(inUse(report(5, 1e-4), set)).toBe(false);
	expect(inUse(report(7, 2e-4), set)).toBe(false);
	expect(inUse(report(7, 1e-4), set)).toBe(true);
	expect(inUse(seen({ detail: { state: "paused" }, report: { time: 5 } }), set)).toMatch(/resumed/);
});

test("a learner has ended when its keeper says so, and is back when it reports", () => {
	expect(learnerThere(0)(seen({ events: { learner_parked: 5 } }), command())).toBe(false);
	expect(learnerThere(0)(seen({ events: { learner_parked: 7 } }), command())).toBe(true);
	expect(learnerThere(1)(seen({ report: { time: 5 } }), command())).toBe(false);
	expect(learnerThere(1)(seen({ report: { time: 7 } }), command())).toBe(true);
});

test("an evaluation is in effect with its result, and says when it failed", () => {
	const found = (part: object) =>
		seen({
			evaluations: [
				{ id: "other", state: "done" },
				{ id: "c1", ...part },
			],
		});
	expect(evaluated(nothing, command())).toBe(false);
	expect(evaluated(found({ state: "running" }), command())).toBe(false);
	expect(evaluated(found({ state: "done" }), command())).toBe(true);
	expect(evaluated(found({ state: "failed", reason: "no such file" }), command())).toEqual(
		new Error("no such file"),
	);
});

test("a recording is in effect once it is there, not when it was asked for", () => {
	const found = (part: object) => seen({ recordings: [{ id: "c1", ...part }] });
	expect(recorded(nothing, command())).toBe(false);
	expect(recorded(found({ state: "queued" }), command())).toBe(false);
	expect(recorded(found({ state: "done" }), command())).toBe(true);
	expect(recorded(found({ state: "failed", reason: "no picture" }), command())).toEqual(
		new Error("no picture"),
	);
});

test("labels are in effect when the run has them all", () => {
	const wanted = labelled({ project: "rates", tags: ["a", "b"], note: "" });
	expect(wanted(seen({ detail: { project: "rates", tags: ["a"], note: "" } }), command())).toBe(false);
	expect(wanted(seen({ detail: { project: "rates", tags: ["a", "b"], note: "" } }), command())).toBe(true);
});

test("actors count while they live and are the run's own", () => {
	const actors = [{ alive: true }, { alive: false }, { alive: true, guest: true }];
	expect(actorsAlive(1)(seen({ actors }), command())).toBe(true);
	expect(actorsAlive(3)(seen({ actors }), command())).toBe(false);
});

/** When a command has taken effect: told by what is seen of the run, never by the answer alone. */

import type { ActorView, CommandView, EvaluationView, RecordingView, RunDetail } from "../api/client";
import { same } from "../new/schema";

export interface Seen {
	detail: RunDetail | undefined;
	actors: ActorView[] | undefined;
	evaluations: EvaluationView[] | undefined;
	recordings: RecordingView[] | undefined;
	/** The learner's newest report. */
	report: Record<string, number | null>;
	/** Event → when it last happened. */
	events: Record<string, number>;
}

/** Whether it is seen; an Error where it is seen to have failed, words where it must wait for something. */
export type Done = (seen: Seen, command: CommandView) => boolean | Error | string;

export const inState =
	(...states: string[]): Done =>
	({ detail }) =>
		!!detail && states.includes(detail.state);

export const actorsAlive =
	(count: number): Done =>
	({ actors }) =>
		actors?.filter((actor) => actor.alive && !actor.guest).length === count;

/** A parked learner says so in an event; one that was started reports. */
export const learnerThere =
	(wanted: number): Done =>
	({ events, report }, command) =>
		wanted ? (report.time ?? 0) > command.at : (events.learner_parked ?? 0) > command.at;

export const labelled =
	(labels: { project: string; tags: string[]; note: string }): Done =>
	({ detail }) =>
		!!detail &&
		Object.entries(labels).every(([name, value]) => same(detail[name as keyof typeof labels], value));

/** The result of an evaluation has its command's id. */
export const evaluated: Done = ({ evaluations }, command) => {
	const one = evaluations?.find(({ id }) => id === command.id);
	if (one?.state === "failed") return new Error(one.reason ?? "The evaluation gave no reason; see its log.");
	return one?.state === "done";
};

/** The same of a recording. */
export const recorded: Done = ({ recordings }, command) => {
	const one = recordings?.find(({ id }) => id === command.id);
	if (one?.state === "failed") return new Error(one.reason ?? "The recording gave no reason; see its log.");
	return one?.state === "done";
};

/** The learner's newest report was made with what the command set. */
export const inUse: Done = ({ detail, report }, command) => {
	if ((report.time ?? 0) <= command.at)
		return detail?.state === "paused" ? "takes effect when the run is resumed" : false;
	return Object.entries(command.new ?? {}).every(([name, value]) => {
		const used = report[`charts/${name}`];
		if (typeof value !== "number" || used == null) return true; // a schedule, or nothing the learner reports
		return Math.abs(used - value) <= Math.abs(value) * 1e-5 + 1e-12;
	});
};

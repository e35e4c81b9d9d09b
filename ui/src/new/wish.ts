/** A spec as far as somebody has an opinion; the server fills in the rest. */

import { same, typed } from "./schema";

export type Wish = Record<string, unknown>;
export interface Labels {
	name: string;
	project: string;
	tags: string[];
	note: string;
	seeds: number;
}

const isMap = (value: unknown): value is Wish =>
	typeof value === "object" && value !== null && !Array.isArray(value);

export function valueAt(spec: Wish | undefined, path: string[]): unknown {
	let at: unknown = spec;
	for (const part of path) at = isMap(at) ? at[part] : undefined;
	return at;
}

/** A wish with one value changed; short forms (`environment: ID`, `actors: N`) become long ones where needed. */
export function withValue(wish: Wish, path: string[], value: unknown): Wish {
	const [first, ...rest] = path as [string, ...string[]];
	if (rest.length === 0) return { ...wish, [first]: value };
	return { ...wish, [first]: withValue(long(first, wish[first]), rest, value) };
}

function long(name: string, value: unknown): Wish {
	if (isMap(value)) return value;
	if (name === "environment" && typeof value === "string") return { id: value };
	if (name === "actors" && typeof value === "number") return { count: value };
	return {};
}

/** What of `spec` differs from `base`. */
export function difference(spec: Wish, base: Wish): Wish {
	const found: Wish = {};
	for (const [name, value] of Object.entries(spec)) {
		if (same(value, base[name])) continue;
		found[name] = isMap(value) && isMap(base[name]) ? difference(value, base[name] as Wish) : value;
	}
	return found;
}

/** Names of the values in a wish, as paths. */
export function leaves(wish: Wish, before: string[] = []): { path: string[]; value: unknown }[] {
	return Object.entries(wish).flatMap(([name, value]) => {
		const path = [...before, name];
		return isMap(value) && Object.keys(value).length && !FREE.has(path.join("."))
			? leaves(value, path)
			: [{ path, value }];
	});
}

const FREE = new Set(["environment.kwargs", "stream.kafka.options", "stream.kafka.topic_config"]);
const FLAGS: Record<string, string> = {
	algorithm: "--algorithm",
	actors: "--actors",
	"actors.count": "--actors",
	"stop.steps": "--steps",
	"stop.target": "--target",
	seed: "--seed",
	"stream.url": "--stream",
};

/** The command that starts the same run from a terminal. */
export function commandLine(wish: Wish, labels: Labels): string {
	const words = ["penstock", "start"];
	const environment = isMap(wish.environment) ? wish.environment.id : wish.environment;
	words.push(quoted(typed(environment) || "ENVIRONMENT"));
	for (const { path, value } of leaves(wish)) {
		const name = path.join(".");
		if (name === "environment" || name === "environment.id") continue;
		const flag = value === null ? undefined : FLAGS[name];
		if (flag) words.push(flag, quoted(typed(value)));
		else words.push("--set", quoted(`${name}=${value === null ? "null" : typed(value)}`));
	}
	if (labels.seeds > 1) words.push("--seeds", String(labels.seeds));
	if (labels.name) words.push("--name", quoted(labels.name));
	if (labels.project) words.push("--project", quoted(labels.project));
	for (const tag of labels.tags) words.push("--tag", quoted(tag));
	return words.join(" ");
}

function quoted(word: string): string {
	return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The place that a refusal speaks of, as in "ppo.gamma is 3, but expected …". */
export function placeOf(detail: string): string | null {
	const found = /^([a-z_]+(?:\.[a-z_0-9]+)*)(?: is |: )/.exec(detail);
	return found?.[1] ?? null;
}

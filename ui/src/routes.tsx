/** The addresses of the page. What narrows a list or picks a view stands in the address, checked. */

import {
	createRootRoute,
	createRoute,
	type ErrorComponentProps,
	Link,
	lazyRouteComponent,
	redirect,
} from "@tanstack/react-router";
import type { RunState } from "./api/client";
import { Shell } from "./shell/Shell";
import { Empty, Failed, STATES } from "./shell/states";

/** Each page is a part of its own, fetched when it is first shown, or a little later for when the server is away. */
const PARTS = {
	runs: () => import("./runs/RunsPage"),
	run: () => import("./run/RunPage"),
	new: () => import("./new/NewRunPage"),
	compare: () => import("./compare/ComparePage"),
	environments: () => import("./catalogue/EnvironmentsPage"),
	settings: () => import("./settings/SettingsPage"),
	audit: () => import("./audit/AuditPage"),
};
const LATER_MS = 3000;

export function fetchPartsLater(): () => void {
	const fetchAll = () =>
		Promise.allSettled([
			...Object.values(PARTS).map((part) => part()),
			import("./run/Charts"),
			import("./watch/Watch"),
			import("./run/Spec"),
		]);
	const timer = setTimeout(fetchAll, LATER_MS);
	return () => clearTimeout(timer);
}

const word = (value: unknown): string | undefined => {
	const said = typeof value === "string" ? value : typeof value === "number" ? String(value) : "";
	return said ? said.slice(0, 200) : undefined;
};
const words = (value: unknown): string[] | undefined => {
	const list = (Array.isArray(value) ? value : [value]).map(word).filter((one) => one !== undefined);
	return list.length ? list : undefined;
};
const oneOf = <T extends string>(value: unknown, known: readonly T[]): T | undefined =>
	known.find((one) => one === value);

export const SORTS = [
	"created_at",
	"run",
	"steps",
	"mean_return",
	"steps_per_second",
	"environment",
	"state",
] as const;
export type SortKey = (typeof SORTS)[number];

export interface RunsSearch {
	search?: string;
	state?: RunState[];
	environment?: string;
	algorithm?: string;
	project?: string;
	tag?: string;
	group?: string;
	sort?: SortKey | `-${SortKey}`;
}

const SORT_WORDS = SORTS.flatMap((key) => [key, `-${key}`] as const);

const root = createRootRoute({
	component: Shell,
	notFoundComponent: () => (
		<Empty title="There is no such page">
			The address may have been mistyped. <Link to="/runs">All runs</Link>
		</Empty>
	),
	errorComponent: ({ error }: ErrorComponentProps) => (
		<Failed error={error} retry={() => location.reload()} />
	),
});

const home = createRoute({
	getParentRoute: () => root,
	path: "/",
	beforeLoad: () => {
		throw redirect({ to: "/runs" });
	},
});

export const runsRoute = createRoute({
	getParentRoute: () => root,
	path: "/runs",
	validateSearch: (raw: Record<string, unknown>): RunsSearch => ({
		search: word(raw.search),
		state: words(raw.state)?.filter((one): one is RunState => STATES.includes(one as RunState)),
		environment: word(raw.environment),
		algorithm: word(raw.algorithm),
		project: word(raw.project),
		tag: word(raw.tag),
		group: word(raw.group),
		sort: oneOf(raw.sort, SORT_WORDS),
	}),
	component: lazyRouteComponent(PARTS.runs, "RunsPage"),
});

export const TABS = [
	"charts",
	"watch",
	"actors",
	"logs",
	"checkpoints",
	"settings",
	"spec",
	"history",
] as const;
export type Tab = (typeof TABS)[number];

export const runRoute = createRoute({
	getParentRoute: () => root,
	path: "/runs/$run",
	validateSearch: (
		raw: Record<string, unknown>,
	): { tab?: Tab; by?: "steps" | "time"; smooth?: number; process?: string } => ({
		tab: oneOf(raw.tab, TABS),
		by: oneOf(raw.by, ["steps", "time"] as const),
		smooth: typeof raw.smooth === "number" && raw.smooth > 0 && raw.smooth < 1 ? raw.smooth : undefined,
		process: word(raw.process),
	}),
	component: lazyRouteComponent(PARTS.run, "RunPage"),
});

export const newRoute = createRoute({
	getParentRoute: () => root,
	path: "/new",
	validateSearch: (
		raw: Record<string, unknown>,
	): { environment?: string; algorithm?: string; from?: string } => ({
		environment: word(raw.environment),
		algorithm: word(raw.algorithm),
		from: word(raw.from),
	}),
	component: lazyRouteComponent(PARTS.new, "NewRunPage"),
});

export const compareRoute = createRoute({
	getParentRoute: () => root,
	path: "/compare",
	validateSearch: (raw: Record<string, unknown>): { run?: string[]; metric?: string } => ({
		run: words(raw.run)?.slice(0, 64),
		metric: word(raw.metric),
	}),
	component: lazyRouteComponent(PARTS.compare, "ComparePage"),
});

export const environmentsRoute = createRoute({
	getParentRoute: () => root,
	path: "/environments",
	validateSearch: (raw: Record<string, unknown>): { search?: string; id?: string; all?: boolean } => ({
		search: word(raw.search),
		id: word(raw.id),
		all: raw.all === true || undefined,
	}),
	component: lazyRouteComponent(PARTS.environments, "EnvironmentsPage"),
});

const settings = createRoute({
	getParentRoute: () => root,
	path: "/settings",
	component: lazyRouteComponent(PARTS.settings, "SettingsPage"),
});

export const auditRoute = createRoute({
	getParentRoute: () => root,
	path: "/audit",
	validateSearch: (raw: Record<string, unknown>): { run?: string; who?: string; verb?: string } => ({
		run: word(raw.run),
		who: word(raw.who),
		verb: word(raw.verb),
	}),
	component: lazyRouteComponent(PARTS.audit, "AuditPage"),
});

export const routeTree = root.addChildren([
	home,
	runsRoute,
	runRoute,
	newRoute,
	compareRoute,
	environmentsRoute,
	settings,
	auditRoute,
]);

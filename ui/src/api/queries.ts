/** What the page asks the server, by name; the live feed changes the same entries. */

import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, ask, type RunState } from "./client";

export interface RunFilter {
	search?: string;
	state?: RunState[];
	environment?: string;
	algorithm?: string;
	project?: string;
	tag?: string;
	group?: string;
	sort?: string;
}

const PAGE = 500;
const SPARK_POINTS = 40;
export const RETURN = "charts/episodic_return";
export const METRIC_POINTS = 1000;

export const runsQuery = (filter: RunFilter) =>
	infiniteQueryOptions({
		queryKey: ["runs", filter],
		initialPageParam: undefined as string | undefined,
		queryFn: ({ pageParam, signal }) =>
			ask(
				api.GET("/api/v1/runs", {
					params: { query: { ...filter, limit: PAGE, cursor: pageParam } },
					signal,
				}),
			),
		getNextPageParam: (last) => last.next ?? undefined,
	});

export const runQuery = (run: string) =>
	queryOptions({
		queryKey: ["run", run],
		queryFn: ({ signal }) => ask(api.GET("/api/v1/runs/{run}", { params: { path: { run } }, signal })),
	});

export const actorsQuery = (run: string, live: boolean) =>
	queryOptions({
		queryKey: ["actors", run],
		queryFn: ({ signal }) => ask(api.GET("/api/v1/runs/{run}/actors", { params: { path: { run } }, signal })),
		refetchInterval: live ? 1000 : false,
	});

export const sparkQuery = (run: string) =>
	queryOptions({
		queryKey: ["spark", run],
		queryFn: ({ signal }) =>
			ask(
				api.GET("/api/v1/runs/{run}/metrics", {
					params: { path: { run }, query: { names: [RETURN], points: SPARK_POINTS } },
					signal,
				}),
			),
		staleTime: 60_000,
	});

export const metricsQuery = (run: string) =>
	queryOptions({
		queryKey: ["metrics", run],
		queryFn: ({ signal }) =>
			ask(
				api.GET("/api/v1/runs/{run}/metrics", {
					params: { path: { run }, query: { points: METRIC_POINTS } },
					signal,
				}),
			),
		staleTime: 0,
	});

export const checkpointsQuery = (run: string) =>
	queryOptions({
		queryKey: ["checkpoints", run],
		queryFn: ({ signal }) =>
			ask(api.GET("/api/v1/runs/{run}/checkpoints", { params: { path: { run } }, signal })),
	});

export const evaluationsQuery = (run: string) =>
	queryOptions({
		queryKey: ["evaluations", run],
		queryFn: ({ signal }) =>
			ask(api.GET("/api/v1/runs/{run}/evaluations", { params: { path: { run } }, signal })),
		refetchInterval: (query) =>
			query.state.data?.some((one) => one.state === "queued" || one.state === "running") ? 1000 : false,
	});

export const recordingsQuery = (run: string) =>
	queryOptions({
		queryKey: ["recordings", run],
		queryFn: ({ signal }) =>
			ask(api.GET("/api/v1/runs/{run}/recordings", { params: { path: { run } }, signal })),
		refetchInterval: (query) => (query.state.data?.some((one) => one.state === "queued") ? 1000 : false),
	});

export const commandsQuery = (filter: { run?: string; who?: string; verb?: string }) =>
	infiniteQueryOptions({
		queryKey: ["commands", filter],
		initialPageParam: undefined as string | undefined,
		queryFn: ({ pageParam, signal }) =>
			ask(
				api.GET("/api/v1/commands", {
					params: { query: { ...filter, limit: 100, cursor: pageParam } },
					signal,
				}),
			),
		getNextPageParam: (last) => last.next ?? undefined,
	});

export const environmentsQuery = queryOptions({
	queryKey: ["environments"],
	queryFn: ({ signal }) => ask(api.GET("/api/v1/environments", { params: { query: {} }, signal })),
	staleTime: 300_000,
});

export const environmentQuery = (id: string) =>
	queryOptions({
		queryKey: ["environment", id],
		queryFn: ({ signal }) => ask(api.GET("/api/v1/environments/{id}", { params: { path: { id } }, signal })),
		staleTime: 300_000,
		retry: false,
	});

export const algorithmsQuery = queryOptions({
	queryKey: ["algorithms"],
	queryFn: ({ signal }) => ask(api.GET("/api/v1/algorithms", { signal })),
	staleTime: 300_000,
});

export const algorithmQuery = (name: string) =>
	queryOptions({
		queryKey: ["algorithm", name],
		queryFn: ({ signal }) =>
			ask(api.GET("/api/v1/algorithms/{name}", { params: { path: { name } }, signal })),
		staleTime: 300_000,
	});

export const schemaQuery = queryOptions({
	queryKey: ["schema"],
	queryFn: ({ signal }) => ask(api.GET("/api/v1/specs/schema", { signal })),
	staleTime: Number.POSITIVE_INFINITY,
});

export const serverQuery = queryOptions({
	queryKey: ["server"],
	queryFn: ({ signal }) => ask(api.GET("/api/v1/server", { signal })),
	refetchInterval: 5000,
});

export const tokensQuery = queryOptions({
	queryKey: ["tokens"],
	queryFn: ({ signal }) => ask(api.GET("/api/v1/tokens", { signal })),
	retry: false,
});

export const compareQuery = (runs: string[], metric: string) =>
	queryOptions({
		queryKey: ["compare", runs, metric],
		queryFn: ({ signal }) =>
			ask(api.GET("/api/v1/compare", { params: { query: { run: runs, metric, points: 1000 } }, signal })),
		enabled: runs.length > 0,
		placeholderData: (before) => before,
		refetchInterval: 5000,
	});

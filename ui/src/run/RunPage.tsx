/** One run: how it stands, everything it measured, and how to steer it. */

import { Badge, Group, Tabs, Text, Title } from "@mantine/core";
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useState } from "react";
import { api, ask, Problem, type RunDetail } from "../api/client";
import { actorsQuery, commandsQuery, evaluationsQuery, recordingsQuery, runQuery } from "../api/queries";
import { Commands, ShowOlder } from "../audit/Commands";
import { clock, count, measure } from "../format";
import { useNews, usePerson } from "../live/live";
import { TABS, type Tab } from "../routes";
import { Empty, Failed, LIVE_STATES, Loading, StateBadge } from "../shell/states";
import { Actors } from "./Actors";
import { Checkpoints } from "./Checkpoints";
import { Controls, Effects } from "./Controls";
import { isPlayedByClients } from "./clients";
import { useEffects, type Wish } from "./effects";
import { type Fact, Facts } from "./Facts";
import { GatewayCard } from "./GatewayCard";
import { Logs } from "./Logs";
import { Settings } from "./Settings";
import { inUse } from "./seen";

const Charts = lazy(() => import("./Charts").then((module) => ({ default: module.Charts })));
const Watch = lazy(() => import("../watch/Watch").then((module) => ({ default: module.Watch })));
const Spec = lazy(() => import("./Spec").then((module) => ({ default: module.Spec })));
const route = getRouteApi("/runs/$run");

const NAMES: Record<Tab, string> = {
	charts: "Charts",
	watch: "Watch",
	actors: "Actors",
	logs: "Logs",
	checkpoints: "Checkpoints",
	settings: "Hyperparameters",
	spec: "Spec",
	history: "History",
};

export function RunPage() {
	const { run } = route.useParams();
	return <Run key={run} run={run} />;
}

function Run({ run }: { run: string }) {
	const queries = useQueryClient();
	const query = useQuery({ ...runQuery(run), refetchInterval: 5000 });
	const [removed, setRemoved] = useState(false);
	const detail = query.data;
	const live = !!detail && LIVE_STATES.includes(detail.state);
	const { data: actors } = useQuery(actorsQuery(run, live));
	useQuery(evaluationsQuery(run)); // so that the effect of asking for one is seen on every tab
	useQuery(recordingsQuery(run));
	const { effects, steer, dismiss } = useEffects(run);
	useNews(
		"states",
		run,
		(news) => {
			if (news.kind === "removed") return setRemoved(true);
			const { seq: _s, kind: _k, at: _a, ...fields } = news;
			queries.setQueryData(
				runQuery(run).queryKey,
				(before) => before && ({ ...before, ...fields } as RunDetail),
			);
			if (news.checkpoint !== detail?.checkpoint)
				queries.invalidateQueries({ queryKey: ["checkpoints", run] });
		},
		() => query.refetch(),
	);
	useEffect(() => {
		document.title = detail ? `${run}, ${detail.state} · Penstock` : `${run} · Penstock`;
		return () => {
			document.title = "Penstock";
		};
	}, [run, detail]);

	const missing = query.error instanceof Problem && query.error.status === 404;
	if (removed || missing)
		return (
			<Empty title={removed || detail ? `${run} was deleted` : `There is no run ${run}`}>
				{!detail && query.error?.message} <Link to="/runs">All runs</Link>
			</Empty>
		);
	if (!detail)
		return query.error ? <Failed error={query.error} retry={query.refetch} /> : <Loading what={run} />;
	return (
		<>
			<Group justify="space-between" align="flex-start" gap="sm">
				<Header detail={detail} />
				<Controls.Buttons detail={detail} steer={steer} />
			</Group>
			{detail.reason && (
				<Text c={detail.state === "failed" ? "red" : "dimmed"} fz="sm" mt={4}>
					{detail.reason}
				</Text>
			)}
			<Controls.Scale detail={detail} actors={actors} steer={steer} />
			<Effects effects={effects} dismiss={dismiss} />
			<Facts label="How it stands" facts={factsOf(detail)} />
			<GatewayCard actors={actors} />
			<Parts run={run} detail={detail} live={live} actors={actors} steer={steer} />
		</>
	);
}

function Header({ detail }: { detail: RunDetail }) {
	return (
		<div>
			<Group gap="md" align="center">
				<Title order={1}>{detail.run}</Title>
				<StateBadge state={detail.state} />
			</Group>
			<Group gap={8} mt={2} c="dimmed" fz="sm">
				<Link to="/runs" search={{ environment: detail.environment }} className="plain">
					{detail.environment}
				</Link>
				<span>{detail.algorithm}</span>
				<span>seed {detail.seed}</span>
				{detail.group && (
					<Link to="/runs" search={{ group: detail.group }} className="plain">
						group {detail.group}
					</Link>
				)}
				{detail.tags.map((tag) => (
					<Badge key={tag} size="sm" variant="light" tt="none">
						{tag}
					</Badge>
				))}
				{detail.note && <span>{detail.note}</span>}
			</Group>
		</div>
	);
}

const factsOf = (detail: RunDetail): Fact[] => [
	{ name: "Return", value: measure(detail.mean_return) },
	{ name: "Steps", value: count(detail.steps) },
	{ name: "Episodes", value: count(detail.episodes) },
	{ name: "Steps/s", value: detail.updates ? count(detail.steps_per_second) : "–" },
	{ name: "Updates", value: count(detail.updates) },
	{ name: "Policy version", value: detail.version ?? "–" },
	{ name: "Trained for", value: clock(detail.seconds) },
	{ name: "Restarts", value: count(detail.restarts) },
];

interface PartsProps {
	run: string;
	detail: RunDetail;
	live: boolean;
	actors: Parameters<typeof Actors>[0]["actors"];
	steer: (wish: Wish) => Promise<boolean>;
}

function Parts({ run, detail, live, actors, steer }: PartsProps) {
	const { tab = "charts" } = route.useSearch();
	const navigate = useNavigate({ from: "/runs/$run" });
	const [drafting, setDrafting] = useState(false); // what was typed there stays when another tab is looked at
	useEffect(() => {
		if (tab === "settings") setDrafting(true);
	}, [tab]);
	return (
		<Tabs
			mt="md"
			value={tab}
			keepMounted={false}
			keepMountedMode="display-none"
			onChange={(value) =>
				navigate({
					search: (before) => ({ ...before, tab: value === "charts" ? undefined : (value as Tab) }),
					replace: true,
				})
			}
		>
			<Tabs.List mb="sm" className="tabs">
				{TABS.map((name) => (
					<Tabs.Tab key={name} value={name} px="sm">
						{NAMES[name]}
					</Tabs.Tab>
				))}
			</Tabs.List>
			<Suspense fallback={<Loading what={NAMES[tab].toLowerCase()} />}>
				<Tabs.Panel value="charts">
					<Charts run={run} live={live} />
				</Tabs.Panel>
				<Tabs.Panel value="watch">
					{isPlayedByClients(detail.environment) ? (
						<div className="panel">
							<Empty title="Nothing to watch here">
								The environment is your running system, which only its clients see.
							</Empty>
						</div>
					) : (
						<Watch detail={detail} steer={steer} />
					)}
				</Tabs.Panel>
				<Tabs.Panel value="actors">
					<Actors actors={actors} />
				</Tabs.Panel>
				<Tabs.Panel value="logs">
					<Logs run={run} />
				</Tabs.Panel>
				<Tabs.Panel value="checkpoints">
					<Checkpoints detail={detail} steer={steer} />
				</Tabs.Panel>
				<Tabs.Panel value="settings" keepMounted>
					{(tab === "settings" || drafting) && <Settings detail={detail} steer={steer} />}
				</Tabs.Panel>
				<Tabs.Panel value="spec">
					<Spec detail={detail} />
				</Tabs.Panel>
				<Tabs.Panel value="history">
					<History run={run} steer={steer} live={live} />
				</Tabs.Panel>
			</Suspense>
		</Tabs>
	);
}

function History({ run, steer, live }: { run: string; steer: PartsProps["steer"]; live: boolean }) {
	const query = useInfiniteQuery({ ...commandsQuery({ run }), refetchInterval: 5000 });
	const { may } = usePerson();
	if (query.error && !query.data) return <Failed error={query.error} retry={query.refetch} />;
	if (!query.data) return <Loading what="commands" />;
	return (
		<>
			<Commands
				commands={query.data.pages.flatMap((page) => page.items)}
				undo={
					live && may("operator")
						? (command) =>
								steer({
									title: "Undo",
									ask: () =>
										ask(
											api.POST("/api/v1/runs/{run}/settings/rollback", {
												params: { path: { run } },
												body: { command: command.id },
											}),
										),
									done: inUse,
								})
						: undefined
				}
			/>
			<ShowOlder query={query} />
		</>
	);
}

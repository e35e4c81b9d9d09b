/** All runs: what trains, how well and how fast. Filters and order stand in the address. */

import {
	Anchor,
	Button,
	CloseButton,
	Code,
	Group,
	MultiSelect,
	Select,
	Text,
	TextInput,
	Title,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import type { RunState } from "../api/client";
import { algorithmsQuery } from "../api/queries";
import type { RunsSearch } from "../routes";
import { Icon } from "../shell/icons";
import { Empty, Failed, Loading, STATES } from "../shell/states";
import { useTyped } from "../shell/useTyped";
import { RunsTable } from "./RunsTable";
import { useRuns } from "./useRuns";

const route = getRouteApi("/runs");
const NEWEST = "-created_at";

export function RunsPage() {
	const search = route.useSearch();
	const navigate = useNavigate({ from: "/runs" });
	const { runs, isPending, error, refetch, hasNextPage, isFetchingNextPage, fetchNextPage } = useRuns(search);
	const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
	const change = useCallback(
		(part: Partial<RunsSearch>) =>
			navigate({ search: (before: RunsSearch) => ({ ...before, ...part }), replace: true }),
		[navigate],
	);
	const choose = (run: string) =>
		setChosen((before) => {
			const after = new Set(before);
			if (!after.delete(run)) after.add(run);
			return after;
		});
	const more = useCallback(() => {
		if (!isFetchingNextPage) fetchNextPage();
	}, [isFetchingNextPage, fetchNextPage]);
	const filtered = Object.entries(search).some(([key, value]) => key !== "sort" && value !== undefined);
	return (
		<>
			<Group justify="space-between" mb="sm">
				<Group gap="sm" align="baseline">
					<Title order={1}>Runs</Title>
					<Text c="dimmed" fz="xs" role="status">
						{isPending ? "" : `${runs.length}${hasNextPage ? "+" : ""} ${filtered ? "found" : ""}`}
					</Text>
				</Group>
				<Group gap="xs">
					{chosen.size > 0 && (
						<>
							<Button variant="subtle" color="gray" onClick={() => setChosen(new Set())}>
								Clear
							</Button>
							<Button
								variant="default"
								leftSection={<Icon name="compare" size={14} />}
								renderRoot={(props) => <Link to="/compare" search={{ run: [...chosen] }} {...props} />}
							>
								Compare {chosen.size}
							</Button>
						</>
					)}
					<Button
						leftSection={<Icon name="add" size={14} />}
						renderRoot={(props) => <Link to="/new" {...props} />}
					>
						New run
					</Button>
				</Group>
			</Group>
			<Filters search={search} change={change} />
			{error && runs.length === 0 ? (
				<Failed error={error} retry={refetch} />
			) : isPending ? (
				<Loading what="runs" />
			) : runs.length === 0 ? (
				<div className="panel">
					<Nothing filtered={filtered} />
				</div>
			) : (
				<RunsTable
					runs={runs}
					sort={search.sort ?? NEWEST}
					onSort={(sort) => change({ sort: sort === NEWEST ? undefined : sort })}
					chosen={chosen}
					onChoose={choose}
					onEnd={more}
					more={hasNextPage}
				/>
			)}
		</>
	);
}

interface FiltersProps {
	search: RunsSearch;
	change: (part: Partial<RunsSearch>) => void;
}

function Filters({ search, change }: FiltersProps) {
	const [typed, type] = useTyped(search.search, (value) => change({ search: value }));
	const { data: algorithms } = useQuery(algorithmsQuery);
	const labels = (["environment", "project", "tag", "group"] as const).filter((name) => search[name]);
	return (
		<Group gap="xs" mb="sm" role="search">
			<TextInput
				aria-label="Search runs"
				placeholder="Search id, environment, tag, note"
				leftSection={<Icon name="search" size={14} />}
				rightSection={typed && <CloseButton size="xs" aria-label="Clear search" onClick={() => type("")} />}
				value={typed}
				onChange={(event) => type(event.currentTarget.value)}
				w={{ base: "100%", xs: 280 }}
			/>
			<MultiSelect
				aria-label="States"
				placeholder={search.state?.length ? undefined : "Any state"}
				data={STATES}
				value={search.state ?? []}
				onChange={(state) => change({ state: state.length ? (state as RunState[]) : undefined })}
				clearable
				w={{ base: "100%", xs: 220 }}
			/>
			<Select
				aria-label="Algorithm"
				placeholder="Any algorithm"
				data={algorithms?.map((one) => one.name) ?? []}
				value={search.algorithm ?? null}
				onChange={(algorithm) => change({ algorithm: algorithm ?? undefined })}
				clearable
				w={150}
			/>
			{labels.map((name) => (
				<Button
					key={name}
					variant="light"
					rightSection="×"
					onClick={() => change({ [name]: undefined })}
					aria-label={`Remove filter ${name} ${search[name]}`}
				>
					{name}: {search[name]}
				</Button>
			))}
		</Group>
	);
}

function Nothing({ filtered }: { filtered: boolean }) {
	if (filtered)
		return (
			<Empty title="No run fits">
				Loosen the search or the filters. <Link to="/runs">Show all runs</Link>
			</Empty>
		);
	return (
		<Empty title="No runs yet">
			Start one with{" "}
			<Anchor inherit renderRoot={(props) => <Link to="/new" {...props} />}>
				New run
			</Anchor>
			, or in a terminal: <Code>penstock start CartPole-v1</Code>
		</Empty>
	);
}

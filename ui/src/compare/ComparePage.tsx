/** Several runs side by side: one metric of each over steps, and how their specs differ. */

import { Button, Checkbox, Group, MultiSelect, Select, Table, Text, Title } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, ask, type Comparison } from "../api/client";
import { compareQuery, metricsQuery, RETURN } from "../api/queries";
import { type Band, Chart, colorOf, type Line, type Zoom } from "../chart/Chart";
import { count, measure, text } from "../format";
import { Scroll } from "../shell/Scroll";
import { Empty, Failed, Loading, StateBadge } from "../shell/states";
import { aligned } from "./aligned";

const route = getRouteApi("/compare");
const MOST_CHOICES = 100;

export function ComparePage() {
	const { run: runs = [], metric = RETURN } = route.useSearch();
	const navigate = useNavigate({ from: "/compare" });
	const [zoom, setZoom] = useState<Zoom>(null);
	const [interval, setInterval] = useState(true);
	const [sought, setSought] = useState("");
	const [search] = useDebouncedValue(sought.trim(), 200);
	const known = useQuery({
		queryKey: ["choices", search],
		queryFn: ({ signal }) =>
			ask(
				api.GET("/api/v1/runs", {
					params: { query: { limit: MOST_CHOICES, search: search || undefined } },
					signal,
				}),
			),
		placeholderData: (before) => before,
	});
	const names = useQuery({ ...metricsQuery(runs[0] ?? ""), enabled: runs.length > 0, staleTime: 60_000 });
	const query = useQuery(compareQuery(runs, metric));
	const drawn = useMemo(() => (query.data ? drawing(query.data, interval) : null), [query.data, interval]);
	const choices = [...new Set([...runs, ...(known.data?.items.map((one) => one.run) ?? [])])];
	const metrics = [...new Set([metric, ...(names.data?.names ?? [])])];
	return (
		<>
			<Title order={1} mb="sm">
				Compare
			</Title>
			<Group gap="sm" align="flex-end" mb="md">
				<MultiSelect
					label="Runs"
					placeholder={runs.length ? undefined : "Choose runs"}
					data={choices}
					value={runs}
					onChange={(chosen) =>
						navigate({
							search: (before) => ({ ...before, run: chosen.length ? chosen : undefined }),
							replace: true,
						})
					}
					searchable
					searchValue={sought}
					onSearchChange={setSought}
					filter={({ options }) => options} // the server has searched, also in what is not shown here
					nothingFoundMessage={known.isFetching ? "Searching …" : "No run fits"}
					style={{ flex: "1 1 320px" }}
				/>
				<Select
					label="Metric"
					data={metrics}
					value={metric}
					onChange={(value) =>
						navigate({ search: (before) => ({ ...before, metric: value ?? undefined }), replace: true })
					}
					searchable
					allowDeselect={false}
					w={240}
				/>
				<Checkbox
					size="xs"
					pb={8}
					label="Interval across seeds"
					checked={interval}
					onChange={(event) => setInterval(event.currentTarget.checked)}
				/>
			</Group>
			{runs.length === 0 ? (
				<div className="panel">
					<Empty title="Choose runs to compare">
						Pick them above, or tick them in the <Link to="/runs">list of runs</Link>. Seeds of one group
						become one curve: their mean, and its interval.
					</Empty>
				</div>
			) : query.error && !query.data ? (
				<Failed error={query.error} retry={query.refetch} />
			) : !query.data || !drawn ? (
				<Loading what="the comparison" />
			) : (
				<>
					{drawn.x.length === 0 ? (
						<div className="panel">
							<Empty title="No numbers">None of these runs has reported {metric}.</Empty>
						</div>
					) : (
						<Chart
							title={metric}
							x={drawn.x}
							by="steps"
							lines={drawn.lines}
							bands={drawn.bands}
							zoom={zoom}
							onZoom={setZoom}
							height={360}
						/>
					)}
					{zoom ? (
						<Button mt={4} variant="light" onClick={() => setZoom(null)}>
							Show all
						</Button>
					) : (
						<Text fz="xs" c="dimmed" mt={4}>
							Drag across the chart to zoom in.
						</Text>
					)}
					<Standing comparison={query.data} />
					<Differences comparison={query.data} />
				</>
			)}
		</>
	);
}

function drawing(comparison: Comparison, interval: boolean) {
	const x = [...new Set(comparison.curves.flatMap((curve) => curve.steps))].sort((a, b) => a - b);
	const lines: Line[] = [];
	const bands: Band[] = [];
	comparison.curves.forEach((curve, i) => {
		const label = curve.runs.length > 1 ? `${curve.label} (${curve.runs.length} seeds)` : curve.label;
		lines.push({ label, values: aligned(x, curve.steps, curve.mean), color: colorOf(i) });
		if (interval && curve.runs.length > 1)
			bands.push({
				low: aligned(x, curve.steps, curve.low),
				high: aligned(x, curve.steps, curve.high),
				color: colorOf(i),
			});
	});
	return { x, lines, bands };
}

function Standing({ comparison }: { comparison: Comparison }) {
	return (
		<>
			<Title order={2} mt="lg" mb={6}>
				How they stand
			</Title>
			<Scroll label="How they stand">
				<Table className="numbers" miw={640}>
					<Table.Thead>
						<Table.Tr>
							<Table.Th>Run</Table.Th>
							<Table.Th>State</Table.Th>
							<Table.Th>Environment</Table.Th>
							<Table.Th>Algorithm</Table.Th>
							<Table.Th ta="right">Return</Table.Th>
							<Table.Th ta="right">Steps</Table.Th>
							<Table.Th ta="right">Steps/s</Table.Th>
						</Table.Tr>
					</Table.Thead>
					<Table.Tbody>
						{comparison.runs.map((run) => (
							<Table.Tr key={run.run}>
								<Table.Td>
									<Link to="/runs/$run" params={{ run: run.run }} className="plain">
										{run.run}
									</Link>
								</Table.Td>
								<Table.Td>
									<StateBadge state={run.state} />
								</Table.Td>
								<Table.Td>{run.environment}</Table.Td>
								<Table.Td>{run.algorithm}</Table.Td>
								<Table.Td ta="right">{measure(run.mean_return)}</Table.Td>
								<Table.Td ta="right">{count(run.steps)}</Table.Td>
								<Table.Td ta="right">{count(run.steps_per_second)}</Table.Td>
							</Table.Tr>
						))}
					</Table.Tbody>
				</Table>
			</Scroll>
		</>
	);
}

function Differences({ comparison }: { comparison: Comparison }) {
	if (comparison.runs.length < 2) return null;
	return (
		<>
			<Title order={2} mt="lg" mb={6}>
				How their specs differ
			</Title>
			<Scroll label="How their specs differ">
				{comparison.differences.length === 0 ? (
					<Text p="md" c="dimmed">
						Not at all.
					</Text>
				) : (
					<Table className="numbers">
						<Table.Thead>
							<Table.Tr>
								<Table.Th>Setting</Table.Th>
								{comparison.runs.map((run) => (
									<Table.Th key={run.run}>{run.run}</Table.Th>
								))}
							</Table.Tr>
						</Table.Thead>
						<Table.Tbody>
							{comparison.differences.map((one) => (
								<Table.Tr key={one.path}>
									<Table.Td className="mono" fz="xs">
										{one.path}
									</Table.Td>
									{comparison.runs.map((run) => {
										const value = (one.values as Record<string, unknown>)[run.run];
										return <Table.Td key={run.run}>{value === undefined ? "–" : text(value)}</Table.Td>;
									})}
								</Table.Tr>
							))}
						</Table.Tbody>
					</Table>
				)}
			</Scroll>
		</>
	);
}

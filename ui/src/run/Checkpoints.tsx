/** Saved policies to download and evaluate, and what evaluations found. */

import { Badge, Button, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask, download, type RunDetail } from "../api/client";
import { checkpointsQuery, evaluationsQuery } from "../api/queries";
import { age, bytes, count, measure, when } from "../format";
import { usePerson } from "../live/live";
import { Icon } from "../shell/icons";
import { Scroll } from "../shell/Scroll";
import { Empty, Failed, Loading } from "../shell/states";
import { useNow } from "../shell/useNow";
import { ForkDialog } from "./Dialogs";
import type { Wish } from "./effects";
import { evaluated } from "./seen";

interface Props {
	detail: RunDetail;
	steer: (wish: Wish) => Promise<boolean>;
}

export function Checkpoints({ detail, steer }: Props) {
	const { run } = detail;
	const query = useQuery(checkpointsQuery(run));
	const evaluations = useQuery(evaluationsQuery(run));
	const [problem, setProblem] = useState<unknown>(null);
	const [forked, setForked] = useState<string | null>(null);
	const { may } = usePerson();
	const now = useNow(5000);
	if (query.error && !query.data) return <Failed error={query.error} retry={query.refetch} />;
	if (!query.data) return <Loading what="checkpoints" />;
	const evaluate = (checkpoint: string) =>
		steer({
			title: `Evaluate ${checkpoint}`,
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/evaluations", {
						params: { path: { run } },
						body: { checkpoint, episodes: 20, seed: 0 },
					}),
				),
			done: evaluated,
		});
	return (
		<>
			{problem !== null && <Failed error={problem} />}
			{forked !== null && <ForkDialog run={run} at={forked} close={() => setForked(null)} />}
			<Scroll label="Checkpoints">
				{query.data.length === 0 ? (
					<Empty title="No checkpoints yet">
						One is saved every{" "}
						{measure(
							Number(
								(detail.spec as { checkpoint?: { every_seconds?: number } }).checkpoint?.every_seconds ?? 30,
							),
						)}{" "}
						s, and when the run stops.
					</Empty>
				) : (
					<Table className="numbers" miw={620}>
						<Table.Thead>
							<Table.Tr>
								<Table.Th>Version</Table.Th>
								<Table.Th ta="right">Steps</Table.Th>
								<Table.Th ta="right">Size</Table.Th>
								<Table.Th>Saved</Table.Th>
								<Table.Th aria-label="Actions" />
							</Table.Tr>
						</Table.Thead>
						<Table.Tbody>
							{query.data.map((one) => (
								<Table.Tr key={one.version}>
									<Table.Td>
										{one.version}{" "}
										{one.best && (
											<Badge size="sm" variant="light" tt="none">
												best
											</Badge>
										)}
									</Table.Td>
									<Table.Td ta="right">{count(one.steps)}</Table.Td>
									<Table.Td ta="right">{bytes(one.bytes)}</Table.Td>
									<Table.Td title={when(one.at)}>{age(one.at, now)} ago</Table.Td>
									<Table.Td ta="right">
										<Button
											variant="subtle"
											size="compact-xs"
											disabled={!may("operator")}
											onClick={() => evaluate(one.version)}
										>
											Evaluate
										</Button>
										<Button
											variant="subtle"
											size="compact-xs"
											disabled={!may("operator")}
											onClick={() => setForked(one.version)}
										>
											Fork
										</Button>
										<Button
											variant="subtle"
											size="compact-xs"
											leftSection={<Icon name="download" size={13} />}
											onClick={() =>
												download(
													`/api/v1/runs/${encodeURIComponent(run)}/checkpoints/${encodeURIComponent(one.version)}/download`,
													`${run}-${one.version}.tar`,
												).then(() => setProblem(null), setProblem)
											}
										>
											Download
										</Button>
									</Table.Td>
								</Table.Tr>
							))}
						</Table.Tbody>
					</Table>
				)}
			</Scroll>
			<Title order={2} mt="lg" mb={6}>
				Evaluations
			</Title>
			<Scroll label="Evaluations">
				{!evaluations.data?.length ? (
					<Empty title="No evaluations yet">
						Episodes without exploration say what a checkpoint is worth. Ask for one above.
					</Empty>
				) : (
					<Table className="numbers" miw={520}>
						<Table.Thead>
							<Table.Tr>
								<Table.Th>Checkpoint</Table.Th>
								<Table.Th>State</Table.Th>
								<Table.Th ta="right">Mean return</Table.Th>
								<Table.Th ta="right">Deviation</Table.Th>
								<Table.Th ta="right">Episodes</Table.Th>
								<Table.Th>Asked</Table.Th>
							</Table.Tr>
						</Table.Thead>
						<Table.Tbody>
							{evaluations.data.map((one) => (
								<Table.Tr key={one.id}>
									<Table.Td>{one.checkpoint}</Table.Td>
									<Table.Td>
										{one.state}
										{one.reason && (
											<Text fz="xs" c="red">
												{one.reason}
											</Text>
										)}
									</Table.Td>
									<Table.Td ta="right">{measure(one.mean)}</Table.Td>
									<Table.Td ta="right">{measure(one.std)}</Table.Td>
									<Table.Td ta="right">{one.episodes}</Table.Td>
									<Table.Td title={when(one.at)}>{age(one.at, now)} ago</Table.Td>
								</Table.Tr>
							))}
						</Table.Tbody>
					</Table>
				)}
			</Scroll>
		</>
	);
}

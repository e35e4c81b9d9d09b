/** Recorded episodes: what came of them, and the GIF to keep. */

import { Button, Group, Loader, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { download, type RecordingView } from "../api/client";
import { recordingsQuery } from "../api/queries";
import { age, bytes, count, measure, when } from "../format";
import { Icon } from "../shell/icons";
import { Scroll } from "../shell/Scroll";
import { Empty, Failed, Loading } from "../shell/states";
import { useNow } from "../shell/useNow";

export function Recordings({ run }: { run: string }) {
	const query = useQuery(recordingsQuery(run));
	const [problem, setProblem] = useState<unknown>(null);
	const now = useNow(5000);
	return (
		<>
			<Title order={2} mt="lg" mb={6}>
				Recordings
			</Title>
			{problem !== null && <Failed error={problem} />}
			<Scroll label="Recordings">
				{query.error && !query.data ? (
					<Failed error={query.error} retry={query.refetch} />
				) : !query.data ? (
					<Loading what="recordings" />
				) : query.data.length === 0 ? (
					<Empty title="No recordings yet">
						Record an episode above: it is played beside the training and kept here as a GIF. The newest 20
						are kept.
					</Empty>
				) : (
					<Table className="numbers" miw={560}>
						<Table.Thead>
							<Table.Tr>
								<Table.Th>Checkpoint</Table.Th>
								<Table.Th ta="right">Return</Table.Th>
								<Table.Th ta="right">Length</Table.Th>
								<Table.Th ta="right">Size</Table.Th>
								<Table.Th>Asked</Table.Th>
								<Table.Th aria-label="Actions" />
							</Table.Tr>
						</Table.Thead>
						<Table.Tbody>
							{query.data.map((one) => (
								<Row key={one.id} one={one} now={now} tell={setProblem} />
							))}
						</Table.Tbody>
					</Table>
				)}
			</Scroll>
		</>
	);
}

interface RowProps {
	one: RecordingView;
	now: number;
	tell: (problem: unknown) => void;
}

function Row({ one, now, tell }: RowProps) {
	const keep = () =>
		download(
			`/api/v1/runs/${encodeURIComponent(one.run)}/recordings/${encodeURIComponent(one.id)}/download`,
			`${one.run}-${one.checkpoint}.gif`,
		).then(() => tell(null), tell);
	const done = one.state === "done";
	return (
		<Table.Tr>
			<Table.Td>
				{one.checkpoint}
				{one.reason && (
					<Text fz="xs" c="red" role="alert">
						{one.reason}
					</Text>
				)}
			</Table.Td>
			<Table.Td ta="right">{done ? measure(one.total_reward) : "–"}</Table.Td>
			<Table.Td ta="right">{done ? `${count(one.length)} steps` : "–"}</Table.Td>
			<Table.Td ta="right">{done ? bytes(one.bytes) : "–"}</Table.Td>
			<Table.Td title={when(one.at)}>{age(one.at, now)} ago</Table.Td>
			<Table.Td ta="right">
				{one.state === "queued" ? (
					<Group gap={6} justify="flex-end" role="status">
						<Loader size={12} />
						<Text fz="xs">recording</Text>
					</Group>
				) : (
					<Button
						variant="subtle"
						size="compact-xs"
						disabled={!done}
						leftSection={<Icon name="download" size={13} />}
						aria-label={`Download the recording of ${one.checkpoint}`}
						onClick={keep}
					>
						{done ? "Download" : "failed"}
					</Button>
				)}
			</Table.Td>
		</Table.Tr>
	);
}

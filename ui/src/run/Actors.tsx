import { Table, Text } from "@mantine/core";
import type { ActorView } from "../api/client";
import { age, count, measure } from "../format";
import { Scroll } from "../shell/Scroll";
import { Empty } from "../shell/states";
import { useNow } from "../shell/useNow";

export function Actors({ actors }: { actors: ActorView[] | undefined }) {
	const now = useNow(1000);
	if (!actors?.length)
		return (
			<div className="panel">
				<Empty title="No actors">Actors appear here while the run is live.</Empty>
			</div>
		);
	return (
		<Scroll label="Actors">
			<Table className="numbers" miw={720}>
				<Table.Thead>
					<Table.Tr>
						<Table.Th>Actor</Table.Th>
						<Table.Th>State</Table.Th>
						<Table.Th>Where</Table.Th>
						<Table.Th ta="right">Policy version</Table.Th>
						<Table.Th ta="right">Lag</Table.Th>
						<Table.Th ta="right">Steps/s</Table.Th>
						<Table.Th ta="right">Episodes</Table.Th>
						<Table.Th ta="right">Return</Table.Th>
						<Table.Th ta="right">Restarts</Table.Th>
						<Table.Th ta="right">Reported</Table.Th>
					</Table.Tr>
				</Table.Thead>
				<Table.Tbody>
					{actors.map((actor) => (
						<Table.Tr key={`${actor.guest}-${actor.slot}-${actor.host}`}>
							<Table.Td>
								{actor.gateway ? "gateway" : `actor-${actor.slot}`}
								{actor.guest && !actor.gateway && (
									<Text span c="dimmed" fz="xs">
										{" "}
										joined
									</Text>
								)}
							</Table.Td>
							<Table.Td>{actor.alive ? "alive" : "ended"}</Table.Td>
							<Table.Td>
								{actor.host ?? "–"}
								{actor.pid !== null && (
									<Text span c="dimmed" fz="xs">
										{" "}
										pid {actor.pid}
									</Text>
								)}
							</Table.Td>
							<Table.Td ta="right">{actor.version ?? "–"}</Table.Td>
							<Table.Td ta="right">{measure(actor.lag)}</Table.Td>
							<Table.Td ta="right">{count(actor.steps_per_second)}</Table.Td>
							<Table.Td ta="right">{count(actor.episodes)}</Table.Td>
							<Table.Td ta="right">{measure(actor.mean_return)}</Table.Td>
							<Table.Td ta="right">{actor.restarts}</Table.Td>
							<Table.Td ta="right">{actor.reported_at === null ? "–" : age(actor.reported_at, now)}</Table.Td>
						</Table.Tr>
					))}
				</Table.Tbody>
			</Table>
		</Scroll>
	);
}

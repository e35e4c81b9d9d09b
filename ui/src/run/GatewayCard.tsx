/** Where experience comes through a gateway: how it and its clients are doing. */

import { Text } from "@mantine/core";
import type { ActorView } from "../api/client";
import { bytes, count, measure } from "../format";

export function GatewayCard({ actors }: { actors: ActorView[] | undefined }) {
	const figures = actors?.find((actor) => actor.gateway)?.gateway;
	if (!figures) return null;
	return (
		<section className="panel facts" style={{ marginTop: 12 }} aria-label="Gateway and clients">
			{factsOf(figures).map(([name, value]) => (
				<div key={name}>
					<Text fz="xs" c="dimmed">
						{name}
					</Text>
					<div className="value">{value}</div>
				</div>
			))}
		</section>
	);
}

/** What people want to know of it, as names and words. */
export function factsOf(figures: Record<string, number>): [string, string][] {
	const of = (name: string) => figures[name] ?? 0;
	const dropped = of("gateway/stale") + of("gateway/foreign");
	return [
		["Clients", count(of("gateway/clients"))],
		["Trajectories packed", count(of("gateway/packed"))],
		["Waiting here", `${count(of("gateway/queue_trajectories"))} (${bytes(of("gateway/queue_bytes"))})`],
		["Waiting at clients", count(of("clients/waiting_trajectories"))],
		["Dropped", count(dropped)],
		["Decisions", count(of("clients/decisions"))],
		["Fallbacks", count(of("clients/fallbacks"))],
		["Decision p99", `${measure(of("clients/decision_p99_us"))} µs`],
		["Clients' CPU", `${measure(100 * of("clients/cpu_share"))} %`],
		["Clients' memory", bytes(of("clients/memory_bytes"))],
		["Gateway's CPU", `${measure(100 * of("gateway/cpu_share"))} %`],
		["Gateway's memory", bytes(of("gateway/memory_bytes"))],
	];
}

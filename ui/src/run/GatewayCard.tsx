/** Where experience comes through a gateway: how it and its clients are doing. */

import { Title } from "@mantine/core";
import type { ActorView } from "../api/client";
import { bytes, count, microseconds, percent } from "../format";
import { type Fact, Facts } from "./Facts";

type Figures = Record<string, number>;

export function GatewayCard({ actors }: { actors: ActorView[] | undefined }) {
	const figures = actors?.find((actor) => actor.gateway)?.gateway;
	if (!figures) return null;
	return (
		<div className="halves">
			<div>
				<Title order={2} mb={6}>
					Clients
				</Title>
				<Facts label="Clients" facts={factsOfClients(figures)} columns={4} />
			</div>
			<div>
				<Title order={2} mb={6}>
					Gateway
				</Title>
				<Facts label="Gateway" facts={factsOfGateway(figures)} columns={4} />
			</div>
		</div>
	);
}

export function factsOfClients(figures: Figures): Fact[] {
	const of = reader(figures, "clients/");
	const decisions = of("decisions");
	return [
		{ name: "Connected", value: count(figures["gateway/clients"] ?? 0) },
		{ name: "Decisions", value: count(decisions) },
		{
			name: "Slowest\u00a01\u00a0%",
			value: decisions ? microseconds(of("decision_p99_us")) : "–",
			note: "a decision",
		},
		{
			name: "Fallbacks",
			value: count(of("fallbacks")),
			note: decisions ? percent(of("fallbacks") / decisions) : undefined,
		},
		{ name: "To be sent", value: count(of("waiting_trajectories")), note: bytes(of("waiting_bytes")) },
		{ name: "Dropped", value: count(of("dropped")), note: "before sending" },
		{ name: "CPU", value: percent(of("cpu_share")), note: "of a core" },
		{ name: "Memory", value: bytes(of("memory_bytes")) },
	];
}

/** Trajectories: received = learned from + too old + not the policy's + waiting. */
export function factsOfGateway(figures: Figures): Fact[] {
	const of = reader(figures, "gateway/");
	return [
		{ name: "Received", value: count(of("received")), note: "trajectories" },
		{ name: "Packed", value: count(of("packed")), note: "for learning" },
		{ name: "Waiting", value: count(of("queue_trajectories")), note: bytes(of("queue_bytes")) },
		{ name: "Too old", value: count(of("stale")), note: "dropped" },
		{ name: "Foreign", value: count(of("foreign")), note: "not the policy's" },
		{ name: "Refused", value: count(of("sent_refused")), note: "on arrival" },
		{ name: "CPU", value: percent(of("cpu_share")), note: "of a core" },
		{ name: "Memory", value: bytes(of("memory_bytes")) },
	];
}

const reader = (figures: Figures, prefix: string) => (name: string) => figures[prefix + name] ?? 0;

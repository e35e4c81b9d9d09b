import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import type { ActorView } from "../api/client";
import { GatewayCard } from "./GatewayCard";

const show = (actors: Partial<ActorView>[]) =>
	render(
		<MantineProvider>
			<GatewayCard actors={actors as ActorView[]} />
		</MantineProvider>,
	);

test("a run with a gateway tells how it and its clients are doing", () => {
	show([
		{
			slot: 1000,
			gateway: {
				"gateway/clients": 3,
				"gateway/stale": 2,
				"gateway/foreign": 5,
				"gateway/queue_trajectories": 4,
				"gateway/queue_bytes": 2000,
				"clients/decisions": 20_000,
				"clients/fallbacks": 5000,
				"clients/decision_p99_us": 3228,
				"clients/cpu_share": 0.0788,
			},
		},
	]);
	const clients = screen.getByLabelText("Clients").textContent;
	for (const words of ["Connected3", "Decisions20K", "3.2 msa decision", "Fallbacks5,00025 %", "CPU7.9 %"])
		expect(clients).toContain(words);
	const gateway = screen.getByLabelText("Gateway").textContent;
	for (const words of ["Waiting42.0 kB", "Too old2", "Foreign5"]) expect(gateway).toContain(words);
});

test("nothing was decided yet: no time of a decision, no share of fallbacks", () => {
	show([{ slot: 1000, gateway: { "gateway/clients": 1 } }]);
	const clients = screen.getByLabelText("Clients").textContent;
	expect(clients).toContain("Slowest\u00a01\u00a0%–");
	expect(clients).toContain("Fallbacks0To be sent");
});

test("a run without one shows nothing of it", () => {
	show([{ slot: 0, gateway: null }]);
	expect(screen.queryByLabelText("Clients")).toBeNull();
});

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
				"gateway/queue_bytes": 2000,
			},
		},
	]);
	const card = screen.getByLabelText("Gateway and clients");
	expect(card.textContent).toContain("Clients3");
	expect(card.textContent).toContain("Dropped7");
	expect(card.textContent).toContain("2.0 kB");
});

test("a run without one shows nothing of it", () => {
	show([{ slot: 0, gateway: null }]);
	expect(screen.queryByLabelText("Gateway and clients")).toBeNull();
});

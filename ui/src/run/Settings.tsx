/** Hyperparameters as they are now; those that may change while the run learns can be edited. */

import { Button, Group, SimpleGrid, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask, type RunDetail } from "../api/client";
import { algorithmQuery } from "../api/queries";
import { text } from "../format";
import { usePerson } from "../live/live";
import { Field, spoken } from "../new/Field";
import { follow, type Schema, same } from "../new/schema";
import { Failed, Loading } from "../shell/states";
import { allows } from "./Controls";
import type { Wish } from "./effects";
import { inUse } from "./seen";

interface Props {
	detail: RunDetail;
	steer: (wish: Wish) => Promise<boolean>;
}

export function Settings({ detail, steer }: Props) {
	const query = useQuery(algorithmQuery(detail.algorithm));
	const [draft, setDraft] = useState<Record<string, unknown>>({});
	const [faults, setFaults] = useState<Record<string, string | null>>({});
	const [round, setRound] = useState(0);
	const { may } = usePerson();
	if (query.error && !query.data) return <Failed error={query.error} retry={query.refetch} />;
	if (!query.data) return <Loading what="hyperparameters" />;
	const root = query.data.schema as Schema;
	const now = detail.settings as Record<string, unknown>;
	const changed = Object.entries(draft).filter(([name, value]) => !same(value, now[name]));
	const wrong = Object.values(faults).some(Boolean);
	const editable = may("operator") && allows("scale", detail.state);
	const fixed = Object.entries(now).filter(([name]) => !detail.live_settings.includes(name));

	const discard = () => {
		setDraft({});
		setFaults({});
		setRound(round + 1);
	};
	async function apply() {
		const settings = Object.fromEntries(changed);
		const accepted = await steer({
			title: `Set ${changed.map(([name, value]) => `${spoken(name)} to ${text(value)}`).join(", ")}`,
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/settings", {
						params: { path: { run: detail.run } },
						body: { settings },
					}),
				),
			done: inUse,
		});
		if (accepted) setDraft({});
	}
	const undo = () =>
		steer({
			title: "Undo the last change of hyperparameters",
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/settings/rollback", {
						params: { path: { run: detail.run } },
						body: {},
					}),
				),
			done: inUse,
		});
	return (
		<>
			<form
				className="panel"
				style={{ padding: 16 }}
				onSubmit={(event) => {
					event.preventDefault();
					if (!wrong && changed.length) apply();
				}}
			>
				<Group justify="space-between" mb="sm">
					<div>
						<Title order={2}>May change while it learns</Title>
						<Text fz="xs" c="dimmed">
							{editable
								? "A change takes effect at the learner's next update and is recorded."
								: "Only a live run, and an operator's token, can change them."}
						</Text>
					</div>
					<Group gap="xs">
						<Button
							variant="subtle"
							color="gray"
							disabled={!editable || Object.keys(detail.desired.settings).length === 0}
							onClick={undo}
						>
							Undo last
						</Button>
						<Button variant="default" disabled={!changed.length && !wrong} onClick={discard}>
							Discard
						</Button>
						<Button type="submit" disabled={!editable || wrong || !changed.length}>
							Apply {changed.length || ""}
						</Button>
					</Group>
				</Group>
				<SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="md">
					{detail.live_settings.map((name) => (
						<Field
							key={`${name} ${round}`}
							name={name}
							schema={follow(root.properties?.[name] ?? {}, root)}
							value={name in draft ? draft[name] : now[name]}
							disabled={!editable}
							onChange={(value) => setDraft((before) => ({ ...before, [name]: value }))}
							onFault={(problem) => setFaults((before) => ({ ...before, [name]: problem }))}
						/>
					))}
				</SimpleGrid>
			</form>
			<Title order={2} mt="lg" mb={6}>
				Fixed for this run
			</Title>
			<div className="panel facts">
				{fixed.map(([name, value]) => (
					<div key={name}>
						<Text fz="xs" c="dimmed">
							{spoken(name)}
						</Text>
						<Text className="numbers">{text(value)}</Text>
					</div>
				))}
			</div>
		</>
	);
}

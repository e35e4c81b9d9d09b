/** Who asked what, when, and what came of it. */

import { Button, Table, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { CommandView } from "../api/client";
import { text, when } from "../format";
import { Scroll } from "../shell/Scroll";

interface Props {
	commands: CommandView[];
	withRun?: boolean;
	undo?: (command: CommandView) => void;
}

export function Commands({ commands, withRun, undo }: Props) {
	return (
		<Scroll label="Commands">
			<Table className="numbers" miw={640}>
				<Table.Thead>
					<Table.Tr>
						<Table.Th>When</Table.Th>
						<Table.Th>Who</Table.Th>
						{withRun && <Table.Th>Run</Table.Th>}
						<Table.Th>What</Table.Th>
						<Table.Th>Change</Table.Th>
						<Table.Th>Outcome</Table.Th>
						{undo && <Table.Th aria-label="Undo" />}
					</Table.Tr>
				</Table.Thead>
				<Table.Tbody>
					{commands.map((command) => (
						<Table.Tr key={command.id}>
							<Table.Td style={{ whiteSpace: "nowrap" }}>{when(command.at)}</Table.Td>
							<Table.Td>{command.who}</Table.Td>
							{withRun && (
								<Table.Td>
									{command.run.startsWith(".") ? (
										"the server"
									) : (
										<Link to="/runs/$run" params={{ run: command.run }} className="plain">
											{command.run}
										</Link>
									)}
								</Table.Td>
							)}
							<Table.Td>{command.verb.replaceAll("_", " ")}</Table.Td>
							<Table.Td maw={360}>{change(command)}</Table.Td>
							<Table.Td>
								<Text span fz="sm" c={command.outcome === "refused" ? "red" : undefined}>
									{command.outcome}
								</Text>
								{command.reason && (
									<Text fz="xs" c="dimmed">
										{command.reason}
									</Text>
								)}
							</Table.Td>
							{undo && (
								<Table.Td ta="right">
									{isSetting(command) && (
										<Button
											size="compact-xs"
											variant="subtle"
											aria-label={`Undo ${change(command)}`}
											onClick={() => undo(command)}
										>
											Undo
										</Button>
									)}
								</Table.Td>
							)}
						</Table.Tr>
					))}
				</Table.Tbody>
			</Table>
		</Scroll>
	);
}

interface Older {
	hasNextPage: boolean;
	isFetchingNextPage: boolean;
	fetchNextPage: () => unknown;
}

export function ShowOlder({ query }: { query: Older }) {
	if (!query.hasNextPage) return null;
	return (
		<Button
			mt="sm"
			variant="default"
			loading={query.isFetchingNextPage}
			onClick={() => query.fetchNextPage()}
		>
			Show older
		</Button>
	);
}

export const isSetting = (command: CommandView) =>
	command.outcome === "applied" && (command.verb === "set" || command.verb === "set_hyperparameters");

/** "learning_rate: 0.001 → 0.0001"; a start names its environment. */
export function change(command: CommandView): string {
	const fresh = flat(command.new);
	const old = flat(command.old);
	const names = Object.keys(fresh).filter(
		(name) => JSON.stringify(old[name]) !== JSON.stringify(fresh[name]),
	);
	return names
		.map((name) =>
			name in old ? `${name}: ${text(old[name])} → ${text(fresh[name])}` : `${name}: ${text(fresh[name])}`,
		)
		.join(", ");
}

function flat(value: unknown): Record<string, unknown> {
	const fields = (value ?? {}) as Record<string, unknown>;
	const { settings, ...rest } = fields;
	return settings && typeof settings === "object" ? { ...rest, ...settings } : fields;
}

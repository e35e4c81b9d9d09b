/** The server and how it is, and who may speak to it. */

import { Badge, Group, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { serverQuery } from "../api/queries";
import { bytes, duration, milliseconds } from "../format";
import { usePerson } from "../live/live";
import { Failed, Loading } from "../shell/states";
import { useNow } from "../shell/useNow";
import { Tokens } from "./Tokens";

export function SettingsPage() {
	const person = usePerson();
	return (
		<>
			<Title order={1} mb="sm">
				Settings
			</Title>
			<Server />
			<Title order={2} mt="xl" mb={6}>
				Tokens
			</Title>
			{person.may("admin") ? (
				<Tokens />
			) : (
				<Text c="dimmed">
					Tokens are an admin's business; yours is a {person.role}'s, named {person.name}.
				</Text>
			)}
		</>
	);
}

function Server() {
	const query = useQuery(serverQuery);
	const now = useNow(5000);
	if (query.error && !query.data) return <Failed error={query.error} retry={query.refetch} />;
	if (!query.data) return <Loading what="the server" />;
	const server = query.data;
	const runs = Object.entries(server.runs).map(([state, number]) => `${number} ${state}`);
	const facts: [string, string][] = [
		["Version", server.version],
		["Up for", duration(now - server.started_at)],
		["Machine", `${server.host}, pid ${server.pid}`],
		["Home", server.home],
		["Executor", server.executor],
		["Stream", server.stream],
		["Stream reachable", server.checks.stream === "ok" ? "yes" : (server.checks.stream ?? "not known yet")],
		["Stream answers within", server.stream_seconds === null ? "–" : milliseconds(server.stream_seconds)],
		["Commands not yet read", String(server.commands_behind)],
		["Database", server.database],
		["Free disk", bytes(server.disk_free_bytes)],
		["Runs", runs.join(", ") || "none"],
		["Live viewers", String(server.viewers)],
	];
	return (
		<>
			<Group gap="xs" mb="xs">
				<Title order={2}>Server</Title>
				{Object.entries(server.checks).map(([part, state]) => (
					<Badge key={part} size="sm" variant="dot" color={state === "ok" ? "teal" : "red"} tt="none">
						{part}: {state === "ok" ? "ok" : "not well"}
					</Badge>
				))}
			</Group>
			{Object.entries(server.checks)
				.filter(([, state]) => state !== "ok")
				.map(([part, state]) => (
					<Text key={part} c="red" fz="sm" mb="xs" role="alert">
						{part}: {state}
					</Text>
				))}
			<div className="panel">
				<Table>
					<Table.Tbody>
						{facts.map(([name, value]) => (
							<Table.Tr key={name}>
								<Table.Th w={190} fw={500} c="dimmed">
									{name}
								</Table.Th>
								<Table.Td className="numbers" style={{ overflowWrap: "anywhere" }}>
									{value}
								</Table.Td>
							</Table.Tr>
						))}
					</Table.Tbody>
				</Table>
			</div>
		</>
	);
}

/** Tokens: give one to somebody, see it once, revoke it. */

import {
	Alert,
	Button,
	Code,
	CopyButton,
	Group,
	NumberInput,
	Select,
	Table,
	Text,
	TextInput,
} from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask, type Role } from "../api/client";
import { tokensQuery } from "../api/queries";
import { when } from "../format";
import { Ask } from "../run/Controls";
import { Scroll } from "../shell/Scroll";
import { Failed, Loading } from "../shell/states";

export function Tokens() {
	const queries = useQueryClient();
	const query = useQuery(tokensQuery);
	const [name, setName] = useState("");
	const [role, setRole] = useState<Role>("viewer");
	const [days, setDays] = useState<number | "">(90);
	const [doomed, setDoomed] = useState<{ id: string; name: string } | null>(null);
	const changed = () => queries.invalidateQueries({ queryKey: ["tokens"] });
	const create = useMutation({
		mutationFn: () =>
			ask(api.POST("/api/v1/tokens", { body: { name: name.trim(), role, days: days === "" ? null : days } })),
		onSuccess: () => {
			setName("");
			changed();
		},
	});
	const revoke = useMutation({
		mutationFn: (id: string) => ask(api.DELETE("/api/v1/tokens/{id}", { params: { path: { id } } })),
		onSuccess: changed,
	});
	if (query.error && !query.data) return <Failed error={query.error} retry={query.refetch} />;
	if (!query.data) return <Loading what="tokens" />;
	return (
		<>
			<form
				className="panel"
				style={{ padding: 14 }}
				onSubmit={(event) => {
					event.preventDefault();
					create.mutate();
				}}
			>
				<Group gap="sm" align="flex-end">
					<TextInput
						label="For whom or what"
						placeholder="grafana"
						value={name}
						onChange={(event) => setName(event.currentTarget.value)}
						required
						withAsterisk={false}
						style={{ flex: "1 1 180px" }}
					/>
					<Select
						label="Role"
						data={[
							{ value: "viewer", label: "viewer: sees" },
							{ value: "operator", label: "operator: steers" },
							{ value: "admin", label: "admin: deletes, gives tokens" },
						]}
						value={role}
						onChange={(value) => setRole((value ?? "viewer") as Role)}
						allowDeselect={false}
						w={210}
					/>
					<NumberInput
						label="Days"
						placeholder="for ever"
						min={1}
						value={days}
						onChange={(value) => setDays(value === "" ? "" : Number(value))}
						w={90}
					/>
					<Button type="submit" loading={create.isPending} disabled={!name.trim()} mb={0}>
						Create token
					</Button>
				</Group>
				{create.error && <Failed error={create.error} />}
				{create.data && (
					<Alert
						mt="sm"
						color="teal"
						variant="light"
						title={`The token of ${create.data.name}, shown this once`}
						withCloseButton
						closeButtonLabel="I have it"
						onClose={() => create.reset()}
					>
						<Group gap="xs">
							<Code style={{ overflowWrap: "anywhere" }}>{create.data.token}</Code>
							<CopyButton value={create.data.token}>
								{({ copied, copy }) => (
									<Button size="compact-xs" variant="default" onClick={copy}>
										{copied ? "Copied" : "Copy"}
									</Button>
								)}
							</CopyButton>
						</Group>
					</Alert>
				)}
			</form>
			{revoke.error && <Failed error={revoke.error} />}
			<Scroll label="Tokens" top={12}>
				{query.data.length === 0 ? (
					<Text p="md" c="dimmed">
						None but the owner's, which is in the server's home.
					</Text>
				) : (
					<Table className="numbers" miw={620}>
						<Table.Thead>
							<Table.Tr>
								<Table.Th>Name</Table.Th>
								<Table.Th>Role</Table.Th>
								<Table.Th>Created</Table.Th>
								<Table.Th>By</Table.Th>
								<Table.Th>Valid until</Table.Th>
								<Table.Th aria-label="Actions" />
							</Table.Tr>
						</Table.Thead>
						<Table.Tbody>
							{query.data.map((one) => (
								<Table.Tr key={one.id} c={one.revoked_at ? "dimmed" : undefined}>
									<Table.Td>{one.name}</Table.Td>
									<Table.Td>{one.role}</Table.Td>
									<Table.Td>{when(one.created_at)}</Table.Td>
									<Table.Td>{one.created_by}</Table.Td>
									<Table.Td>
										{one.revoked_at ? "revoked" : one.expires_at ? when(one.expires_at) : "for ever"}
									</Table.Td>
									<Table.Td ta="right">
										{!one.revoked_at && (
											<Button
												size="compact-xs"
												variant="subtle"
												color="red"
												aria-label={`Revoke the token of ${one.name}`}
												onClick={() => setDoomed(one)}
											>
												Revoke
											</Button>
										)}
									</Table.Td>
								</Table.Tr>
							))}
						</Table.Tbody>
					</Table>
				)}
			</Scroll>
			<Ask
				open={doomed !== null}
				title={`Revoke the token of ${doomed?.name ?? ""}?`}
				text="Whoever uses it is shut out within seconds. This cannot be undone."
				verb="Revoke"
				red
				close={() => setDoomed(null)}
				act={() => doomed && revoke.mutate(doomed.id)}
			/>
		</>
	);
}

/** What is installed: environments with their spaces and defaults, and algorithms. */

import {
	Badge,
	Button,
	Checkbox,
	Code,
	Drawer,
	Group,
	SimpleGrid,
	Table,
	Text,
	TextInput,
	Title,
} from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import type { EnvironmentDetail } from "../api/client";
import { algorithmsQuery, environmentQuery, environmentsQuery } from "../api/queries";
import { measure } from "../format";
import { spoken } from "../new/Field";
import { fitting } from "../new/fit";
import { Scroll } from "../shell/Scroll";
import { Empty, Failed, Loading } from "../shell/states";

const route = getRouteApi("/environments");
const Yaml = lazy(() => import("./Yaml").then((module) => ({ default: module.Yaml })));

export function EnvironmentsPage() {
	const search = route.useSearch();
	const navigate = useNavigate({ from: "/environments" });
	const query = useQuery(environmentsQuery);
	const type = useDebouncedCallback(
		(value: string) =>
			navigate({ search: (before) => ({ ...before, search: value || undefined }), replace: true }),
		150,
	);
	const wanted = (search.search ?? "").toLowerCase();
	const shown = (query.data ?? [])
		.filter((one) => (search.all || one.installed) && one.id.toLowerCase().includes(wanted))
		.sort((a, b) => Number(b.preset) - Number(a.preset));
	return (
		<>
			<Title order={1} mb="sm">
				Environments and algorithms
			</Title>
			<Algorithms />
			<Group justify="space-between" mt="lg" mb="xs">
				<Title order={2}>Environments</Title>
				<Group gap="md">
					<Checkbox
						size="xs"
						label="Also those not installed"
						checked={search.all ?? false}
						onChange={(event) => {
							const all = event.currentTarget.checked || undefined;
							navigate({ search: (before) => ({ ...before, all }), replace: true });
						}}
					/>
					<TextInput
						aria-label="Search environments"
						placeholder="Search"
						defaultValue={search.search ?? ""}
						onChange={(event) => type(event.currentTarget.value)}
						w={200}
					/>
				</Group>
			</Group>
			{query.error ? (
				<Failed error={query.error} retry={query.refetch} />
			) : query.isPending ? (
				<Loading what="environments" />
			) : (
				<Scroll label="Environments">
					{shown.length === 0 ? (
						<Empty title="No environment fits">
							Tick “Also those not installed” to see what can be added.
						</Empty>
					) : (
						<Table highlightOnHover>
							<Table.Thead>
								<Table.Tr>
									<Table.Th>Environment</Table.Th>
									<Table.Th>Defaults</Table.Th>
									<Table.Th>Installed</Table.Th>
									<Table.Th aria-label="Actions" />
								</Table.Tr>
							</Table.Thead>
							<Table.Tbody>
								{shown.map((one) => (
									<Table.Tr key={one.id}>
										<Table.Td>
											<Link
												to="/environments"
												search={{ ...search, id: one.id }}
												className="plain"
												style={{ fontWeight: 550 }}
											>
												{one.id}
											</Link>
										</Table.Td>
										<Table.Td>
											{one.preset ? (
												<Badge size="sm" variant="light" tt="none">
													tuned
												</Badge>
											) : (
												<Text span c="dimmed" fz="xs">
													general
												</Text>
											)}
										</Table.Td>
										<Table.Td>
											{one.installed ? (
												"yes"
											) : (
												<Text fz="xs" c="dimmed">
													{one.missing}
												</Text>
											)}
										</Table.Td>
										<Table.Td ta="right">
											{one.installed && (
												<Button
													size="compact-xs"
													variant="subtle"
													aria-label={`New run of ${one.id}`}
													renderRoot={(props) => (
														<Link to="/new" search={{ environment: one.id }} {...props} />
													)}
												>
													New run
												</Button>
											)}
										</Table.Td>
									</Table.Tr>
								))}
							</Table.Tbody>
						</Table>
					)}
				</Scroll>
			)}
			<Drawer
				opened={!!search.id}
				onClose={() => navigate({ search: ({ id: _, ...before }) => before, replace: true })}
				position="right"
				size="lg"
				title={search.id}
			>
				{search.id && <Environment id={search.id} />}
			</Drawer>
		</>
	);
}

function Algorithms() {
	const query = useQuery(algorithmsQuery);
	if (query.error) return <Failed error={query.error} retry={query.refetch} />;
	return (
		<SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="sm">
			{query.data?.map((one) => (
				<div key={one.name} className="panel" style={{ padding: 14 }}>
					<Group justify="space-between" mb={4}>
						<Text fw={650}>{one.name}</Text>
						<Button
							size="compact-xs"
							variant="subtle"
							aria-label={`New run with ${one.name}`}
							renderRoot={(props) => <Link to="/new" search={{ algorithm: one.name }} {...props} />}
						>
							New run
						</Button>
					</Group>
					<Text fz="sm">{one.summary}</Text>
					<Text fz="xs" c="dimmed" mt={6}>
						Actions: {one.actions.join(", ")}
					</Text>
					<Text fz="xs" c="dimmed" mt={2}>
						May change while it learns: {one.live.map((name) => spoken(name).toLowerCase()).join(", ")}
					</Text>
				</div>
			))}
		</SimpleGrid>
	);
}

function Environment({ id }: { id: string }) {
	const query = useQuery(environmentQuery(id));
	if (query.error) return <Failed error={query.error} retry={query.refetch} />;
	if (query.isPending) return <Loading what={id} />;
	const one = query.data;
	return (
		<>
			{!one.installed && (
				<Text mb="sm">
					Not installed: <Code>{one.missing}</Code>
				</Text>
			)}
			<Facts environment={one} />
			{one.installed && (
				<Button my="md" renderRoot={(props) => <Link to="/new" search={{ environment: id }} {...props} />}>
					New run
				</Button>
			)}
			{one.defaults && (
				<>
					<Title order={2} mb={6}>
						Defaults
					</Title>
					<Suspense fallback={<Loading what="defaults" />}>
						<Yaml value={one.defaults} />
					</Suspense>
				</>
			)}
		</>
	);
}

function Facts({ environment }: { environment: EnvironmentDetail }) {
	const { data: algorithms } = useQuery(algorithmsQuery);
	const action = (environment.action as { kind?: string } | null)?.kind;
	const space = (value: unknown) => (value as { text?: string } | null)?.text ?? "–";
	const facts: [string, string][] = [
		["Observations", space(environment.observation)],
		["Actions", space(environment.action)],
		[
			"Longest episode",
			environment.max_episode_steps ? `${environment.max_episode_steps} steps` : "no limit",
		],
		["Solved at a return of", measure(environment.reward_threshold)],
		["Algorithms that fit", (action && algorithms && fitting(action, algorithms).join(", ")) || "–"],
	];
	return (
		<Table>
			<Table.Tbody>
				{facts.map(([name, value]) => (
					<Table.Tr key={name}>
						<Table.Th w={170}>{name}</Table.Th>
						<Table.Td className="mono" fz="xs" style={{ overflowWrap: "anywhere" }}>
							{value}
						</Table.Td>
					</Table.Tr>
				))}
			</Table.Tbody>
		</Table>
	);
}

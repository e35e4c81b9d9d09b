/** Every command to every run. */

import { Group, Text, TextInput, Title } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { commandsQuery } from "../api/queries";
import { Empty, Failed, Loading } from "../shell/states";
import { useTyped } from "../shell/useTyped";
import { Commands, ShowOlder } from "./Commands";

const route = getRouteApi("/audit");

export function AuditPage() {
	const search = route.useSearch();
	const navigate = useNavigate({ from: "/audit" });
	const query = useInfiniteQuery({ ...commandsQuery(search), refetchInterval: 5000 });
	const commands = query.data?.pages.flatMap((page) => page.items) ?? [];
	return (
		<>
			<Title order={1}>Audit</Title>
			<Text c="dimmed" mb="sm">
				Who asked what, when, and what came of it. Nothing is ever removed from here.
			</Text>
			<Group gap="xs" mb="sm" role="search">
				{(["run", "who", "verb"] as const).map((name) => (
					<Filter
						key={name}
						name={name}
						value={search[name]}
						apply={(value) => navigate({ search: (before) => ({ ...before, [name]: value }), replace: true })}
					/>
				))}
			</Group>
			{query.error && !query.data ? (
				<Failed error={query.error} retry={query.refetch} />
			) : query.isPending ? (
				<Loading what="commands" />
			) : commands.length === 0 ? (
				<div className="panel">
					<Empty title="No commands">Nobody has asked for anything that fits.</Empty>
				</div>
			) : (
				<Commands commands={commands} withRun />
			)}
			<ShowOlder query={query} />
		</>
	);
}

interface FilterProps {
	name: "run" | "who" | "verb";
	value: string | undefined;
	apply: (value: string | undefined) => void;
}

function Filter({ name, value, apply }: FilterProps) {
	const [typed, type] = useTyped(value, apply);
	return (
		<TextInput
			aria-label={`Filter by ${name}`}
			placeholder={{ run: "Run", who: "Who", verb: "Verb, such as scale" }[name]}
			value={typed}
			onChange={(event) => type(event.currentTarget.value)}
			w={{ base: "100%", xs: 200 }}
		/>
	);
}

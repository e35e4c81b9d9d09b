/** Every command to every run. */

import { Button, Group, Text, TextInput, Title } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { commandsQuery } from "../api/queries";
import { Empty, Failed, Loading } from "../shell/states";
import { Commands } from "./Commands";

const route = getRouteApi("/audit");

export function AuditPage() {
	const search = route.useSearch();
	const navigate = useNavigate({ from: "/audit" });
	const query = useInfiniteQuery({ ...commandsQuery(search), refetchInterval: 5000 });
	const commands = query.data?.pages.flatMap((page) => page.items) ?? [];
	const change = useDebouncedCallback(
		(name: "run" | "who" | "verb", value: string) =>
			navigate({ search: (before) => ({ ...before, [name]: value.trim() || undefined }), replace: true }),
		300,
	);
	return (
		<>
			<Title order={1}>Audit</Title>
			<Text c="dimmed" mb="sm">
				Who asked what, when, and what came of it. Nothing is ever removed from here.
			</Text>
			<Group gap="xs" mb="sm" role="search">
				{(["run", "who", "verb"] as const).map((name) => (
					<TextInput
						key={name}
						aria-label={`Filter by ${name}`}
						placeholder={{ run: "Run", who: "Who", verb: "Verb, such as scale" }[name]}
						defaultValue={search[name] ?? ""}
						onChange={(event) => change(name, event.currentTarget.value)}
						w={{ base: "100%", xs: 200 }}
					/>
				))}
			</Group>
			{query.error ? (
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
			{query.hasNextPage && (
				<Button
					mt="sm"
					variant="default"
					loading={query.isFetchingNextPage}
					onClick={() => query.fetchNextPage()}
				>
					Show older
				</Button>
			)}
		</>
	);
}

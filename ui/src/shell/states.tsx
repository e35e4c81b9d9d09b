/** What a part of the page shows when it has nothing, waits, or failed. */

import { Alert, Box, Button, Center, Group, Loader, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Problem, type RunState } from "../api/client";

export function Loading({ what }: { what: string }) {
	return (
		<Center p="xl" role="status">
			<Group gap="sm">
				<Loader size="sm" />
				<Text c="dimmed">Loading {what} …</Text>
			</Group>
		</Center>
	);
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
	return (
		<Center p={48}>
			<Stack align="center" gap={8} maw={460}>
				<Text fw={600} fz="lg" ta="center">
					{title}
				</Text>
				<Box c="dimmed" ta="center">
					{children}
				</Box>
			</Stack>
		</Center>
	);
}

export function Failed({ error, retry }: { error: unknown; retry?: () => void }) {
	const problem = error instanceof Problem ? error : null;
	return (
		<Alert color="red" variant="light" title={problem?.title ?? "Something went wrong"} role="alert" m="sm">
			<Text>{error instanceof Error ? error.message : String(error)}</Text>
			{problem?.items.map((item) => (
				<Text key={item.where + item.detail} fz="sm">
					<code>{item.where}</code>: {item.detail}
				</Text>
			))}
			{retry && (
				<Button mt="xs" variant="default" onClick={retry}>
					Try again
				</Button>
			)}
		</Alert>
	);
}

const COLORS: Record<RunState, string> = {
	pending: "gray",
	running: "teal",
	paused: "yellow",
	stopping: "orange",
	stopped: "gray",
	done: "blue",
	failed: "red",
	interrupted: "orange",
};

export const LIVE_STATES: readonly RunState[] = ["pending", "running", "paused", "stopping"];
export const STATES = Object.keys(COLORS) as RunState[];

export function StateBadge({ state }: { state: RunState }) {
	const moving = state === "running" || state === "stopping" || state === "pending";
	return (
		<Group gap={7} wrap="nowrap" component="span">
			<Box
				component="span"
				className={moving ? "pulse" : undefined}
				w={8}
				h={8}
				bg={`${COLORS[state]}.6`}
				style={{ borderRadius: 8, flex: "none" }}
			/>
			<span>{state}</span>
		</Group>
	);
}

/** The same wish as YAML, which may be edited, and as a command for a terminal. */

import {
	ActionIcon,
	Button,
	CopyButton,
	Group,
	SegmentedControl,
	Text,
	Textarea,
	Title,
	Tooltip,
} from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import { parse, stringify } from "yaml";
import { Icon } from "../shell/icons";
import { same } from "./schema";
import { commandLine, type Labels, type Wish } from "./wish";

interface Props {
	wish: Wish;
	resolved: Wish | undefined;
	labels: Labels;
	onWish: (wish: Wish) => void;
	onFault: (fault: string | null) => void;
}

export function SpecText({ wish, resolved, labels, onWish, onFault }: Props) {
	const [view, setView] = useState<"short" | "whole">("short");
	const [text, setText] = useState(() => stringify(wish));
	const [wrong, setWrong] = useState<string | null>(null);
	const latest = useRef({ wrong, onFault });
	latest.current = { wrong, onFault };
	useEffect(() => {
		// what cannot be read stays for whoever types it; Start waits until it is right, or given up
		if (!latest.current.wrong) setText((before) => (same(read(before), wish) ? before : stringify(wish)));
	}, [wish]);
	useEffect(() => {
		latest.current.onFault(wrong);
		return () => latest.current.onFault(null);
	}, [wrong]);
	function change(now: string) {
		setText(now);
		try {
			const meant = parse(now);
			if (typeof meant !== "object" || meant === null || Array.isArray(meant))
				throw new Error("A spec is a list of names and values, as in: environment: CartPole-v1");
			setWrong(null);
			if (!same(meant, wish)) onWish(meant as Wish);
		} catch (error) {
			setWrong((error as Error).message.split("\n")[0] ?? "not YAML");
		}
	}
	const command = commandLine(wish, labels);
	return (
		<>
			<div className="panel" style={{ padding: 12 }}>
				<Group justify="space-between" mb={8}>
					<Title order={2}>Spec</Title>
					<Group gap={6}>
						<SegmentedControl
							size="xs"
							aria-label="How much of the spec"
							data={[
								{ value: "short", label: "What you chose" },
								{ value: "whole", label: "All values" },
							]}
							value={view}
							onChange={(value) => setView(value as "short" | "whole")}
						/>
						<Copy value={view === "short" ? text : stringify(resolved ?? wish)} what="spec" />
					</Group>
				</Group>
				{view === "short" ? (
					<Textarea
						aria-label="Spec as YAML"
						value={text}
						onChange={(event) => change(event.currentTarget.value)}
						error={wrong}
						autosize
						minRows={6}
						maxRows={22}
						spellCheck={false}
						classNames={{ input: "mono" }}
						size="xs"
					/>
				) : wrong ? (
					<Text c="red" fz="sm">
						What you chose cannot be read: {wrong}
					</Text>
				) : (
					<pre className="code" style={{ maxHeight: 420, padding: 4 }}>
						{stringify(resolved ?? wish)}
					</pre>
				)}
				{wrong && (
					<Button
						mt={6}
						size="compact-xs"
						variant="default"
						onClick={() => {
							setText(stringify(wish));
							setWrong(null);
						}}
					>
						Give this text up, take the form's
					</Button>
				)}
			</div>
			<div className="panel" style={{ padding: 12, marginTop: 12 }}>
				<Group justify="space-between" mb={4}>
					<Title order={2}>In a terminal</Title>
					<Copy value={command} what="command" />
				</Group>
				<Text className="mono" fz="xs" style={{ overflowWrap: "anywhere" }} data-testid="command">
					{command}
				</Text>
			</div>
		</>
	);
}

function Copy({ value, what }: { value: string; what: string }) {
	return (
		<CopyButton value={value}>
			{({ copied, copy }) => (
				<Tooltip label={copied ? "Copied" : `Copy the ${what}`}>
					<ActionIcon variant="default" aria-label={`Copy the ${what}`} onClick={copy}>
						<Icon name={copied ? "check" : "copy"} size={14} />
					</ActionIcon>
				</Tooltip>
			)}
		</CopyButton>
	);
}

function read(text: string): unknown {
	try {
		return parse(text);
	} catch {
		return undefined;
	}
}

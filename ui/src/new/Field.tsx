/** One field of a schema, as a control; says what is wrong with it in place and keeps what was typed. */

import { Select, Switch, TextInput } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import { fault, kindOf, read, type Schema, same, typed } from "./schema";

interface Props {
	name: string;
	schema: Schema;
	value: unknown;
	onChange: (value: unknown) => void;
	onFault?: (fault: string | null) => void;
	/** What the server says is wrong with it. */
	refused?: string | null;
	disabled?: boolean;
	label?: string;
	hint?: string;
}

/** learning_rate → Learning rate */
export const spoken = (name: string) => (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll("_", " ");

export function Field({ name, schema, value, onChange, onFault, refused, disabled, label, hint }: Props) {
	const [text, setText] = useState(typed(value));
	const [wrong, setWrong] = useState<string | null>(null);
	const latest = useRef({ text, schema, value, onFault });
	latest.current = { text, schema, value, onFault };
	const told = JSON.stringify(value);
	// biome-ignore lint/correctness/useExhaustiveDependencies: only another value takes the place of what was typed
	useEffect(() => {
		const { text, schema, value } = latest.current;
		if (reads(text, schema, value)) return;
		setText(typed(value));
		setWrong(null);
	}, [told]);
	// a field that is gone is not wrong any more
	useEffect(() => {
		latest.current.onFault?.(wrong);
		return () => latest.current.onFault?.(null);
	}, [wrong]);
	const title = label ?? spoken(name);
	const about = hint ?? schema.description?.replaceAll("`", "");
	if (kindOf(schema) === "switch")
		return (
			<Switch
				size="xs"
				label={title}
				description={about}
				checked={value === true}
				disabled={disabled}
				error={refused}
				onChange={(event) => onChange(event.currentTarget.checked)}
			/>
		);
	if (kindOf(schema) === "choice")
		return (
			<Select
				label={title}
				description={about}
				data={schema.enum?.map(String) ?? []}
				value={String(value)}
				allowDeselect={false}
				disabled={disabled}
				error={refused}
				onChange={(chosen) => onChange(schema.enum?.find((one) => String(one) === chosen))}
			/>
		);
	function change(now: string) {
		setText(now);
		let problem: string | null;
		try {
			const meant = read(now, schema);
			problem = fault(meant, schema);
			if (!problem && !same(meant, value)) onChange(meant);
		} catch (error) {
			problem = (error as Error).message;
		}
		setWrong(problem);
	}
	return (
		<TextInput
			label={title}
			description={about}
			value={text}
			disabled={disabled}
			placeholder={schema.anyOf?.some((one) => one.type === "null") ? "none" : undefined}
			error={wrong ? `${title} ${wrong}` : refused}
			onChange={(event) => change(event.currentTarget.value)}
			spellCheck={false}
			autoComplete="off"
		/>
	);
}

function reads(text: string, schema: Schema, value: unknown): boolean {
	try {
		return same(read(text, schema), value);
	} catch {
		return false;
	}
}

import { useDebouncedCallback } from "@mantine/hooks";
import { useEffect, useRef, useState } from "react";

const SETTLE_MS = 250;

/**
 * The text of a field whose value stands in the address. It is applied once typing rests, trimmed; what comes back
 * from there changes the text only if it is not what was applied: one may have typed on meanwhile.
 */
export function useTyped(
	value: string | undefined,
	apply: (value: string | undefined) => void,
): [string, (text: string) => void] {
	const [typed, setTyped] = useState(value ?? "");
	const applied = useRef(value ?? "");
	const applyLater = useDebouncedCallback((text: string) => {
		applied.current = text.trim();
		apply(applied.current || undefined);
	}, SETTLE_MS);
	useEffect(() => {
		if ((value ?? "") === applied.current) return;
		applied.current = value ?? "";
		setTyped(value ?? "");
	}, [value]);
	const type = (text: string) => {
		setTyped(text);
		applyLater(text);
	};
	return [typed, type];
}

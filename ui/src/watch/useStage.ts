/** The stage in React: it plays while somebody looks, and rests while the tab is hidden or paused. */

import { useCallback, useEffect, useRef, useState } from "react";
import { token } from "../api/session";
import { askWhetherSignedIn } from "../live/live";
import { type Connection, LIVE, type Refusal, type Shown, Stage } from "./stage";

/** A slider passes many checkpoints on its way; each would start a process. */
const SETTLE_MS = 250;
/** What the server refuses for now is asked for again. */
const AGAIN_MS = 3000;
const PASSING = [409, 503];

export function useStage(run: string, source: string, playing: boolean) {
	const canvas = useRef<HTMLCanvasElement>(null);
	const stage = useRef<Stage | null>(null);
	const [shown, setShown] = useState<Shown | null>(null);
	const [refusal, setRefusal] = useState<Refusal | null>(null);
	const [connection, setConnection] = useState<Connection>("connecting");
	const visible = useVisible();
	const on = playing && visible;
	const wanted = useRef(source);
	wanted.current = source;

	useEffect(() => {
		if (!on) return;
		const made = new Stage({
			open: (address) => new WebSocket(address),
			address: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/watch`,
			token,
			run,
			show: (told, picture) => {
				setRefusal(null);
				if (picture === null) return setShown(told);
				draw(canvas.current, picture).then(
					() => setShown(told), // together with its picture
					() => {}, // half a picture: the next comes in a moment
				);
			},
			refuse: setRefusal,
			become: setConnection,
			refused: askWhetherSignedIn,
		});
		stage.current = made;
		made.watch(wanted.current);
		const again = () => made.connect();
		window.addEventListener("online", again);
		return () => {
			window.removeEventListener("online", again);
			stage.current = null;
			made.close();
		};
	}, [run, on]);

	const again = useCallback(() => {
		setShown(null);
		setRefusal(null);
		stage.current?.watch(wanted.current);
	}, []);

	const first = useRef(true);
	// biome-ignore lint/correctness/useExhaustiveDependencies: another source is another play
	useEffect(() => {
		if (first.current) {
			first.current = false;
			return;
		}
		const timer = setTimeout(again, SETTLE_MS);
		return () => clearTimeout(timer);
	}, [source, again]);

	useEffect(() => {
		if (!refusal || !PASSING.includes(refusal.status) || !on) return;
		const timer = setTimeout(() => stage.current?.watch(wanted.current), AGAIN_MS);
		return () => clearTimeout(timer);
	}, [refusal, on]);

	return { canvas, shown, refusal, connection, again };
}

async function draw(canvas: HTMLCanvasElement | null, picture: Blob): Promise<void> {
	if (!canvas) return;
	const bitmap = await createImageBitmap(picture);
	if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) {
		canvas.width = bitmap.width;
		canvas.height = bitmap.height;
	}
	canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
	bitmap.close(); // now, not when somebody collects it
}

function useVisible(): boolean {
	const [visible, setVisible] = useState(!document.hidden);
	useEffect(() => {
		const look = () => setVisible(!document.hidden);
		document.addEventListener("visibilitychange", look);
		return () => document.removeEventListener("visibilitychange", look);
	}, []);
	return visible;
}

/** Checkpoints oldest first, then what is being learned now; one that is watched stays though it was let go. */
export function stops(versions: string[], source: string): string[] {
	const all = new Set(versions);
	if (source !== LIVE) all.add(source);
	return [...[...all].sort(byVersion), LIVE];
}

function byVersion(one: string, other: string): number {
	const [epoch = 0, step = 0] = one.split(".").map(Number);
	const [otherEpoch = 0, otherStep = 0] = other.split(".").map(Number);
	return epoch - otherEpoch || step - otherStep;
}

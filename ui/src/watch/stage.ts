/** A policy at play: one WebSocket that comes back by itself; each message is facts, most have a picture. */

import { backOff } from "../live/feed";

/** As the server tells it (docs/live.md). */
export interface Shown {
	state: "waiting" | "playing" | "failed";
	words: string;
	version: string;
	environment_steps: number;
	episode: number;
	step: number;
	total_reward: number | null;
	ended: boolean;
	returns: (number | null)[];
	width: number;
	height: number;
}

export interface Refusal {
	status: number;
	detail: string;
}

export const LIVE = "live";
export type Connection = "connecting" | "open" | "offline" | "refused";

interface Parts {
	open: (address: string) => WebSocket;
	address: string;
	token: () => string | null;
	run: string;
	show: (shown: Shown, picture: Blob | null) => void;
	refuse: (refusal: Refusal) => void;
	become: (connection: Connection) => void;
	/** Called when the server closed the connection for its rules: the token may be why. */
	refused?: () => void;
	backOff?: (attempt: number) => number;
}

/** Nothing for so long: ask again, and give the connection up where that is not answered either. */
const SILENCE_SECONDS = 10;
const ANSWER_SECONDS = 5;
const HEADER_BYTES = 8;
const MOST_FACTS = 16 << 10;

export class Stage {
	private socket: WebSocket | null = null;
	private source: string | null = null;
	private welcome = false;
	private watching = false;
	/** Whether messages are to come by themselves; a play that failed says nothing more. */
	private expecting = false;
	private attempt = 0;
	private retry: ReturnType<typeof setTimeout> | undefined;
	private silence: ReturnType<typeof setTimeout> | undefined;
	private closed = false;

	constructor(private readonly parts: Parts) {}

	/** Show this from now on; asking again for the same begins it anew where it had ended. */
	watch(source: string): void {
		this.source = source;
		this.watching = false;
		if (this.welcome) this.ask();
		else this.connect();
	}

	connect(): void {
		if (this.closed || this.socket) return;
		clearTimeout(this.retry);
		if (this.attempt === 0) this.parts.become("connecting"); // else what it was is told until it is open
		const socket = this.parts.open(this.parts.address);
		socket.binaryType = "arraybuffer";
		this.socket = socket;
		socket.onopen = () => {
			socket.send(JSON.stringify({ type: "hello", token: this.parts.token() ?? "" }));
			this.waitForSigns();
		};
		socket.onmessage = (event) => {
			if (this.socket === socket) this.hear(event.data);
		};
		socket.onclose = (event) => this.lost(socket, event.code);
	}

	/** End it: nobody looks any more. */
	close(): void {
		this.closed = true;
		clearTimeout(this.retry);
		clearTimeout(this.silence);
		this.socket?.close();
		this.socket = null;
	}

	private ask(): void {
		this.socket?.send(JSON.stringify({ type: "watch", run: this.parts.run, source: this.source }));
	}

	private hear(data: unknown): void {
		this.waitForSigns();
		if (typeof data === "string") {
			this.hearWords(JSON.parse(data));
			return;
		}
		if (!(data instanceof ArrayBuffer) || !this.watching) return; // of what was watched before
		const told = decode(data);
		if (!told) return;
		this.expecting = told.shown.state !== "failed";
		this.parts.show(told.shown, told.picture);
	}

	private hearWords(message: { type: string; status?: number; detail?: string; source?: string }): void {
		if (message.type === "welcome") {
			this.welcome = true;
			this.attempt = 0;
			this.parts.become("open");
			if (this.source !== null) this.ask();
		} else if (message.type === "watching") this.watching = this.expecting = true;
		else if (message.type === "error") {
			this.expecting = false;
			this.parts.refuse({ status: message.status ?? 0, detail: message.detail ?? "" });
		}
	}

	private waitForSigns(): void {
		clearTimeout(this.silence);
		this.silence = setTimeout(() => {
			if (this.welcome && this.expecting) this.ask();
			else if (this.welcome) this.socket?.send(JSON.stringify({ type: "ping" }));
			this.silence = setTimeout(() => {
				const socket = this.socket;
				if (!socket) return;
				this.lost(socket, 1006);
				socket.close();
			}, ANSWER_SECONDS * 1000);
		}, SILENCE_SECONDS * 1000);
	}

	private lost(socket: WebSocket, code: number): void {
		if (this.socket !== socket) return;
		this.socket = null;
		clearTimeout(this.silence);
		this.welcome = this.watching = this.expecting = false;
		if (this.closed) return;
		this.parts.become(code === 1008 ? "refused" : "offline");
		if (code === 1008) this.parts.refused?.();
		const seconds = (this.parts.backOff ?? backOff)(this.attempt++);
		this.retry = setTimeout(() => this.connect(), seconds * 1000);
	}
}

/** The facts and the picture of a message; null for what is none. */
export function decode(data: ArrayBuffer): { shown: Shown; picture: Blob | null } | null {
	if (data.byteLength < HEADER_BYTES) return null;
	const sizes = new DataView(data);
	const facts = sizes.getUint32(0);
	const picture = sizes.getUint32(4);
	if (facts > MOST_FACTS || data.byteLength !== HEADER_BYTES + facts + picture) return null;
	const shown = JSON.parse(new TextDecoder().decode(new Uint8Array(data, HEADER_BYTES, facts))) as Shown;
	const content = new Uint8Array(data, HEADER_BYTES + facts, picture);
	return { shown, picture: picture ? new Blob([content], { type: "image/jpeg" }) : null };
}

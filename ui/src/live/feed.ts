/** The live feed: one WebSocket that comes back by itself, goes on where it was, and says when news was lost. */

export type Kind = "states" | "metrics" | "logs" | "events";

export interface News {
	seq: number;
	kind: Kind | "removed";
	run: string;
	at: number;
	[field: string]: unknown;
}

export interface Gap {
	kinds: Kind[];
	runs: string[] | "*";
}

export type Status = "connecting" | "open" | "offline" | "refused";

interface Listener {
	kind: Kind;
	run: string;
	news: (news: News) => void;
	gap: () => void;
}

interface Parts {
	open: (address: string) => WebSocket;
	address: string;
	token: () => string | null;
	/** Called when the server closed the connection for its rules: the token may be why. */
	refused?: () => void;
	/** Seconds to wait before attempt n. */
	backOff?: (attempt: number) => number;
}

const SILENCE_SECONDS = 20;
const LONGEST_WAIT_SECONDS = 10;
/** A run that was just asked for has no folder yet: the server knows it a moment later. */
const UNKNOWN_SECONDS = 1;
const MOST_REFUSALS = 60;

export const backOff = (attempt: number) =>
	Math.min(LONGEST_WAIT_SECONDS, 0.25 * 2 ** attempt) * (0.75 + Math.random() / 2);

/** What the server said, as a sentence of its own. */
export function sentence(detail: unknown): string {
	const words = String(detail ?? "").trim();
	return words && `${words.charAt(0).toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;
}

export class Feed {
	status: Status = "connecting";
	name = "";
	role = "";
	/** What the server said when it refused. */
	words = "";
	private socket: WebSocket | null = null;
	private listeners = new Set<Listener>();
	private watchers = new Set<() => void>();
	private feed: string | null = null;
	private seq = 0;
	private attempt = 0;
	private everOpen = false;
	/** Topic → how often the server did not know its run. */
	private refusals = new Map<string, number>();
	private retry: ReturnType<typeof setTimeout> | undefined;
	private silence: ReturnType<typeof setTimeout> | undefined;
	private closed = false;

	constructor(private readonly parts: Parts) {}

	connect(): void {
		if (this.closed || this.socket) return;
		clearTimeout(this.retry);
		const socket = this.parts.open(this.parts.address);
		this.socket = socket;
		socket.onopen = () => this.greet(socket);
		socket.onmessage = (event) => this.hear(String(event.data));
		socket.onclose = (event) => this.lost(socket, event.code);
	}

	close(): void {
		this.closed = true;
		clearTimeout(this.retry);
		clearTimeout(this.silence);
		this.socket?.close();
		this.socket = null;
	}

	/** Be told of one kind of news of one run ("*": all); returns how to end it. */
	listen(kind: Kind, run: string, news: (news: News) => void, gap: () => void): () => void {
		const listener = { kind, run, news, gap };
		const known = this.watched(kind, run);
		this.listeners.add(listener);
		if (!known) this.subscribe(kind, run);
		return () => {
			this.listeners.delete(listener);
			if (!this.watched(kind, run))
				this.say({ type: "unsubscribe", kinds: [kind], runs: run === "*" ? "*" : [run] });
		};
	}

	onStatus(watcher: () => void): () => void {
		this.watchers.add(watcher);
		return () => this.watchers.delete(watcher);
	}

	private greet(socket: WebSocket): void {
		socket.send(JSON.stringify({ type: "hello", token: this.parts.token() ?? "" }));
		this.waitForSigns();
	}

	private hear(text: string): void {
		this.waitForSigns();
		const message = JSON.parse(text);
		if (message.type === "welcome") this.welcomed(message);
		else if (message.type === "batch") this.batch(message);
		else if (message.type === "gap") this.gap(message);
		else if (message.type === "error" && message.status === 404) this.unknown(message.id);
		else if (message.type === "error") this.words = sentence(message.detail);
		else if (message.type === "subscribed") this.known(message.id);
	}

	private subscribe(kind: Kind, run: string, missed: object = {}): void {
		const id = `${kind} ${run}`;
		this.say({ type: "subscribe", id, kinds: [kind], runs: run === "*" ? "*" : [run], ...missed });
	}

	private unknown(id: string | undefined): void {
		const [kind, run] = (id ?? "").split(" ") as [Kind, string?];
		const refusals = (this.refusals.get(id ?? "") ?? 0) + 1;
		if (!id || !run || refusals > MOST_REFUSALS) return;
		this.refusals.set(id, refusals);
		setTimeout(() => this.watched(kind, run) && this.subscribe(kind, run), UNKNOWN_SECONDS * 1000);
	}

	/** What was written before it was known is asked for anew. */
	private known(id: string | undefined): void {
		if (!this.refusals.delete(id ?? "")) return;
		for (const listener of [...this.listeners]) if (id === `${listener.kind} ${listener.run}`) listener.gap();
	}

	private welcomed(message: { feed: string; seq: number; name: string; role: string }): void {
		this.name = message.name;
		this.role = message.role;
		const missed = this.everOpen ? { since: this.seq, feed: this.feed } : {};
		if (!this.everOpen) this.seq = message.seq;
		this.feed = message.feed;
		this.everOpen = true;
		this.attempt = 0;
		for (const [kind, runs] of this.topics())
			for (const run of runs.has("*") ? ["*"] : runs) this.subscribe(kind, run, missed);
		this.become("open");
	}

	private batch(message: { seq: number; messages: News[] }): void {
		this.seq = message.seq;
		for (const news of message.messages)
			for (const listener of [...this.listeners])
				if (
					(listener.run === "*" || listener.run === news.run) &&
					(news.kind === "removed" || listener.kind === news.kind)
				)
					listener.news(news);
	}

	private gap(message: Gap & { seq: number }): void {
		this.seq = message.seq;
		for (const listener of [...this.listeners]) {
			const runs = message.runs;
			if (!message.kinds.includes(listener.kind)) continue;
			if (runs === "*" || listener.run === "*" || runs.includes(listener.run)) listener.gap();
		}
	}

	private lost(socket: WebSocket, code: number): void {
		if (this.socket !== socket) return;
		this.socket = null;
		clearTimeout(this.silence);
		if (this.closed) return;
		this.become(code === 1008 ? "refused" : "offline");
		if (code === 1008) this.parts.refused?.();
		const seconds = (this.parts.backOff ?? backOff)(this.attempt++);
		this.retry = setTimeout(() => this.connect(), seconds * 1000);
	}

	/** Ask for a sign of life when nothing came for a while, and give the connection up when none comes. */
	private waitForSigns(): void {
		clearTimeout(this.silence);
		this.silence = setTimeout(() => {
			this.say({ type: "ping" });
			this.silence = setTimeout(() => {
				const socket = this.socket;
				if (!socket) return;
				this.lost(socket, 1006);
				socket.close();
			}, 5000);
		}, SILENCE_SECONDS * 1000);
	}

	private topics(): Map<Kind, Set<string>> {
		const topics = new Map<Kind, Set<string>>();
		for (const { kind, run } of this.listeners) topics.set(kind, (topics.get(kind) ?? new Set()).add(run));
		return topics;
	}

	private watched(kind: Kind, run: string): boolean {
		for (const listener of this.listeners) if (listener.kind === kind && listener.run === run) return true;
		return false;
	}

	private say(message: object): void {
		if (this.socket?.readyState === 1 && this.feed !== null) this.socket.send(JSON.stringify(message));
	}

	private become(status: Status): void {
		if (this.status === status) return;
		this.status = status;
		for (const watcher of [...this.watchers]) watcher();
	}
}

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Feed } from "./feed";

class FakeSocket {
	static all: FakeSocket[] = [];
	readyState = 0;
	sent: Record<string, unknown>[] = [];
	onopen?: () => void;
	onmessage?: (event: { data: string }) => void;
	onclose?: (event: { code: number }) => void;
	constructor() {
		FakeSocket.all.push(this);
	}
	send(text: string) {
		this.sent.push(JSON.parse(text));
	}
	close() {
		this.readyState = 3;
	}
	open() {
		this.readyState = 1;
		this.onopen?.();
	}
	tell(message: object) {
		this.onmessage?.({ data: JSON.stringify(message) });
	}
	drop(code: number) {
		this.readyState = 3;
		this.onclose?.({ code });
	}
}

const newest = () => FakeSocket.all.at(-1) as FakeSocket;
const WELCOME = { type: "welcome", feed: "f1", seq: 10, name: "owner", role: "admin" };

function begin(refused?: () => void) {
	const feed = new Feed({
		open: () => new FakeSocket() as unknown as WebSocket,
		address: "ws://here/api/v1/live",
		token: () => "pst_secret",
		backOff: () => 1,
		refused,
	});
	feed.connect();
	newest().open();
	newest().tell(WELCOME);
	return feed;
}

beforeEach(() => {
	vi.useFakeTimers();
	FakeSocket.all = [];
});
afterEach(() => vi.useRealTimers());

test("the token travels in the first message and nowhere else", () => {
	const feed = begin();
	expect(newest().sent[0]).toEqual({ type: "hello", token: "pst_secret" });
	expect(feed.status).toBe("open");
	expect(feed.role).toBe("admin");
});

test("news reach those who listen to that run and kind", () => {
	const feed = begin();
	const one = vi.fn();
	const all = vi.fn();
	feed.listen("metrics", "a", one, () => {});
	feed.listen("states", "*", all, () => {});
	newest().tell({
		type: "batch",
		seq: 13,
		messages: [
			{ seq: 11, kind: "metrics", run: "a" },
			{ seq: 12, kind: "metrics", run: "b" },
			{ seq: 13, kind: "states", run: "b" },
		],
	});
	expect(one).toHaveBeenCalledTimes(1);
	expect(all).toHaveBeenCalledTimes(1);
});

test("a lost connection comes back and goes on from where it was", () => {
	const feed = begin();
	feed.listen(
		"states",
		"*",
		() => {},
		() => {},
	);
	newest().tell({ type: "batch", seq: 42, messages: [] });
	newest().drop(1012);
	expect(feed.status).toBe("offline");
	vi.advanceTimersByTime(1000);
	expect(FakeSocket.all).toHaveLength(2);
	newest().open();
	newest().tell({ ...WELCOME, seq: 50 });
	expect(feed.status).toBe("open");
	expect(newest().sent.at(-1)).toEqual({
		type: "subscribe",
		id: "states *",
		kinds: ["states"],
		runs: "*",
		since: 42,
		feed: "f1",
	});
});

test("a gap is told to those it concerns", () => {
	const feed = begin();
	const mine = vi.fn();
	const other = vi.fn();
	feed.listen("metrics", "a", () => {}, mine);
	feed.listen("logs", "a", () => {}, other);
	newest().tell({ type: "gap", seq: 60, kinds: ["metrics"], runs: ["a"], reason: "slow" });
	expect(mine).toHaveBeenCalledTimes(1);
	expect(other).not.toHaveBeenCalled();
});

test("one that is refused says so, asks whether it is the token, and comes back", () => {
	const refused = vi.fn();
	const feed = begin(refused);
	newest().tell({ type: "error", status: 401, detail: "this token was revoked" });
	newest().drop(1008);
	expect(feed.status).toBe("refused");
	expect(feed.words).toBe("This token was revoked.");
	expect(refused).toHaveBeenCalledTimes(1);
	vi.advanceTimersByTime(1000);
	newest().open();
	newest().tell(WELCOME);
	expect(feed.status).toBe("open");
});

test("a connection that fell silent is given up", () => {
	const feed = begin();
	vi.advanceTimersByTime(20_000);
	expect(newest().sent.at(-1)).toEqual({ type: "ping" });
	vi.advanceTimersByTime(5000);
	expect(feed.status).toBe("offline");
});

test("ending the last listener ends the subscription", () => {
	const feed = begin();
	const end = feed.listen(
		"logs",
		"a",
		() => {},
		() => {},
	);
	expect(newest().sent.at(-1)).toEqual({ type: "subscribe", id: "logs a", kinds: ["logs"], runs: ["a"] });
	end();
	expect(newest().sent.at(-1)).toEqual({ type: "unsubscribe", kinds: ["logs"], runs: ["a"] });
});

test("a run that is not known yet is asked for again, and what came meanwhile too", () => {
	const feed = begin();
	const gap = vi.fn();
	feed.listen("metrics", "new", () => {}, gap);
	newest().tell({ type: "error", status: 404, id: "metrics new" });
	const before = newest().sent.length;
	vi.advanceTimersByTime(1000);
	expect(newest().sent).toHaveLength(before + 1);
	expect(newest().sent.at(-1)).toMatchObject({ type: "subscribe", kinds: ["metrics"], runs: ["new"] });
	newest().tell({ type: "subscribed", id: "metrics new" });
	expect(gap).toHaveBeenCalledTimes(1);
	newest().tell({ type: "subscribed", id: "metrics new" });
	expect(gap).toHaveBeenCalledTimes(1);
});

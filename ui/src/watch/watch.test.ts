import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Connection, decode, type Refusal, type Shown, Stage } from "./stage";
import { stops } from "./useStage";
import { coverOf, mean } from "./Watch";

class FakeSocket {
	static all: FakeSocket[] = [];
	sent: Record<string, unknown>[] = [];
	closed = false;
	onopen?: () => void;
	onmessage?: (event: { data: unknown }) => void;
	onclose?: (event: { code: number }) => void;
	constructor() {
		FakeSocket.all.push(this);
	}
	send(text: string) {
		this.sent.push(JSON.parse(text));
	}
	close() {
		this.closed = true;
	}
	tell(message: object) {
		this.onmessage?.({ data: JSON.stringify(message) });
	}
}

const newest = () => FakeSocket.all.at(-1) as FakeSocket;
const PLAYING: Shown = {
	state: "playing",
	words: "",
	version: "1.2",
	environment_steps: 5,
	episode: 1,
	step: 3,
	total_reward: 3,
	ended: false,
	returns: [],
	width: 2,
	height: 2,
};

function message(shown: object, picture: number[] = []): ArrayBuffer {
	const facts = new TextEncoder().encode(JSON.stringify(shown));
	const data = new Uint8Array(8 + facts.length + picture.length);
	new DataView(data.buffer).setUint32(0, facts.length);
	new DataView(data.buffer).setUint32(4, picture.length);
	data.set(facts, 8);
	data.set(picture, 8 + facts.length);
	return data.buffer;
}

function begin() {
	const heard = { shown: [] as Shown[], refused: [] as Refusal[], became: [] as Connection[], asked: 0 };
	const stage = new Stage({
		open: () => new FakeSocket() as unknown as WebSocket,
		address: "ws://here/api/v1/watch",
		token: () => "pst_secret",
		run: "pole",
		show: (shown) => heard.shown.push(shown),
		refuse: (refusal) => heard.refused.push(refusal),
		become: (connection) => heard.became.push(connection),
		backOff: () => 1,
		refused: () => heard.asked++,
	});
	stage.watch("live");
	newest().onopen?.();
	newest().tell({ type: "welcome", name: "owner", role: "admin" });
	return { stage, heard };
}

beforeEach(() => {
	vi.useFakeTimers();
	FakeSocket.all = [];
});
afterEach(() => vi.useRealTimers());

test("a message is facts and a picture, and what is none is passed over", async () => {
	const told = decode(message(PLAYING, [255, 216, 255]));
	expect(told?.shown).toEqual(PLAYING);
	expect(told?.picture?.size).toBe(3);
	expect(told?.picture?.type).toBe("image/jpeg");
	expect(decode(message(PLAYING))?.picture).toBeNull();
	expect(decode(new ArrayBuffer(3))).toBeNull();
	expect(decode(message(PLAYING).slice(0, 20))).toBeNull();
});

test("the token travels in the first message, then the wish", () => {
	begin();
	expect(newest().sent).toEqual([
		{ type: "hello", token: "pst_secret" },
		{ type: "watch", run: "pole", source: "live" },
	]);
});

test("pictures of what was watched before are not shown", () => {
	const { stage, heard } = begin();
	newest().tell({ type: "watching", run: "pole", source: "live" });
	newest().onmessage?.({ data: message(PLAYING) });
	stage.watch("1.1");
	newest().onmessage?.({ data: message({ ...PLAYING, step: 4 }) });
	newest().tell({ type: "watching", run: "pole", source: "1.1" });
	newest().onmessage?.({ data: message({ ...PLAYING, step: 1, version: "1.1" }) });
	expect(heard.shown.map((shown) => [shown.version, shown.step])).toEqual([
		["1.2", 3],
		["1.1", 1],
	]);
});

test("a lost connection comes back and watches the same again", () => {
	const { stage, heard } = begin();
	stage.watch("1.1");
	newest().onclose?.({ code: 1012 });
	expect(heard.became.at(-1)).toBe("offline");
	vi.advanceTimersByTime(1000);
	newest().onopen?.();
	newest().tell({ type: "welcome" });
	expect(FakeSocket.all).toHaveLength(2);
	expect(newest().sent.at(-1)).toEqual({ type: "watch", run: "pole", source: "1.1" });
	expect(heard.became.at(-1)).toBe("open");
});

test("a play that fell silent is asked for again, then the connection is given up", () => {
	const { heard } = begin();
	newest().tell({ type: "watching", run: "pole", source: "live" });
	newest().onmessage?.({ data: message(PLAYING) });
	vi.advanceTimersByTime(10_000);
	expect(newest().sent).toHaveLength(3);
	expect(newest().sent.at(-1)).toEqual({ type: "watch", run: "pole", source: "live" });
	vi.advanceTimersByTime(5000);
	expect(heard.became.at(-1)).toBe("offline");
	vi.advanceTimersByTime(1000);
	expect(FakeSocket.all).toHaveLength(2);
});

test("a play that failed is not begun again by itself", () => {
	begin();
	newest().tell({ type: "watching", run: "pole", source: "live" });
	newest().onmessage?.({ data: message({ ...PLAYING, state: "failed" }) });
	vi.advanceTimersByTime(10_000);
	expect(newest().sent.at(-1)).toEqual({ type: "ping" });
});

test("a revoked token is asked about, in the server's words", () => {
	const { heard } = begin();
	newest().tell({ type: "error", status: 401, detail: "this token was revoked" });
	newest().onclose?.({ code: 1008 });
	expect(heard.asked).toBe(1);
	expect(heard.became.at(-1)).toBe("refused");
	expect(coverOf(true, "refused", PLAYING, heard.refused[0] ?? null)).toMatchObject({
		title: "The server refuses",
		words: "This token was revoked. It is tried again.",
	});
});

test("a refusal is told, and one who is closed asks no more", () => {
	const { stage, heard } = begin();
	newest().tell({ type: "error", status: 503, detail: "4 are watched already" });
	expect(heard.refused).toEqual([{ status: 503, detail: "4 are watched already" }]);
	stage.close();
	expect(newest().closed).toBe(true);
	newest().onclose?.({ code: 1006 });
	vi.advanceTimersByTime(60_000);
	expect(FakeSocket.all).toHaveLength(1);
});

test("the slider goes from the oldest checkpoint to live, and keeps what is watched", () => {
	expect(stops(["1.100", "1.20", "2.3"], "live")).toEqual(["1.20", "1.100", "2.3", "live"]);
	expect(stops(["1.100"], "1.7")).toEqual(["1.7", "1.100", "live"]);
	expect(stops([], "live")).toEqual(["live"]);
});

test("each state has its words, and playing has none", () => {
	const words = (...given: Parameters<typeof coverOf>) => coverOf(...given)?.title ?? null;
	expect(words(true, "open", PLAYING, null)).toBeNull();
	expect(words(true, "open", null, null)).toBe("Getting ready");
	expect(words(false, "open", PLAYING, null)).toBe("Paused");
	expect(words(true, "offline", PLAYING, null)).toBe("The connection is lost");
	expect(words(true, "open", PLAYING, { status: 503, detail: "full" })).toBe("Not now");
	expect(words(true, "open", null, { status: 404, detail: "gone" })).toBe("This cannot be watched");
	const failed = { ...PLAYING, state: "failed" as const, words: "it cannot draw itself" };
	expect(coverOf(true, "open", failed, null)).toEqual({
		kind: "broken",
		title: "The play has ended",
		words: "it cannot draw itself",
	});
});

test("the mean leaves out what is no number", () => {
	expect(mean([1, null, 3])).toBe(2);
	expect(mean([null])).toBeNull();
});

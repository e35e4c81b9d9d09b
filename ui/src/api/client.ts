/** The server's REST interface, typed by its own OpenAPI document. */

import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";
import { forgetToken, token } from "./session";

type Schemas = components["schemas"];
export type RunView = Schemas["RunView"];
export type RunDetail = Schemas["RunDetail"];
export type RunState = RunView["state"];
export type ActorView = Schemas["ActorView"];
export type CommandView = Schemas["CommandView"];
export type EvaluationView = Schemas["EvaluationView"];
export type CheckpointView = Schemas["CheckpointView"];
export type RecordingView = Schemas["RecordingView"];
export type AlgorithmView = Schemas["AlgorithmView"];
export type Comparison = Schemas["Comparison"];
export type EnvironmentDetail = Schemas["EnvironmentDetail"];
export type Metrics = Schemas["Metrics"];
export type LogLines = Schemas["Logs"];
export type Role = Schemas["Role"];

/** Something the server refused, in its own words; status 0 when it could not be reached. */
export class Problem extends Error {
	constructor(
		readonly status: number,
		readonly title: string,
		detail: string,
		readonly items: { where: string; detail: string }[] = [],
	) {
		super(detail);
	}
}

/** What waits behind the sign-in must not ask the server again and again without a token. */
const SIGNED_OUT = () =>
	Response.json(
		{ title: "Not signed in", detail: "Sign in again; then this is asked anew." },
		{ status: 401 },
	);

const secrets: Middleware = {
	onRequest({ request }) {
		const secret = token();
		if (secret === null) return SIGNED_OUT();
		request.headers.set("Authorization", `Bearer ${secret}`);
		if (request.method !== "GET" && !request.headers.has("Idempotency-Key"))
			request.headers.set("Idempotency-Key", randomKey());
		return request;
	},
	onResponse({ request, response }) {
		const asked = request.headers.get("Authorization");
		if (response.status === 401 && asked === `Bearer ${token()}`) forgetToken("expired");
		return undefined;
	},
};

export const api = createClient<paths>({ baseUrl: globalThis.location?.origin ?? "http://localhost" });
api.use(secrets);

interface Answer<T> {
	data?: T;
	error?: unknown;
	response: Response;
}

/** The data of an answer; throw Problem for everything else. */
export async function ask<T>(answer: Promise<Answer<T>>): Promise<T> {
	let got: Answer<T>;
	try {
		got = await answer;
	} catch (error) {
		if (error instanceof DOMException && error.name === "AbortError") throw error;
		throw new Problem(0, "No connection", "The server does not answer. It may be restarting.");
	}
	if (got.response.ok) return got.data as T;
	throw problemOf(got.response.status, got.error);
}

export function problemOf(status: number, body: unknown): Problem {
	if (body && typeof body === "object" && "detail" in body) {
		const said = body as {
			title?: string;
			detail: unknown;
			errors?: { where: string; detail: string }[] | null;
		};
		return new Problem(status, said.title ?? "Refused", String(said.detail), said.errors ?? []);
	}
	return new Problem(status, `Status ${status}`, "The server gave no reason; its log has more.");
}

/** 16 random bytes as hex; crypto.randomUUID would need a secure context. */
export function randomKey(): string {
	const bytes = crypto.getRandomValues(new Uint8Array(16));
	return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Fetch a file that needs the token and hand it to the browser to keep. */
export async function download(path: string, name: string): Promise<void> {
	const response = await fetch(path, { headers: { Authorization: `Bearer ${token() ?? ""}` } });
	if (response.status === 401) forgetToken("expired");
	if (!response.ok) throw problemOf(response.status, await response.json().catch(() => null));
	const address = URL.createObjectURL(await response.blob());
	const link = document.createElement("a");
	link.href = address;
	link.download = name;
	link.click();
	setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

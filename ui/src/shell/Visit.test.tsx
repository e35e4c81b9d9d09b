import { MantineProvider } from "@mantine/core";
import { QueryClient } from "@tanstack/react-query";
import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { forgetToken, hearTab, keepToken, token } from "../api/session";
import { Visit } from "./Visit";

/** A feed that knows whose token it is: pst_NAME_1 is NAME's. */
class FakeSocket {
	readyState = 1;
	onopen?: () => void;
	onmessage?: (event: { data: string }) => void;
	constructor() {
		queueMicrotask(() => this.onopen?.());
	}
	send(text: string) {
		const name = JSON.parse(text).token?.split("_")[1];
		if (!name) return;
		const welcome = { type: "welcome", feed: "f", seq: 0, name, role: "operator" };
		queueMicrotask(() => act(() => this.onmessage?.({ data: JSON.stringify(welcome) })));
	}
	close() {}
}

const settle = () => act(() => new Promise((resolve) => setTimeout(resolve, 20)));

async function typing(secret: string) {
	keepToken(secret, false);
	render(
		<MantineProvider>
			<Visit makeQueries={() => new QueryClient()}>
				<input aria-label="Note" />
			</Visit>
		</MantineProvider>,
	);
	await settle();
	await userEvent.type(screen.getByLabelText("Note"), "half a thought");
}

beforeEach(() => {
	forgetToken("left");
	vi.stubGlobal("WebSocket", FakeSocket);
});
afterEach(() => vi.unstubAllGlobals());

test("a token that expires keeps what was typed, hidden until the same person is back", async () => {
	await typing("pst_ann_1");
	act(() => forgetToken("expired"));
	expect(screen.getByText(/no longer valid/)).toBeInTheDocument();
	expect(screen.getByLabelText("Note")).not.toBeVisible();
	act(() => keepToken("pst_ann_2", false));
	await settle();
	expect(screen.getByLabelText("Note")).toBeVisible();
	expect(screen.getByLabelText("Note")).toHaveValue("half a thought");
	expect(screen.queryByLabelText("Token")).toBeNull();
});

test("another person finds nothing of it", async () => {
	await typing("pst_ann_1");
	act(() => forgetToken("expired"));
	act(() => keepToken("pst_bob_1", false));
	expect(screen.getByLabelText("Note")).not.toBeVisible(); // not before it is known who it is
	await settle();
	expect(screen.getByLabelText("Note")).toBeVisible();
	expect(screen.getByLabelText("Note")).toHaveValue("");
});

test("who signs out is not told of an invalid token, and leaves nothing", async () => {
	await typing("pst_ann_1");
	act(() => forgetToken("left"));
	expect(screen.getByLabelText("Token")).toBeInTheDocument();
	expect(screen.queryByText(/no longer valid/)).toBeNull();
	expect(screen.queryByLabelText("Note")).toBeNull();
});

test("who signs out in one tab is out in all", async () => {
	await typing("pst_ann_1");
	act(() => hearTab({ key: "penstock.out", newValue: "1" }));
	expect(token()).toBeNull();
	expect(sessionStorage.getItem("penstock.token")).toBeNull();
	expect(screen.queryByLabelText("Note")).toBeNull();
	expect(screen.queryByText(/no longer valid/)).toBeNull();
});

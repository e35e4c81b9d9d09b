import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { forgetToken, token } from "../api/session";
import { SignIn } from "./SignIn";

const show = () =>
	render(
		<MantineProvider>
			<SignIn expired={false} />
		</MantineProvider>,
	);
const answer = (status: number) =>
	vi.stubGlobal(
		"fetch",
		vi.fn(async () => new Response("{}", { status })),
	);

beforeEach(() => forgetToken("left"));
afterEach(() => vi.unstubAllGlobals());

async function signIn(secret: string) {
	await userEvent.type(screen.getByLabelText("Token"), secret);
	await userEvent.click(screen.getByRole("button", { name: "Sign in" }));
}

test("a right token is kept for this tab only", async () => {
	answer(200);
	show();
	await signIn(" pst_right ");
	expect(token()).toBe("pst_right");
	expect(sessionStorage.getItem("penstock.token")).toBe("pst_right");
	expect(localStorage.getItem("penstock.token")).toBeNull();
});

test("it is remembered when asked for", async () => {
	answer(200);
	show();
	await userEvent.click(screen.getByLabelText(/Remember/));
	await signIn("pst_right");
	expect(localStorage.getItem("penstock.token")).toBe("pst_right");
});

test("a wrong token is refused in words, and what was typed stays", async () => {
	answer(401);
	show();
	await signIn("pst_wrong");
	expect(await screen.findByText(/not known here/)).toBeInTheDocument();
	expect(screen.getByLabelText("Token")).toHaveValue("pst_wrong");
	expect(token()).toBeNull();
});

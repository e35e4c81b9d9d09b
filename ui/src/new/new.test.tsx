import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { Field } from "./Field";
import { fitting, misfit } from "./fit";
import { SpecText } from "./SpecText";
import { fault, read, type Schema } from "./schema";
import { commandLine, difference, placeOf, withValue } from "./wish";

const RATE: Schema = {
	anyOf: [
		{ type: "number", exclusiveMinimum: 0 },
		{ type: "string", pattern: "^lin_[0-9.]+(e-?[0-9]+)?$" },
	],
	default: 3e-4,
};
const NO_LABELS = { name: "", project: "", tags: [], note: "", seeds: 1 };

test("texts are read as the schema means them", () => {
	expect(read("1e-4", RATE)).toBe(1e-4);
	expect(read("lin_2e-3", RATE)).toBe("lin_2e-3");
	expect(read("", { anyOf: [{ type: "integer" }, { type: "null" }] })).toBeNull();
	expect(read("[64, 64]", { type: "array", items: { type: "integer" } })).toEqual([64, 64]);
	expect(() => read("many", { type: "integer" })).toThrow("whole number");
});

test("an algorithm that cannot choose an environment's actions says so, with others that can", () => {
	const algorithms = [
		{ name: "ppo", summary: "", live: [], actions: ["Discrete", "Box"] },
		{ name: "sac", summary: "", live: [], actions: ["Box"] },
	];
	expect(misfit("sac", "CartPole-v1", "Discrete", algorithms)).toBe(
		"sac needs Box actions; CartPole-v1 has Discrete: use ppo",
	);
	expect(misfit("sac", "Pendulum-v1", "Box", algorithms)).toBeNull();
	expect(misfit("sac", "./mine.py:Mine", undefined, algorithms)).toBeNull();
	expect(misfit("sac", "Odd-v0", "Tuple", algorithms)).toBe("sac needs Box actions; Odd-v0 has Tuple");
	expect(fitting("Box", algorithms)).toEqual(["ppo", "sac"]);
});

test("faults are said in words", () => {
	expect(fault(0, RATE)).toBe("must be more than 0");
	expect(fault("fast", RATE)).toContain("lin_3e-4");
	expect(fault(1.5, { type: "integer" })).toBe("must be a whole number");
	expect(fault(3, { type: "number", maximum: 1 })).toBe("must be at most 1");
	expect(fault(["a"], { type: "array", items: { type: "integer" } })).toBe("item 1 must be a whole number");
	expect(fault(0.5, RATE)).toBeNull();
});

test("short forms become long where a part of them is set", () => {
	expect(withValue({ environment: "CartPole-v1" }, ["environment", "native"], true)).toEqual({
		environment: { id: "CartPole-v1", native: true },
	});
	expect(withValue({ actors: 2 }, ["actors", "rollout"], 64)).toEqual({ actors: { count: 2, rollout: 64 } });
});

test("only what differs from the defaults is kept of another run's spec", () => {
	expect(
		difference({ seed: 2, ppo: { gamma: 0.9, epochs: 4 } }, { seed: 1, ppo: { gamma: 0.9, epochs: 8 } }),
	).toEqual({ seed: 2, ppo: { epochs: 4 } });
});

test("the command line says the same", () => {
	const wish = {
		environment: "CartPole-v1",
		algorithm: "dqn",
		actors: { count: 4 },
		stop: { target: null, steps: 1000 },
		dqn: { learning_rate: 1e-4 },
		network: { hidden: [32, 32] },
	};
	expect(commandLine(wish, { ...NO_LABELS, seeds: 3, tags: ["first try"] })).toBe(
		"penstock start CartPole-v1 --algorithm dqn --actors 4 --set stop.target=null --steps 1000 " +
			"--set dqn.learning_rate=0.0001 --set 'network.hidden=[32,32]' --seeds 3 --tag 'first try'",
	);
});

test("a refusal names its field", () => {
	expect(placeOf("ppo.gamma is 3, but expected float <= 1.0")).toBe("ppo.gamma");
	expect(placeOf("something else broke")).toBeNull();
});

test("a field keeps what was typed and says what is wrong with it", async () => {
	const changed = vi.fn();
	render(
		<MantineProvider>
			<Field name="learning_rate" schema={RATE} value={0.001} onChange={changed} />
		</MantineProvider>,
	);
	const input = screen.getByLabelText("Learning rate");
	await userEvent.clear(input);
	await userEvent.type(input, "-1");
	expect(input).toHaveValue("-1");
	expect(screen.getByText("Learning rate must be more than 0")).toBeInTheDocument();
	expect(changed).not.toHaveBeenCalledWith(-1);
	await userEvent.clear(input);
	await userEvent.type(input, "0.01");
	expect(changed).toHaveBeenLastCalledWith(0.01);
});

test("YAML that cannot be read stays, with the reason, and changes nothing", async () => {
	const wished = vi.fn();
	const faulted = vi.fn();
	render(
		<MantineProvider>
			<SpecText
				wish={{ environment: "CartPole-v1" }}
				resolved={undefined}
				labels={NO_LABELS}
				onWish={wished}
				onFault={faulted}
			/>
		</MantineProvider>,
	);
	const input = screen.getByLabelText("Spec as YAML");
	await userEvent.clear(input);
	await userEvent.click(input);
	await userEvent.paste("environment: [");
	expect(input).toHaveValue("environment: [");
	expect(input).toHaveAccessibleDescription(/./);
	expect(wished).not.toHaveBeenCalled();
	expect(faulted).toHaveBeenLastCalledWith(expect.stringMatching(/./));
	await userEvent.clear(input);
	await userEvent.click(input);
	await userEvent.paste("environment: Acrobot-v1");
	expect(wished).toHaveBeenLastCalledWith({ environment: "Acrobot-v1" });
	expect(faulted).toHaveBeenLastCalledWith(null);
});

test("YAML that is wrong is not overwritten by the form, until it is given up", async () => {
	const show = (seed: number) => (
		<MantineProvider>
			<SpecText
				wish={{ seed }}
				resolved={undefined}
				labels={NO_LABELS}
				onWish={() => {}}
				onFault={() => {}}
			/>
		</MantineProvider>
	);
	const { rerender } = render(show(1));
	const input = screen.getByLabelText("Spec as YAML");
	await userEvent.clear(input);
	await userEvent.click(input);
	await userEvent.paste("seed: [");
	rerender(show(2));
	expect(input).toHaveValue("seed: [");
	await userEvent.click(screen.getByRole("button", { name: /Give this text up/ }));
	expect(input).toHaveValue("seed: 2\n");
});

test("a fault goes with another value and with the field", async () => {
	const faulted = vi.fn();
	const show = (value: number, there = true) => (
		<MantineProvider>
			{there && (
				<Field
					name="learning_rate"
					schema={{ ...RATE }}
					value={value}
					onChange={() => {}}
					onFault={faulted}
				/>
			)}
		</MantineProvider>
	);
	const { rerender } = render(show(1));
	const input = screen.getByLabelText("Learning rate");
	await userEvent.type(input, "x");
	rerender(show(1));
	expect(input).toHaveValue("1x");
	expect(faulted).toHaveBeenLastCalledWith(expect.stringMatching(/./));
	rerender(show(2));
	expect(input).toHaveValue("2");
	expect(faulted).toHaveBeenLastCalledWith(null);
	await userEvent.type(input, "x");
	rerender(show(2, false));
	expect(faulted).toHaveBeenLastCalledWith(null);
});

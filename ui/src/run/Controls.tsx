/** Steering a live run: its state, its actors and its learner. */

import {
	ActionIcon,
	Alert,
	Button,
	Group,
	Loader,
	Menu,
	Modal,
	Slider,
	Stack,
	Switch,
	Text,
} from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { type ActorView, api, ask, type RunDetail, type RunState } from "../api/client";
import { usePerson } from "../live/live";
import { Icon } from "../shell/icons";
import { isPlayedByClients } from "./clients";
import { LabelDialog, ResumeDialog } from "./Dialogs";
import type { Effect, Wish } from "./effects";
import { actorsAlive, evaluated, inState, learnerThere } from "./seen";

export const MOST_ACTORS = 16;

const ALLOWED: Record<string, readonly RunState[]> = {
	stop: ["pending", "running", "paused", "interrupted"],
	pause: ["pending", "running"],
	resume: ["paused", "stopped", "done", "failed", "interrupted"],
	scale: ["pending", "running", "paused"],
	checkpoint: ["running", "paused"],
	delete: ["stopped", "done", "failed", "interrupted"],
};
export const allows = (verb: string, state: RunState) => ALLOWED[verb]?.includes(state) ?? false;

interface Props {
	detail: RunDetail;
	actors: ActorView[] | undefined;
	steer: (wish: Wish) => Promise<boolean>;
}

type Question = "stop" | "delete" | "resume" | "label" | null;

function Buttons({ detail, steer }: Omit<Props, "actors">) {
	const { may } = usePerson();
	const [question, setQuestion] = useState<Question>(null);
	const { run, state } = detail;
	const path = { params: { path: { run } } };
	const operator = may("operator");
	const can = (verb: string) => operator && allows(verb, state);
	const navigate = useNavigate();
	const queries = useQueryClient();

	const pause = () =>
		steer({
			title: "Pause",
			ask: () => ask(api.POST("/api/v1/runs/{run}/pause", path)),
			done: inState("paused"),
		});
	const resume = () =>
		steer({
			title: "Resume",
			ask: () => ask(api.POST("/api/v1/runs/{run}/resume", path)),
			done: inState("running"),
		});
	const stop = () =>
		steer({
			title: "Stop",
			ask: () => ask(api.POST("/api/v1/runs/{run}/stop", path)),
			done: inState("stopped", "done", "failed"),
		});
	const save = () => {
		const before = detail.checkpoint;
		return steer({
			title: "Checkpoint",
			ask: () => ask(api.POST("/api/v1/runs/{run}/checkpoints", path)),
			done: ({ detail }) => detail?.checkpoint !== before,
		});
	};
	const evaluate = () =>
		steer({
			title: "Evaluate the best checkpoint",
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/evaluations", {
						...path,
						body: { checkpoint: "best", episodes: 20, seed: 0 },
					}),
				),
			done: evaluated,
		});
	async function remove() {
		const done = await steer({
			title: "Delete",
			ask: () => ask(api.DELETE("/api/v1/runs/{run}", path)),
		});
		if (!done) return;
		queries.removeQueries({ queryKey: ["runs"] });
		navigate({ to: "/runs" });
	}

	return (
		<>
			<Group gap="xs" role="group" aria-label="Controls">
				{allows("pause", state) && (
					<Button
						variant="default"
						leftSection={<Icon name="pause" size={14} />}
						disabled={!can("pause")}
						onClick={pause}
					>
						Pause
					</Button>
				)}
				{allows("resume", state) && (
					<Button
						leftSection={<Icon name="play" size={14} />}
						disabled={!can("resume")}
						onClick={() => (state === "done" ? setQuestion("resume") : resume())}
					>
						Resume
					</Button>
				)}
				{allows("stop", state) && (
					<Button
						variant="default"
						leftSection={<Icon name="stop" size={14} />}
						disabled={!can("stop")}
						onClick={() => setQuestion("stop")}
					>
						Stop
					</Button>
				)}
				{allows("checkpoint", state) && (
					<Button
						variant="default"
						leftSection={<Icon name="save" size={14} />}
						disabled={!can("checkpoint")}
						onClick={save}
					>
						Checkpoint now
					</Button>
				)}
				<Menu position="bottom-end" withinPortal>
					<Menu.Target>
						<ActionIcon variant="default" size={30} aria-label="More actions">
							<Icon name="more" />
						</ActionIcon>
					</Menu.Target>
					<Menu.Dropdown>
						<Menu.Item
							disabled={!operator || !detail.checkpoint || isPlayedByClients(detail.environment)}
							onClick={evaluate}
						>
							Evaluate the best checkpoint
						</Menu.Item>
						<Menu.Item
							leftSection={<Icon name="copy" size={14} />}
							renderRoot={(props) => <Link to="/new" search={{ from: run }} {...props} />}
						>
							New run with this spec
						</Menu.Item>
						<Menu.Item
							leftSection={<Icon name="compare" size={14} />}
							renderRoot={(props) => <Link to="/compare" search={{ run: [run] }} {...props} />}
						>
							Compare
						</Menu.Item>
						<Menu.Item disabled={!operator} onClick={() => setQuestion("label")}>
							Tags and note …
						</Menu.Item>
						<Menu.Divider />
						<Menu.Item
							c="red"
							leftSection={<Icon name="trash" size={14} />}
							disabled={!may("admin") || !allows("delete", state)}
							onClick={() => setQuestion("delete")}
						>
							Delete …
						</Menu.Item>
					</Menu.Dropdown>
				</Menu>
			</Group>
			{question === "resume" && (
				<ResumeDialog detail={detail} steer={steer} close={() => setQuestion(null)} />
			)}
			{question === "label" && <LabelDialog detail={detail} steer={steer} close={() => setQuestion(null)} />}
			<Ask
				open={question === "stop"}
				title={`Stop ${run}?`}
				text="It drains what is on the way, saves a checkpoint and ends its processes. You can resume it later."
				verb="Stop"
				close={() => setQuestion(null)}
				act={stop}
			/>
			<Ask
				open={question === "delete"}
				title={`Delete ${run}?`}
				text="Its metrics, logs and checkpoints go with it. This cannot be undone."
				verb="Delete for good"
				red
				close={() => setQuestion(null)}
				act={remove}
			/>
		</>
	);
}

function Scale({ detail, actors, steer }: Props) {
	const operator = usePerson().may("operator");
	const [asking, setAsking] = useState(false);
	if (!allows("scale", detail.state)) return null;
	const scaleLearner = (learner: number) =>
		steer({
			title: learner ? "Start the learner" : "End the learner",
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/learner", {
						params: { path: { run: detail.run } },
						body: { learner },
					}),
				),
			done: learnerThere(learner),
		});
	return (
		<Group gap="xl" mt="sm" className="panel" px="md" py={10} role="group" aria-label="Scale">
			{isPlayedByClients(detail.environment) ? (
				<Text fz="sm">Played by the clients that connect to the gateway</Text>
			) : (
				<ActorsSlider detail={detail} actors={actors} steer={steer} disabled={!operator} />
			)}
			<Switch
				size="xs"
				label="Learner"
				checked={detail.desired.learner > 0}
				disabled={!operator}
				onChange={(event) => (event.currentTarget.checked ? scaleLearner(1) : setAsking(true))}
			/>
			{!operator && (
				<Text fz="xs" c="dimmed">
					Your token may look, but not steer.
				</Text>
			)}
			<Ask
				open={asking}
				title="End the learner?"
				text="The actors stay, but nothing is learned until you start the learner again. Its work is saved first."
				verb="End the learner"
				close={() => setAsking(false)}
				act={() => scaleLearner(0)}
			/>
		</Group>
	);
}

export const Controls = { Buttons, Scale };

interface SliderProps extends Props {
	disabled: boolean;
}

export function ActorsSlider({ detail, actors, steer, disabled }: SliderProps) {
	const wanted = detail.desired.actors;
	const [value, setValue] = useState(wanted);
	useEffect(() => setValue(wanted), [wanted]);
	const alive = actors?.filter((actor) => actor.alive && !actor.guest).length;
	const guests = actors?.filter((actor) => actor.alive && actor.guest).length ?? 0;
	async function scale(count: number) {
		if (count === wanted) return;
		const accepted = await steer({
			title: `Scale to ${count} ${count === 1 ? "actor" : "actors"}`,
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/actors", {
						params: { path: { run: detail.run } },
						body: { actors: count },
					}),
				),
			done: actorsAlive(count),
		});
		if (!accepted) setValue(wanted);
	}
	return (
		<Group gap="sm" wrap="nowrap" style={{ flex: "1 1 260px", maxWidth: 460 }}>
			<Text fz="sm" fw={500}>
				Actors
			</Text>
			<Slider
				flex={1}
				size="sm"
				min={0}
				max={MOST_ACTORS}
				step={1}
				value={value}
				onChange={setValue}
				onChangeEnd={scale}
				disabled={disabled}
				thumbLabel="Number of actors"
			/>
			<Text fz="sm" className="numbers" miw={86} aria-live="polite">
				{alive === undefined || alive === value ? `${value}` : `${alive} of ${value}`} running
				{guests > 0 && `, ${guests} joined`}
			</Text>
		</Group>
	);
}

interface AskProps {
	open: boolean;
	title: string;
	text: string;
	verb: string;
	red?: boolean;
	close: () => void;
	act: () => void;
}

export function Ask({ open, title, text, verb, red, close, act }: AskProps) {
	return (
		<Modal opened={open} onClose={close} title={title} centered size="sm">
			<Text mb="md">{text}</Text>
			<Group justify="flex-end" gap="xs">
				<Button variant="default" onClick={close} data-autofocus>
					Cancel
				</Button>
				<Button
					color={red ? "red.9" : undefined} // in dark, white on the usual red is hard to read
					onClick={() => {
						close();
						act();
					}}
				>
					{verb}
				</Button>
			</Group>
		</Modal>
	);
}

/** What became of what was asked. */
export function Effects({ effects, dismiss }: { effects: Effect[]; dismiss: (key: number) => void }) {
	if (effects.length === 0) return null;
	return (
		<Stack gap={6} mt="sm" role="status" aria-label="Commands on their way">
			{effects.map((effect) =>
				effect.problem || effect.state === "unseen" ? (
					<Alert
						key={effect.key}
						color={effect.problem ? "red" : "yellow"}
						variant="light"
						withCloseButton
						closeButtonLabel="Dismiss"
						onClose={() => dismiss(effect.key)}
						title={`${effect.title}: ${effect.problem ? effect.state : "not seen yet"}`}
						p="xs"
					>
						{effect.problem?.message ??
							`It was accepted ${effect.seconds.toFixed(0)} s ago and shows no effect; the logs may tell why.`}
					</Alert>
				) : (
					<Group key={effect.key} gap={8} fz="sm">
						{effect.state === "done" ? (
							<Text c="teal" component="span" lh={1}>
								<Icon name="check" size={14} />
							</Text>
						) : (
							<Loader size={12} />
						)}
						<Text fz="sm" className="numbers">
							{effect.title}:{" "}
							{effect.state === "asking"
								? "asking"
								: effect.state === "done"
									? `in effect after ${effect.seconds.toFixed(1)} s`
									: effect.words
										? `accepted, ${effect.words}`
										: "accepted, taking effect …"}
							{effect.state === "accepted" && !effect.words && (
								<span aria-hidden> {effect.seconds.toFixed(0)} s</span> // who listens would hear each second
							)}
						</Text>
					</Group>
				),
			)}
		</Stack>
	);
}

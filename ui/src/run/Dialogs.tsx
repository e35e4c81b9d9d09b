/** Questions with fields: to which limits a run goes on, what it is labelled with, and where a fork begins. */

import {
	Button,
	Group,
	Modal,
	NumberInput,
	Stack,
	TagsInput,
	Text,
	Textarea,
	TextInput,
} from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, type ReactNode, useState } from "react";
import { api, ask, type RunDetail } from "../api/client";
import { Failed } from "../shell/states";
import type { Wish } from "./effects";
import { inState, labelled } from "./seen";

interface Props {
	detail: RunDetail;
	close: () => void;
	steer: (wish: Wish) => Promise<boolean>;
}

interface FormProps {
	title: string;
	verb: string;
	close: () => void;
	submit: () => void;
	busy?: boolean;
	error?: Error | null;
	children: ReactNode;
}

function Form({ title, verb, close, submit, busy, error, children }: FormProps) {
	function send(event: FormEvent) {
		event.preventDefault();
		submit();
	}
	return (
		<Modal opened onClose={close} title={title} centered>
			<form onSubmit={send}>
				<Stack gap="sm">
					{children}
					{error && <Failed error={error} />}
					<Group justify="flex-end" gap="xs">
						<Button variant="default" onClick={close}>
							Cancel
						</Button>
						<Button type="submit" loading={busy}>
							{verb}
						</Button>
					</Group>
				</Stack>
			</form>
		</Modal>
	);
}

/** Ask and close once it was accepted; a refusal is said in the dialog, and what was typed stays. */
function useAsking(steer: Props["steer"], close: () => void) {
	const [error, setError] = useState<Error | null>(null);
	const [busy, setBusy] = useState(false);
	async function send(wish: Wish) {
		setBusy(true);
		setError(null);
		const heard = (problem: Error) => {
			setError(problem);
			throw problem;
		};
		const accepted = await steer({ ...wish, ask: () => wish.ask().catch(heard) });
		setBusy(false);
		if (accepted) close();
	}
	return { send, error, busy };
}

const STEPS_MORE = 500_000;

/** A run that reached its limits needs new ones to go on. */
export function ResumeDialog({ detail, close, steer }: Props) {
	const [steps, setSteps] = useState<number | string>(Math.ceil((detail.steps + STEPS_MORE) / 1000) * 1000);
	const [target, setTarget] = useState<number | string>("");
	const { send, error, busy } = useAsking(steer, close);
	function resume() {
		const stop = {
			steps: steps === "" ? null : Number(steps),
			target: target === "" ? null : Number(target),
		};
		send({
			title: "Resume",
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/resume", {
						params: { path: { run: detail.run } },
						body: { stop: stop as never }, // what is left out stays; the document cannot say so
					}),
				),
			done: inState("running"),
		});
	}
	return (
		<Form
			title={`Go on with ${detail.run}`}
			verb="Resume"
			close={close}
			submit={resume}
			busy={busy}
			error={error}
		>
			<Text c="dimmed">
				It ended because {detail.reason ?? "its limits were reached"}. How far shall it go?
			</Text>
			<NumberInput
				label="Steps in all"
				description="Empty: no limit."
				min={1}
				thousandSeparator=" "
				value={steps}
				onChange={setSteps}
				data-autofocus
			/>
			<NumberInput
				label="Target return"
				description="Empty: no target."
				value={target}
				onChange={setTarget}
			/>
		</Form>
	);
}

export function LabelDialog({ detail, close, steer }: Props) {
	const [project, setProject] = useState(detail.project);
	const [tags, setTags] = useState(detail.tags);
	const [note, setNote] = useState(detail.note);
	const { send, error, busy } = useAsking(steer, close);
	const label = () =>
		send({
			title: "Label",
			ask: () =>
				ask(
					api.PATCH("/api/v1/runs/{run}", {
						params: { path: { run: detail.run } },
						body: { project, tags, note },
					}),
				),
			done: labelled({ project, tags, note }),
		});
	return (
		<Form
			title={`Labels of ${detail.run}`}
			verb="Save"
			close={close}
			submit={label}
			busy={busy}
			error={error}
		>
			<TextInput
				label="Project"
				value={project}
				onChange={(event) => setProject(event.currentTarget.value)}
			/>
			<TagsInput size="xs" label="Tags" description="Enter after each." value={tags} onChange={setTags} />
			<Textarea
				size="xs"
				label="Note"
				autosize
				minRows={2}
				value={note}
				onChange={(event) => setNote(event.currentTarget.value)}
				data-autofocus
			/>
		</Form>
	);
}

export function ForkDialog({ run, at, close }: { run: string; at: string; close: () => void }) {
	const [name, setName] = useState("");
	const navigate = useNavigate();
	const queries = useQueryClient();
	const fork = useMutation({
		mutationFn: () =>
			ask(
				api.POST("/api/v1/runs/{run}/forks", {
					params: { path: { run } },
					body: { at, changes: {}, name: name.trim() || null },
				}),
			),
		onSuccess: (made) => {
			queries.invalidateQueries({ queryKey: ["runs"] });
			navigate({ to: "/runs/$run", params: { run: made.run } });
		},
	});
	return (
		<Form
			title={`Fork ${run} at ${at}`}
			verb="Fork"
			close={close}
			submit={() => fork.mutate()}
			busy={fork.isPending}
			error={fork.error}
		>
			<Text c="dimmed">
				A new run goes on from this checkpoint with the same spec. The old one stays as it is.
			</Text>
			<TextInput
				label="Name"
				description="Empty: one is made up."
				value={name}
				onChange={(event) => setName(event.currentTarget.value)}
				data-autofocus
			/>
		</Form>
	);
}

/** The policy at play: what it is learning now, or any checkpoint; with its return, and recordings to keep. */

import { ActionIcon, Button, Group, Loader, Text, Tooltip, VisuallyHidden } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type RefObject, useState } from "react";
import { api, ask, type CheckpointView, type RunDetail } from "../api/client";
import { checkpointsQuery } from "../api/queries";
import { count, measure } from "../format";
import { sentence } from "../live/feed";
import { usePerson } from "../live/live";
import type { Wish } from "../run/effects";
import { recorded } from "../run/seen";
import { Icon } from "../shell/icons";
import { Recordings } from "./Recordings";
import { Returns } from "./Returns";
import { type Connection, LIVE, type Refusal, type Shown } from "./stage";
import { stops, useStage } from "./useStage";

interface Props {
	detail: RunDetail;
	steer: (wish: Wish) => Promise<boolean>;
}

export function Watch({ detail, steer }: Props) {
	const { run } = detail;
	const [source, setSource] = useState<string>(LIVE);
	const [playing, setPlaying] = useState(true);
	const { canvas, shown, refusal, connection, again } = useStage(run, source, playing);
	const { data: checkpoints = [] } = useQuery(checkpointsQuery(run));
	const cover = coverOf(playing, connection, shown, refusal);
	return (
		<>
			<div className="watch">
				<section className="panel stage" aria-label="The policy at play">
					<Picture
						canvas={canvas}
						shown={shown}
						environment={detail.environment}
						cover={cover}
						again={again}
					/>
					<div className="stage-bar">
						<Tooltip label={playing ? "Pause" : "Play"}>
							<ActionIcon
								variant="default"
								size="lg"
								aria-label={playing ? "Pause the play" : "Play on"}
								onClick={() => setPlaying(!playing)}
							>
								<Icon name={playing ? "pause" : "play"} />
							</ActionIcon>
						</Tooltip>
						<SourceSlider source={source} checkpoints={checkpoints} choose={setSource} />
						<Record detail={detail} source={source} some={checkpoints.length > 0} steer={steer} />
					</div>
				</section>
				<Facts shown={shown} source={source} />
			</div>
			<Recordings run={run} />
		</>
	);
}

interface Cover {
	title: string;
	words?: string;
	kind: "busy" | "calm" | "broken";
}

/** What stands over the picture, if anything. */
export function coverOf(
	playing: boolean,
	connection: Connection,
	shown: Shown | null,
	refusal: Refusal | null,
): Cover | null {
	if (!playing) return { kind: "calm", title: "Paused" };
	if (connection === "offline")
		return { kind: "busy", title: "The connection is lost", words: "It comes back by itself." };
	if (connection === "refused")
		return {
			kind: "busy",
			title: "The server refuses",
			words: `${sentence(refusal?.detail)} It is tried again.`.trim(),
		};
	if (refusal)
		return refusal.status === 503 || refusal.status === 409
			? { kind: "busy", title: "Not now", words: refusal.detail }
			: { kind: "broken", title: "This cannot be watched", words: refusal.detail };
	if (shown?.state === "failed") return { kind: "broken", title: "The play has ended", words: shown.words };
	if (shown?.state === "waiting") return { kind: "busy", title: "A moment", words: shown.words };
	if (shown === null) return { kind: "busy", title: "Getting ready" };
	return null;
}

interface PictureProps {
	canvas: RefObject<HTMLCanvasElement | null>;
	shown: Shown | null;
	environment: string;
	cover: Cover | null;
	again: () => void;
}

function Picture({ canvas, shown, environment, cover, again }: PictureProps) {
	const coarse = !!shown && shown.width > 0 && shown.width < 200;
	return (
		<div className="picture">
			<canvas
				ref={canvas}
				width={480}
				height={320}
				role="img"
				aria-label={`${environment} played by ${shown?.version ? `version ${shown.version}` : "the policy"}`}
				className={coarse ? "coarse" : undefined}
				data-covered={cover ? true : undefined}
			/>
			{cover && (
				<div className="cover" role={cover.kind === "broken" ? "alert" : "status"}>
					{cover.kind === "busy" && <Loader size="sm" />}
					<Text fw={600}>{cover.title}</Text>
					{cover.words && (
						<Text fz="sm" maw={420}>
							{cover.words}
						</Text>
					)}
					{cover.kind === "broken" && (
						<Button variant="default" onClick={again}>
							Try again
						</Button>
					)}
				</div>
			)}
		</div>
	);
}

interface SliderProps {
	source: string;
	checkpoints: CheckpointView[];
	choose: (source: string) => void;
}

function SourceSlider({ source, checkpoints, choose }: SliderProps) {
	const all = stops(
		checkpoints.map((one) => one.version),
		source,
	);
	const best = checkpoints.find((one) => one.best)?.version;
	const at = all.indexOf(source);
	const known = checkpoints.find((one) => one.version === source);
	const name =
		source === LIVE
			? "Live"
			: `Checkpoint ${source}${known ? `, ${count(known.steps)} steps` : ""}${source === best ? ", best" : ""}`;
	return (
		<div className="source">
			<Group justify="space-between" gap={8} wrap="nowrap">
				<Text fz="xs" c="dimmed" className="ellipsis">
					{source === LIVE ? "Live: the newest policy, from its next episode on" : name}
				</Text>
				{source !== LIVE && (
					<Button variant="subtle" size="compact-xs" onClick={() => choose(LIVE)}>
						Back to live
					</Button>
				)}
			</Group>
			<input
				type="range"
				min={0}
				max={all.length - 1}
				step={1}
				value={at}
				disabled={all.length < 2}
				aria-label="Which policy plays"
				aria-valuetext={name}
				onChange={(event) => choose(all[Number(event.target.value)] ?? LIVE)}
			/>
			<Group justify="space-between" gap={8} wrap="nowrap" aria-hidden>
				<Text fz="xs" c="dimmed">
					{all.length > 1 ? (all[0] ?? "") : "no checkpoint yet"}
				</Text>
				<Text fz="xs" c="dimmed">
					Live
				</Text>
			</Group>
		</div>
	);
}

interface RecordProps extends Props {
	source: string;
	some: boolean;
}

function Record({ detail, source, some, steer }: RecordProps) {
	const { may } = usePerson();
	const queries = useQueryClient();
	const { run } = detail;
	const checkpoint = source === LIVE ? "newest" : source;
	const record = async () => {
		await steer({
			title: `Record ${source === LIVE ? "the newest checkpoint" : source}`,
			ask: () =>
				ask(
					api.POST("/api/v1/runs/{run}/recordings", {
						params: { path: { run } },
						body: { checkpoint, seed: 0 },
					}),
				),
			done: recorded,
		});
		queries.invalidateQueries({ queryKey: ["recordings", run] });
	};
	const why = !may("operator")
		? "Recording needs the role operator"
		: some
			? source === LIVE
				? "One episode of the newest checkpoint, as a GIF"
				: "One episode of this checkpoint, as a GIF"
			: "There is no checkpoint to record yet";
	return (
		<Tooltip label={why}>
			<Button
				variant="default"
				size="sm"
				leftSection={<Icon name="record" size={14} />}
				disabled={!some || !may("operator")}
				onClick={record}
			>
				Record this
			</Button>
		</Tooltip>
	);
}

function Facts({ shown, source }: { shown: Shown | null; source: string }) {
	const playing = shown?.state === "playing" ? shown : null;
	const last = playing?.returns.at(-1);
	return (
		<section className="panel watch-facts" aria-label="This episode">
			<div>
				<Text fz="xs" c="dimmed">
					Return
				</Text>
				<div className="big" data-testid="return">
					{playing ? measure(playing.total_reward) : "–"}
				</div>
			</div>
			<dl>
				<Fact name="Policy version" value={playing?.version || "–"} />
				<Fact name="Trained for" value={playing ? `${count(playing.environment_steps)} steps` : "–"} />
				<Fact name="Episode" value={playing ? count(playing.episode) : "–"} />
				<Fact name="Step" value={playing ? count(playing.step) : "–"} />
			</dl>
			<div>
				<Group justify="space-between">
					<Text fz="xs" c="dimmed">
						Last episodes
					</Text>
					{playing && playing.returns.length > 0 && (
						<Text fz="xs" className="numbers">
							mean {measure(mean(playing.returns))}
						</Text>
					)}
				</Group>
				<Returns returns={playing?.returns ?? []} />
			</div>
			<VisuallyHidden role="status">
				{playing?.ended && last !== undefined
					? `Episode ${playing.episode} ended with return ${measure(last)}`
					: ""}
			</VisuallyHidden>
			<Text fz="xs" c="dimmed">
				{source === LIVE
					? "Plays without exploration, at its own speed, and takes the newest version with each episode."
					: "Plays without exploration, at its own speed."}
			</Text>
		</section>
	);
}

function Fact({ name, value }: { name: string; value: string }) {
	return (
		<div>
			<dt>{name}</dt>
			<dd>{value}</dd>
		</div>
	);
}

export function mean(values: (number | null)[]): number | null {
	const known = values.filter((value) => value !== null);
	return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

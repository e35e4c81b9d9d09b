/** Start a run: a form made from the spec's schema, with the tuned defaults of its environment. */

import {
	Accordion,
	Alert,
	Autocomplete,
	Button,
	Group,
	NumberInput,
	Select,
	SimpleGrid,
	TagsInput,
	Text,
	Textarea,
	TextInput,
	Title,
} from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, ask, Problem } from "../api/client";
import { algorithmsQuery, environmentsQuery, runQuery, schemaQuery } from "../api/queries";
import { usePerson } from "../live/live";
import { Failed, Loading } from "../shell/states";
import { Field, spoken } from "./Field";
import { useMisfit } from "./fit";
import { SpecText } from "./SpecText";
import { follow, kindOf, type Schema } from "./schema";
import { difference, type Labels, placeOf, valueAt, type Wish, withValue } from "./wish";

const route = getRouteApi("/new");
const BASIC = [["actors", "count"], ["seed"], ["stop", "steps"], ["stop", "target"]];
const HINTS: Record<string, string> = {
	"actors.count": "Processes that make experience; you can change it while it runs.",
	seed: "Everything random follows from it.",
	"stop.steps": "End after this many environment steps; empty: no limit.",
	"stop.target": "End once the mean return reaches this; empty: no target.",
};
const NAMES: Record<string, string> = {
	"actors.count": "Actors",
	"stop.steps": "Steps",
	"stop.target": "Target return",
};
const SECTIONS = [
	"network",
	"actors",
	"stop",
	"pace",
	"environment",
	"learner",
	"checkpoint",
	"evaluation",
	"stream",
	"keeper",
];

const resolve = (spec: Wish, signal?: AbortSignal) =>
	ask(
		api.POST("/api/v1/specs/resolve", { body: spec as never, signal }),
	) as Promise<unknown> as Promise<Wish>;

export function NewRunPage() {
	const search = route.useSearch();
	const from = useQuery({ ...runQuery(search.from ?? ""), enabled: !!search.from });
	const schema = useQuery(schemaQuery);
	const begun = useQuery({
		queryKey: ["wish", search.from], // not its revision: what was begun stays, however the run goes on
		enabled: !!from.data,
		queryFn: async ({ signal }): Promise<Wish> => {
			const { origin: _o, format: _f, ...spec } = (from.data?.spec ?? {}) as Wish;
			const short = { environment: (spec.environment as Wish).id, algorithm: spec.algorithm };
			return { ...difference(spec, await resolve(short, signal)), ...short };
		},
		staleTime: Number.POSITIVE_INFINITY,
	});
	if (!schema.data || (search.from && !begun.data)) {
		const failed = [schema, from, begun].find((query) => query.error);
		if (failed) return <Failed error={failed.error} retry={() => failed.refetch()} />;
		return <Loading what="the form" />;
	}
	const wish = begun.data ?? {
		environment: search.environment ?? "CartPole-v1",
		...(search.algorithm ? { algorithm: search.algorithm } : {}),
	};
	return <Form key={search.from ?? ""} schema={schema.data as Schema} begin={wish} from={search.from} />;
}

function Form({ schema, begin, from }: { schema: Schema; begin: Wish; from?: string }) {
	const [wish, setWish] = useState(begin);
	const [labels, setLabels] = useState<Labels>({ name: "", project: "", tags: [], note: "", seeds: 1 });
	const [faults, setFaults] = useState<Record<string, string | null>>({});
	const [round, setRound] = useState(0);
	const [seen, setSeen] = useState<ReadonlySet<string>>(new Set());
	const [asked] = useDebouncedValue(wish, 250);
	const { may } = usePerson();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const resolved = useQuery({
		queryKey: ["resolve", asked],
		queryFn: ({ signal }) => resolve(asked, signal),
		placeholderData: (before) => before,
		retry: (failures, error) => failures < 3 && !(error instanceof Problem && error.status >= 400),
		staleTime: 60_000,
		gcTime: 10_000,
	});
	const [last, setLast] = useState<Wish>();
	useEffect(() => {
		if (resolved.data && !resolved.error) setLast(resolved.data);
	}, [resolved.data, resolved.error]);
	const refusal = resolved.error instanceof Problem ? resolved.error : null;
	const place = refusal && placeOf(refusal.message);
	const wrong = Object.keys(faults).filter((name) => faults[name]);
	const setFault = (name: string) => (fault: string | null) =>
		setFaults((before) => ({ ...before, [name]: fault }));
	const beginAnew = () => {
		setWish(begin);
		setFaults({});
		setRound(round + 1);
	};

	const start = useMutation({
		mutationFn: () => {
			const { name, project, tags, note, seeds } = labels;
			const body = { ...wish, name: name || undefined, project: project || undefined, tags, note, seeds };
			return ask(api.POST("/api/v1/runs", { body: body as never }));
		},
		onSuccess: (started) => {
			queries.invalidateQueries({ queryKey: ["runs"] });
			if ("runs" in started && started.group) navigate({ to: "/runs", search: { group: started.group } });
			else if ("run" in started) navigate({ to: "/runs/$run", params: { run: started.run } });
			else navigate({ to: "/runs" });
		},
	});

	const change = (path: string[], value: unknown) => setWish((before) => withValue(before, path, value));
	const field = (path: string[], part: Schema) => {
		const name = path.join(".");
		const mine = valueAt(wish, path);
		return (
			<Field
				key={`${name} ${round}`}
				name={path.at(-1) ?? ""}
				label={NAMES[name]}
				hint={HINTS[name]}
				schema={part}
				value={mine === undefined ? valueAt(last, path) : mine}
				onChange={(value) => change(path, value)}
				onFault={setFault(name)}
				refused={place === name ? refusal?.message : null}
			/>
		);
	};
	const algorithm = String(wish.algorithm ?? last?.algorithm ?? "ppo");
	const environment = String(valueAt(wish, ["environment", "id"]) ?? wish.environment ?? "");
	const unfit = useMisfit(last, environment, algorithm);
	const [first] = useState(algorithm); // its part is open from the start
	return (
		<form
			onSubmit={(event) => {
				event.preventDefault();
				if (wrong.length === 0 && !unfit) start.mutate();
			}}
		>
			<Title order={1} mb={2}>
				New run
			</Title>
			<Text c="dimmed" mb="md">
				{from
					? `Begins with the spec of ${from}.`
					: "Only the environment is needed; the rest has tuned defaults."}
			</Text>
			<div className="two">
				<div style={{ minWidth: 0 }}>
					<div className="panel" style={{ padding: 16 }}>
						<SimpleGrid cols={{ base: 1, xs: 2 }} spacing="md">
							<Environment
								value={environment}
								refused={place?.startsWith("environment") ? (refusal?.message ?? null) : null}
								onChange={(id) =>
									setWish((before) =>
										typeof before.environment === "object" && before.environment
											? withValue(before, ["environment", "id"], id)
											: { ...before, environment: id },
									)
								}
							/>
							<Algorithm
								value={algorithm}
								refused={unfit}
								onChange={(name) =>
									setWish(({ [algorithm]: _, ...before }) => ({ ...before, algorithm: name }))
								}
							/>
							{BASIC.map((path) => field(path, at(schema, path)))}
							<NumberInput
								label="Seeds"
								description="This many runs that differ in their seed only make a group."
								min={1}
								max={64}
								value={labels.seeds}
								onChange={(value) => setLabels({ ...labels, seeds: Math.max(1, Number(value) || 1) })}
							/>
							<TextInput
								label="Name"
								description="The run's id; empty: one is made up."
								value={labels.name}
								onChange={(event) => setLabels({ ...labels, name: event.currentTarget.value })}
							/>
							<TagsInput
								size="xs"
								label="Tags"
								description="Enter after each."
								value={labels.tags}
								onChange={(tags) => setLabels({ ...labels, tags })}
							/>
							<TextInput
								label="Project"
								description="What it belongs to."
								placeholder="default"
								value={labels.project}
								onChange={(event) => setLabels({ ...labels, project: event.currentTarget.value })}
							/>
						</SimpleGrid>
						<Textarea
							mt="md"
							size="xs"
							label="Note"
							autosize
							minRows={1}
							value={labels.note}
							onChange={(event) => setLabels({ ...labels, note: event.currentTarget.value })}
						/>
					</div>
					<Accordion
						multiple
						variant="separated"
						mt="md"
						keepMounted // what was typed stays when a part is closed
						keepMountedMode="display-none"
						defaultValue={[algorithm]}
						onChange={(open) => setSeen(new Set([...seen, ...open]))}
						className="sections"
					>
						{[algorithm, ...SECTIONS].map((name) => {
							const part = section(schema, name);
							if (!part?.properties) return null;
							const own = Object.keys((wish[name] as Wish | undefined) ?? {}).length;
							return (
								<Accordion.Item key={name} value={name}>
									<Accordion.Control>
										<Text fw={600} fz="sm" span>
											{name === algorithm ? `Algorithm: ${name}` : spoken(name)}
										</Text>{" "}
										<Text c="dimmed" fz="xs" span>
											{part.description}
											{own && typeof wish[name] === "object" ? ` ${own} changed` : ""}
										</Text>
									</Accordion.Control>
									<Accordion.Panel>
										<SimpleGrid cols={{ base: 1, xs: 2 }} spacing="md">
											{(seen.has(name) || name === first) &&
												Object.entries(part.properties).map(([key, inner]) => {
													const followed = follow(inner, schema);
													return kindOf(followed) === "group"
														? Object.entries(followed.properties ?? {}).map(([deep, one]) =>
																field([name, key, deep], follow(one, schema)),
															)
														: field([name, key], followed);
												})}
										</SimpleGrid>
									</Accordion.Panel>
								</Accordion.Item>
							);
						})}
					</Accordion>
				</div>
				<aside className="beside" aria-label="The spec as text">
					{(refusal || start.error) && (
						<Alert
							color="red"
							variant="light"
							title={start.error ? "Not started" : "Not valid yet"}
							mb="sm"
							role="alert"
						>
							{(start.error ?? refusal)?.message}
						</Alert>
					)}
					<Group mb="sm" gap="xs">
						<Button
							type="submit"
							size="sm"
							loading={start.isPending}
							disabled={wrong.length > 0 || !!refusal || !!unfit || !may("operator")}
						>
							{labels.seeds > 1 ? `Start ${labels.seeds} runs` : "Start training"}
						</Button>
						<Button variant="subtle" color="gray" onClick={beginAnew}>
							Begin anew
						</Button>
						{(wrong.length > 0 || unfit) && (
							<Text fz="xs" c="red" role="status">
								Not valid yet: {[...wrong, ...(unfit ? [unfit] : [])].join(", ")}
							</Text>
						)}
						{!may("operator") && <Text fz="xs">Starting needs an operator's token.</Text>}
					</Group>
					<SpecText
						key={round}
						wish={wish}
						resolved={last}
						labels={labels}
						onWish={setWish}
						onFault={setFault("YAML")}
					/>
				</aside>
			</div>
		</form>
	);
}

function section(schema: Schema, name: string): Schema | undefined {
	const part = schema.properties?.[name];
	if (!part) return undefined;
	const long = part.anyOf?.find((one) => one.$ref);
	return follow(long ? { ...long, description: part.description } : part, schema);
}

function at(schema: Schema, path: string[]): Schema {
	const [first, second] = path as [string, string?];
	const part = second ? section(schema, first)?.properties?.[second] : schema.properties?.[first];
	return part ? follow(part, schema) : {};
}

interface ChoiceProps {
	value: string;
	onChange: (value: string) => void;
	refused?: string | null;
}

function Environment({ value, onChange, refused }: ChoiceProps) {
	const { data } = useQuery(environmentsQuery);
	const known = data?.filter((one) => one.installed) ?? [];
	const missing = data?.find((one) => one.id === value && !one.installed)?.missing;
	return (
		<Autocomplete
			size="xs"
			label="Environment"
			description="A Gymnasium id, or a class in a file: ./my_env.py:MyEnv"
			data={[
				{ group: "With tuned defaults", items: known.filter((one) => one.preset).map((one) => one.id) },
				{ group: "Installed", items: known.filter((one) => !one.preset).map((one) => one.id) },
			]}
			value={value}
			onChange={onChange}
			error={missing ? `Not installed: ${missing}` : refused}
			maxDropdownHeight={320}
			required
			withAsterisk={false}
		/>
	);
}

function Algorithm({ value, onChange, refused }: ChoiceProps) {
	const { data } = useQuery(algorithmsQuery);
	return (
		<Select
			label="Algorithm"
			description={data?.find((one) => one.name === value)?.summary ?? "How it learns."}
			data={data?.map((one) => one.name) ?? [value]}
			error={refused}
			value={value}
			allowDeselect={false}
			onChange={(name) => name && onChange(name)}
		/>
	);
}

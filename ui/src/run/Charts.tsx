/** Everything a run measured, live. */

import { Button, Group, SegmentedControl, Slider, Text, Title } from "@mantine/core";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { memo, useMemo, useState } from "react";
import { Chart, colorOf, type Line, type Zoom } from "../chart/Chart";
import { type Columns, smoothed, stacked } from "../chart/history";
import { Empty, Failed, Loading } from "../shell/states";
import { type ChartPlan, planCharts } from "./plan";
import { useHistory } from "./useHistory";

const route = getRouteApi("/runs/$run");

export function Charts({ run, live }: { run: string; live: boolean }) {
	const { columns, isPending, error, refetch } = useHistory(run);
	const search = route.useSearch();
	const navigate = useNavigate({ from: "/runs/$run" });
	const [zoom, setZoom] = useState<Zoom>(null);
	const [opened, setOpened] = useState<Record<string, boolean>>({});
	const by = search.by ?? "steps";
	const [smooth, setSmooth] = useState(search.smooth ?? 0);
	const names = Object.keys(columns).join("\n");
	const groups = useMemo(() => planCharts(names.split("\n")), [names]);
	const x = useMemo(
		() => ((by === "steps" ? columns.steps : columns.seconds) ?? []).map((value) => value ?? 0),
		[columns, by],
	);
	if (error && x.length === 0) return <Failed error={error} retry={refetch} />;
	if (isPending) return <Loading what="metrics" />;
	if (x.length === 0)
		return (
			<div className="panel">
				<Empty title={live ? "Waiting for the first update" : "Nothing was measured"}>
					{live
						? "The first update takes some seconds, because it is compiled then."
						: "This run ended before its learner made an update."}
				</Empty>
			</div>
		);
	const change = (part: { by?: "steps" | "time"; smooth?: number }) =>
		navigate({ search: (before) => ({ ...before, ...part }), replace: true });
	return (
		<>
			<Group gap="lg" mb="xs" mih={34}>
				<SegmentedControl
					size="xs"
					aria-label="Horizontal axis"
					data={[
						{ value: "steps", label: "By steps" },
						{ value: "time", label: "By time" },
					]}
					value={by}
					onChange={(value) => {
						setZoom(null);
						change({ by: value === "time" ? "time" : undefined });
					}}
				/>
				<Group gap="xs" wrap="nowrap">
					<Text fz="xs" c="dimmed" id="smoothing">
						Smoothing
					</Text>
					<Slider
						w={130}
						size="sm"
						min={0}
						max={0.98}
						step={0.02}
						value={smooth}
						label={(value) => value.toFixed(2)}
						onChange={setSmooth}
						onChangeEnd={(value) => change({ smooth: value || undefined })}
						thumbLabel="Smoothing"
					/>
				</Group>
				{zoom ? (
					<Button variant="light" onClick={() => setZoom(null)}>
						Show all
					</Button>
				) : (
					<Text fz="xs" c="dimmed" visibleFrom="sm">
						Drag across a chart to zoom in
					</Text>
				)}
			</Group>
			{groups.map((group) => {
				const open = opened[group.title] ?? group.open;
				return (
					<section key={group.title} aria-label={group.title}>
						<Group gap="xs" mt="md" mb={6}>
							<Title order={2}>{group.title}</Title>
							{!group.open && (
								<Button
									variant="subtle"
									size="compact-xs"
									aria-expanded={open}
									onClick={() => setOpened({ ...opened, [group.title]: !open })}
								>
									{open ? "Hide" : `Show ${group.charts.length}`}
								</Button>
							)}
						</Group>
						{open && (
							<div className="cards">
								{group.charts.map((plan) => (
									<Planned
										key={plan.title}
										plan={plan}
										columns={columns}
										x={x}
										by={by}
										smooth={smooth}
										zoom={zoom}
										onZoom={setZoom}
										group={run}
									/>
								))}
							</div>
						)}
					</section>
				);
			})}
		</>
	);
}

interface PlannedProps {
	plan: ChartPlan;
	columns: Columns;
	x: number[];
	by: "steps" | "time";
	smooth: number;
	zoom: Zoom;
	onZoom: (zoom: Zoom) => void;
	group: string;
}

const Planned = memo(function Planned({ plan, columns, smooth, ...rest }: PlannedProps) {
	const lines = useMemo(() => linesOf(plan, columns, smooth), [plan, columns, smooth]);
	return <Chart title={plan.title} lines={lines} percent={plan.stacked} {...rest} />;
});

function linesOf(plan: ChartPlan, columns: Columns, smooth: number): Line[] {
	const raw = plan.names.map(({ name }) => columns[name] ?? []);
	if (plan.stacked) {
		const { shares, tops } = stacked(raw.map((values) => smoothed(values, Math.max(smooth, 0.6))));
		return plan.names
			.map(({ label }, i) => ({
				label,
				values: tops[i] ?? [],
				told: shares[i],
				color: colorOf(i),
				filled: true,
			}))
			.reverse();
	}
	return plan.names.flatMap(({ label }, i): Line[] => {
		const values = raw[i] ?? [];
		if (smooth <= 0) return [{ label, values, color: colorOf(i) }];
		return [
			{ label: `${label}, raw`, values, color: colorOf(i), faint: true },
			{ label, values: smoothed(values, smooth), color: colorOf(i) },
		];
	});
}

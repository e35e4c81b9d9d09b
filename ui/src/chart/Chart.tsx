/** One chart: lines over steps or time; hover for values, drag to zoom, double-click to see all. */

import { Text, useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { count, duration, measure, tick } from "../format";

export interface Line {
	label: string;
	values: (number | null)[];
	/** What the legend says instead, such as a share of a stacked line. */
	told?: (number | null)[];
	color?: string;
	/** Drawn thin and pale, as the raw line behind a smoothed one. */
	faint?: boolean;
	/** Filled down to zero. */
	filled?: boolean;
}

export interface Band {
	low: (number | null)[];
	high: (number | null)[];
	color: string;
}

export type Zoom = [number, number] | null;

interface Props {
	title: string;
	x: number[];
	by: "steps" | "time";
	lines: Line[];
	bands?: Band[];
	zoom?: Zoom;
	onZoom?: (zoom: Zoom) => void;
	height?: number;
	percent?: boolean;
	group?: string;
}

export const COLORS = [
	"#1391b3",
	"#e8710a",
	"#7c5cff",
	"#2b9a55",
	"#d6457e",
	"#b08800",
	"#5b7083",
	"#c2410c",
];
/** Seconds between the marks of a time axis. */
const TIME_STEPS = [
	0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800,
];
export const colorOf = (index: number) => COLORS[index % COLORS.length] as string;

export function Chart({
	title,
	x,
	by,
	lines,
	bands = [],
	zoom,
	onZoom,
	height = 150,
	percent,
	group,
}: Props) {
	const holder = useRef<HTMLDivElement>(null);
	const plot = useRef<uPlot | null>(null);
	const dark = useComputedColorScheme("light") === "dark";
	const [hovered, setHovered] = useState<number | null>(null);
	const latest = useRef({ onZoom, zoom });
	latest.current = { onZoom, zoom };

	const data = useMemo(
		() => [x, ...bands.flatMap((band) => [band.high, band.low]), ...lines.map((line) => line.values)],
		[x, bands, lines],
	) as uPlot.AlignedData;
	const shape = [
		by,
		dark,
		percent,
		...bands.map((band) => band.color),
		...lines.map((line, i) => `${line.label}${line.faint}${line.filled}${line.color ?? colorOf(i)}`),
	].join("|");

	// biome-ignore lint/correctness/useExhaustiveDependencies: `shape` says when the plot must be made anew
	useEffect(() => {
		const element = holder.current;
		if (!element) return;
		const made = new uPlot(
			options({
				width: element.clientWidth || 300,
				height,
				by,
				lines,
				bands,
				dark,
				percent,
				group,
				hovered: setHovered,
				zoomed: (range) => latest.current.onZoom?.(range),
			}),
			data,
			element,
		);
		plot.current = made;
		const zoomed = latest.current.zoom;
		if (zoomed) made.setScale("x", { min: zoomed[0], max: zoomed[1] });
		const watcher = new ResizeObserver(() => {
			if (element.clientWidth && element.clientWidth !== made.width)
				made.setSize({ width: element.clientWidth, height });
		});
		watcher.observe(element);
		return () => {
			watcher.disconnect();
			made.destroy();
			plot.current = null;
		};
	}, [shape, height, group]);

	useEffect(() => {
		plot.current?.setData(data, !zoom);
		if (zoom) plot.current?.setScale("x", { min: zoom[0], max: zoom[1] });
	}, [data, zoom]);

	const shown = hovered !== null && hovered < x.length ? hovered : x.length - 1;
	const named = lines.filter((line) => !line.faint);
	const say = (line: Line) => {
		const value = valueAt(line.told ?? line.values, shown, hovered === null);
		return percent ? (value === null ? "–" : `${Math.round(value * 100)} %`) : measure(value);
	};
	const spoken = `${title}: ${named.map((line) => `${line.label} ${say(line)}`).join(", ")}`;
	return (
		<figure
			className="panel"
			style={{ margin: 0, padding: "8px 10px 4px", minWidth: 0 }}
			aria-label={title}
			data-last={x.at(-1)}
			data-points={x.length}
		>
			<figcaption>
				<Text component="span" fw={600} fz="sm">
					{title}
				</Text>
				<div className="chart-legend">
					{named.map((line, i) => (
						<span key={line.label}>
							<i style={{ background: line.color ?? colorOf(i) }} />
							{named.length > 1 && `${line.label} `}
							<b style={{ color: "var(--mantine-color-text)", fontWeight: 550 }}>{say(line)}</b>
						</span>
					))}
					{hovered !== null && x[shown] !== undefined && (
						<span>at {by === "steps" ? `${count(x[shown])} steps` : duration(x[shown] ?? 0)}</span>
					)}
				</div>
			</figcaption>
			<div ref={holder} role="img" aria-label={spoken} style={{ height }} />
		</figure>
	);
}

function valueAt(values: (number | null)[], index: number, orBefore: boolean): number | null {
	let at = index;
	while (orBefore && at > 0 && (values[at] ?? null) === null) at -= 1;
	return values[at] ?? null;
}

interface Look {
	width: number;
	height: number;
	by: "steps" | "time";
	lines: Line[];
	bands: Band[];
	dark: boolean;
	percent?: boolean;
	group?: string;
	hovered: (index: number | null) => void;
	zoomed: (range: Zoom) => void;
}

function options(look: Look): uPlot.Options {
	const quiet = look.dark ? "#9aa7b1" : "#5a6771";
	const line = look.dark ? "#262d33" : "#edf1f3";
	const axis: uPlot.Axis = {
		stroke: quiet,
		grid: { stroke: line, width: 1 },
		ticks: { show: false },
		font: "11px ui-sans-serif, system-ui, sans-serif",
	};
	const pale = look.bands.flatMap((band): uPlot.Series[] => [
		{ stroke: "transparent", points: { show: false }, label: band.color },
		{ stroke: "transparent", points: { show: false } },
	]);
	return {
		width: look.width,
		height: look.height,
		legend: { show: false },
		padding: [8, 8, 0, 0],
		scales: {
			x: { time: false },
			y: look.percent ? { range: [0, 1] } : { range: (_, low, high) => roomy(low, high) },
		},
		axes: [
			{
				...axis,
				incrs: look.by === "time" ? TIME_STEPS : undefined,
				size: 24,
				gap: 3,
				values: (_, ticks) => ticks.map((t) => (look.by === "steps" ? tick(t) : shortTime(t))),
			},
			{
				...axis,
				size: 48,
				gap: 4,
				values: (_, ticks) => ticks.map((t) => (look.percent ? `${Math.round(t * 100)} %` : tick(t))),
			},
		],
		series: [{}, ...pale, ...look.lines.map((one, i) => series(one, i))],
		bands: look.bands.map((band, i) => ({ series: [1 + 2 * i, 2 + 2 * i], fill: `${band.color}2e` })),
		cursor: {
			sync: look.group ? { key: look.group } : undefined,
			drag: { x: true, y: false, setScale: false },
			points: { size: 6 },
			y: false,
		},
		hooks: {
			setCursor: [(plot) => look.hovered(plot.cursor.idx ?? null)],
			setSelect: [
				(plot) => {
					const { left, width } = plot.select;
					if (width < 4) return;
					look.zoomed([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
					plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
				},
			],
			ready: [(plot) => plot.over.addEventListener("dblclick", () => look.zoomed(null))],
		},
	};
}

function series(line: Line, index: number): uPlot.Series {
	const color = line.color ?? colorOf(index);
	return {
		label: line.label,
		stroke: line.faint ? `${color}55` : color,
		width: line.faint ? 1 : 1.6,
		fill: line.filled ? color : undefined,
		spanGaps: true,
		points: { show: false },
	};
}

function roomy(low: number | null, high: number | null): [number, number] {
	if (low === null || high === null) return [0, 1];
	const room = (high - low || Math.abs(high) || 1) * 0.06;
	return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function shortTime(seconds: number): string {
	if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
	if (seconds < 7200) return `${Number((seconds / 60).toFixed(1))} m`;
	return `${Number((seconds / 3600).toFixed(1))} h`;
}

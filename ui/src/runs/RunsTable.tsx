/** Rows of runs; only those on the screen exist, so thousands scroll well. */

import { Checkbox } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import type { RunView } from "../api/client";
import { age, count, measure, when } from "../format";
import type { SortKey } from "../routes";
import { StateBadge } from "../shell/states";
import { useNow } from "../shell/useNow";
import { Sparkline } from "./Sparkline";

const ROW = 40;

interface Column {
	label: string;
	sort?: SortKey;
	right?: boolean;
	wide?: boolean;
}

const COLUMNS: Column[] = [
	{ label: "Run", sort: "run" },
	{ label: "State", sort: "state" },
	{ label: "Environment", sort: "environment", wide: true },
	{ label: "Algorithm", wide: true },
	{ label: "Curve", wide: true },
	{ label: "Return", sort: "mean_return", right: true },
	{ label: "Steps", sort: "steps", right: true, wide: true },
	{ label: "Steps/s", sort: "steps_per_second", right: true, wide: true },
	{ label: "Age", sort: "created_at", right: true },
];

interface Props {
	runs: RunView[];
	sort: string;
	onSort: (sort: SortKey | `-${SortKey}`) => void;
	chosen: ReadonlySet<string>;
	onChoose: (run: string) => void;
	onEnd: () => void;
	more: boolean;
}

export function RunsTable({ runs, sort, onSort, chosen, onChoose, onEnd, more }: Props) {
	const scroll = useRef<HTMLDivElement>(null);
	const now = useNow(5000);
	const rows = useVirtualizer({
		count: runs.length,
		getScrollElement: () => scroll.current,
		estimateSize: () => ROW,
		overscan: 12,
		getItemKey: (index) => runs[index]?.run ?? index,
	});
	const items = rows.getVirtualItems();
	const last = items.at(-1)?.index ?? 0;
	useEffect(() => {
		if (more && last >= runs.length - 60) onEnd();
	}, [more, last, runs.length, onEnd]);
	return (
		<div
			ref={scroll}
			className="rows panel"
			role="table"
			aria-label="Runs"
			aria-rowcount={more ? -1 : runs.length + 1}
			// biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
			tabIndex={0}
			style={{ maxHeight: "calc(100vh - 190px)", minHeight: 120 }}
		>
			<div className="row head runs-grid" role="row" aria-rowindex={1}>
				<span role="columnheader" aria-label="Choose to compare" />
				{COLUMNS.map((column) => (
					<Head key={column.label} column={column} sort={sort} onSort={onSort} />
				))}
			</div>
			<div style={{ height: rows.getTotalSize(), position: "relative" }} role="rowgroup">
				{items.map((item) => {
					const run = runs[item.index];
					return (
						run && (
							<div
								key={item.key}
								className="row body runs-grid numbers"
								role="row"
								aria-rowindex={item.index + 2}
								style={{
									position: "absolute",
									top: 0,
									left: 0,
									right: 0,
									transform: `translateY(${item.start}px)`,
								}}
							>
								<Cells run={run} now={now} chosen={chosen.has(run.run)} onChoose={onChoose} />
							</div>
						)
					);
				})}
			</div>
		</div>
	);
}

function Head({ column, sort, onSort }: { column: Column; sort: string; onSort: Props["onSort"] }) {
	const key = column.sort;
	const down = sort === `-${key}`;
	const on = down || sort === key;
	const name = [column.right && "right", column.wide && "wide-only"].filter(Boolean).join(" ");
	return (
		<span
			role="columnheader"
			className={name}
			aria-sort={on ? (down ? "descending" : "ascending") : undefined}
		>
			{key ? (
				<button
					type="button"
					className="sort"
					aria-pressed={on}
					onClick={() => onSort(down ? key : `-${key}`)}
				>
					{column.label}
					{on ? (down ? " ↓" : " ↑") : ""}
				</button>
			) : (
				column.label
			)}
		</span>
	);
}

interface CellsProps {
	run: RunView;
	now: number;
	chosen: boolean;
	onChoose: (run: string) => void;
}

function Cells({ run, now, chosen, onChoose }: CellsProps) {
	return (
		<>
			<span role="cell">
				<Checkbox
					size="xs"
					aria-label={`Choose ${run.run} to compare`}
					checked={chosen}
					onChange={() => onChoose(run.run)}
				/>
			</span>
			<span role="cell" className="ellipsis">
				<Link to="/runs/$run" params={{ run: run.run }} className="plain" style={{ fontWeight: 550 }}>
					{run.run}
				</Link>
				{run.note && <span style={{ color: "var(--quiet)" }}> {run.note}</span>}
			</span>
			<span role="cell" title={run.reason ?? undefined}>
				<StateBadge state={run.state} />
			</span>
			<span role="cell" className="ellipsis wide-only">
				{run.environment}
			</span>
			<span role="cell" className="wide-only">
				{run.algorithm}
			</span>
			<span role="cell" className="wide-only">
				<Sparkline run={run} />
			</span>
			<span role="cell" className="right">
				{measure(run.mean_return)}
			</span>
			<span role="cell" className="right wide-only">
				{count(run.steps)}
			</span>
			<span role="cell" className="right wide-only">
				{run.updates ? count(run.steps_per_second) : "–"}
			</span>
			<span role="cell" className="right" title={when(run.created_at)}>
				{age(run.created_at, now)}
			</span>
		</>
	);
}

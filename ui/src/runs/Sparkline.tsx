/** A run's return at a glance. */

import { useQuery } from "@tanstack/react-query";
import type { RunView } from "../api/client";
import { RETURN, sparkQuery } from "../api/queries";
import { measure } from "../format";
import { LIVE_STATES } from "../shell/states";

const WIDTH = 100;
const HEIGHT = 24;

/** Points of a line through `values`, left to right, the largest on top. */
export function sparkPoints(values: number[]): string {
	const low = Math.min(...values);
	const span = Math.max(...values) - low || 1;
	const step = WIDTH / Math.max(1, values.length - 1);
	return values
		.map(
			(value, i) =>
				`${(i * step).toFixed(1)},${(HEIGHT - 3 - ((value - low) / span) * (HEIGHT - 6)).toFixed(1)}`,
		)
		.join(" ");
}

export function Sparkline({ run }: { run: RunView }) {
	const live = LIVE_STATES.includes(run.state);
	const { data } = useQuery({
		...sparkQuery(run.run),
		enabled: run.updates > 0,
		refetchInterval: live ? 5000 : false,
	});
	const values = (data?.columns[RETURN] ?? []).filter((value) => value !== null);
	if (live && run.mean_return !== null) values.push(run.mean_return);
	if (values.length < 2) return <span aria-hidden="true" />;
	const label = `Return from ${measure(values[0])} to ${measure(values.at(-1))}`;
	return (
		<svg width={WIDTH} height={HEIGHT} role="img" aria-label={label}>
			<polyline
				points={sparkPoints(values)}
				fill="none"
				stroke="var(--mantine-primary-color-filled)"
				strokeWidth="1.5"
				strokeLinejoin="round"
			/>
		</svg>
	);
}

/** Large numbers side by side, each with its name. */

import { Text } from "@mantine/core";

export interface Fact {
	name: string;
	value: string;
	/** Small words below, such as a share or a size. */
	note?: string;
}

export function Facts({ label, facts, columns }: { label: string; facts: Fact[]; columns?: number }) {
	const style = columns ? { gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` } : undefined;
	return (
		<section className="panel facts" style={style} aria-label={label}>
			{facts.map(({ name, value, note }) => (
				<div key={name}>
					<Text fz="xs" c="dimmed">
						{name}
					</Text>
					<div className="value">{value}</div>
					{note && (
						<Text fz="xs" c="dimmed">
							{note}
						</Text>
					)}
				</div>
			))}
		</section>
	);
}

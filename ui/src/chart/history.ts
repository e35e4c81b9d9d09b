/** What a run measured, as columns; holds a bounded number of points however long the run is. */

export type Columns = Record<string, (number | null)[]>;

export const MOST_POINTS = 2400;
const FRESH = 400;

export class History {
	columns: Columns = { steps: [], seconds: [], time: [] };

	static of(columns: Columns): History {
		const history = new History();
		history.append(columns);
		return history;
	}

	get length(): number {
		return this.columns.steps?.length ?? 0;
	}

	/** Add newer reports. Where steps go back the run was resumed: what lay beyond is dropped. */
	append(news: Columns): void {
		const steps = news.steps ?? [];
		const first = steps[0];
		if (first == null) return;
		this.dropFrom(first);
		const before = this.length;
		for (const name of new Set([...Object.keys(this.columns), ...Object.keys(news)])) {
			const column = this.columns[name] ?? new Array<number | null>(before).fill(null);
			this.columns[name] = column;
			for (let i = 0; i < steps.length; i++) column.push(news[name]?.[i] ?? null);
		}
		if (this.length > MOST_POINTS) this.thin();
	}

	private dropFrom(step: number): void {
		const steps = this.columns.steps ?? [];
		let keep = steps.length;
		while (keep > 0 && (steps[keep - 1] ?? 0) >= step) keep -= 1;
		if (keep < steps.length) for (const column of Object.values(this.columns)) column.length = keep;
	}

	/** Half of the old points go; the newest stay as they are. */
	private thin(): void {
		const old = this.length - FRESH;
		for (const [name, column] of Object.entries(this.columns))
			this.columns[name] = column.filter((_, i) => i >= old || i % 2 === 0);
	}
}

/** Exponential moving average; `weight` 0 leaves all as it is, 0.99 is very smooth. Corrected for its start. */
export function smoothed(values: (number | null)[], weight: number): (number | null)[] {
	if (weight <= 0) return values;
	let last = 0;
	let scale = 0;
	return values.map((value) => {
		if (value === null) return null;
		last = last * weight + value * (1 - weight);
		scale = scale * weight + (1 - weight);
		return last / scale;
	});
}

/** Several columns as parts of their sum, each on top of those before it. */
export function stacked(columns: (number | null)[][]): {
	shares: (number | null)[][];
	tops: (number | null)[][];
} {
	const length = columns[0]?.length ?? 0;
	const shares = columns.map(() => new Array<number | null>(length).fill(null));
	const tops = columns.map(() => new Array<number | null>(length).fill(null));
	for (let i = 0; i < length; i++) {
		const sum = columns.reduce((total, column) => total + (column[i] ?? 0), 0);
		if (sum <= 0) continue;
		let top = 0;
		columns.forEach((column, k) => {
			const share = (column[i] ?? 0) / sum;
			top += share;
			(shares[k] as (number | null)[])[i] = share;
			(tops[k] as (number | null)[])[i] = top;
		});
	}
	return { shares, tops };
}

/** A curve's values at the places of a shared axis, in between on the straight line; null outside of it. */
export function aligned(x: number[], steps: number[], values: (number | null)[]): (number | null)[] {
	let at = 0;
	return x.map((place) => {
		while (at < steps.length - 1 && (steps[at + 1] ?? 0) <= place) at += 1;
		const [left, right] = [steps[at], steps[at + 1]];
		const [low, high] = [values[at] ?? null, values[at + 1] ?? null];
		if (left === undefined || place < left) return null;
		if (place === left || low === null) return low;
		if (right === undefined || high === null) return null;
		return low + ((high - low) * (place - left)) / (right - left);
	});
}

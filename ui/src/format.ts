/** Numbers, times and sizes as people read them. */

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(value: number | null | undefined): string {
	if (value == null || !Number.isFinite(value)) return "–";
	return Math.abs(value) < 10_000 ? plain.format(value) : compact.format(value);
}

/** A number at an axis: 1.25M must not read as 1.3M beside 1.5M. */
export function tick(value: number): string {
	return Math.abs(value) < 10_000 ? measure(value) : fine.format(value);
}

/** A measured number, with about four digits. */
export function measure(value: number | null | undefined): string {
	if (value == null || !Number.isFinite(value)) return "–";
	if (value === 0) return "0";
	const size = Math.abs(value);
	if (size >= 10_000) return compact.format(value);
	if (size < 0.001) return value.toExponential(2);
	return String(Number(value.toPrecision(4)));
}

export function bytes(value: number): string {
	const units = ["B", "kB", "MB", "GB", "TB"];
	let unit = 0;
	let rest = value;
	while (rest >= 1000 && unit < units.length - 1) {
		rest /= 1000;
		unit += 1;
	}
	return `${unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${units[unit]}`;
}

/** How long something short took. */
export function milliseconds(seconds: number): string {
	return seconds < 0.001 ? "less than 1 ms" : `${Number((seconds * 1000).toPrecision(2))} ms`;
}

/** How long something very short took. */
export function microseconds(value: number): string {
	return value < 1000 ? `${Math.round(value)} µs` : `${Number((value / 1000).toPrecision(2))} ms`;
}

/** A share of one, as 0.4 % or 45 %. */
export function percent(share: number): string {
	const value = share * 100;
	return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} %`;
}

export function duration(seconds: number): string {
	if (!Number.isFinite(seconds)) return "–";
	const s = Math.max(0, seconds);
	if (s < 10) return `${s.toFixed(1)} s`;
	if (s < 60) return `${Math.round(s)} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
	if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
	return `${Math.floor(s / 86_400)} d ${Math.round((s % 86_400) / 3600)} h`;
}

/** As a stop watch shows it: 2:44, 1:02:44. */
export function clock(seconds: number): string {
	const s = Math.max(0, Math.floor(seconds));
	const two = (value: number) => String(value).padStart(2, "0");
	const hours = Math.floor(s / 3600);
	const minutes = Math.floor(s / 60) % 60;
	return hours ? `${hours}:${two(minutes)}:${two(s % 60)}` : `${minutes}:${two(s % 60)}`;
}

/** How long ago, in one unit. */
export function age(at: number, now = Date.now() / 1000): string {
	const s = Math.max(0, now - at);
	if (s < 5) return "now";
	if (s < 60) return `${Math.floor(s)} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min`;
	if (s < 86_400) return `${Math.floor(s / 3600)} h`;
	return `${Math.floor(s / 86_400)} d`;
}

export function when(at: number): string {
	return new Date(at * 1000).toLocaleString("sv-SE"); // 2026-11-16 04:55:24, in local time
}

export function text(value: unknown): string {
	return typeof value === "string" ? value : JSON.stringify(value);
}

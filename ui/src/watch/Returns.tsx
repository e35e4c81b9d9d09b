/** The returns of the last episodes as bars, newest at the right. */

import { measure } from "../format";

const MOST = 20;
const HEIGHT = 72;
const WIDTH = 240;

export function Returns({ returns }: { returns: (number | null)[] }) {
	const known = returns.filter((value) => value !== null);
	const low = Math.min(0, ...known);
	const high = Math.max(0, ...known, low + 1e-9);
	const y = (value: number) => 1 + ((high - value) / (high - low)) * (HEIGHT - 2);
	const each = WIDTH / MOST;
	const told = known.length
		? `Returns of the last ${returns.length} episodes: ${returns.map(measure).join(", ")}`
		: "No episode has ended yet";
	return (
		<svg
			className="returns"
			viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
			preserveAspectRatio="none"
			role="img"
			aria-label={told}
		>
			<line x1={0} x2={WIDTH} y1={y(0)} y2={y(0)} className="axis" />
			{returns.map((value, index) => {
				if (value === null) return null;
				const top = Math.min(y(value), y(0));
				return (
					<rect
						// biome-ignore lint/suspicious/noArrayIndexKey: bars have places, not names
						key={index}
						x={(MOST - returns.length + index) * each + 1.5}
						width={each - 3}
						y={top}
						height={Math.max(1.5, Math.abs(y(value) - y(0)))}
						className={index === returns.length - 1 ? "newest" : undefined}
					/>
				);
			})}
		</svg>
	);
}

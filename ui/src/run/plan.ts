/** Which charts a run has, from the names its learner reports. */

export interface ChartPlan {
	title: string;
	names: { name: string; label: string }[];
	stacked?: boolean;
}

export interface ChartGroup {
	title: string;
	charts: ChartPlan[];
	open: boolean;
}

const one = (title: string, name: string): ChartPlan => ({ title, names: [{ name, label: title }] });

const PROGRESS = [
	one("Return", "charts/episodic_return"),
	one("Episode length", "charts/episodic_length"),
	one("Steps per second", "charts/SPS"),
];
const LEARNING_TITLES: Record<string, string> = {
	"losses/policy_loss": "Policy loss",
	"losses/value_loss": "Value loss",
	"losses/entropy": "Entropy",
	"losses/approx_kl": "KL divergence",
	"losses/explained_variance": "Explained variance",
	"losses/clipfrac": "Clipped fraction",
	"losses/grad_norm": "Gradient norm",
};
const KNOWN = new Set(["charts/episodic_return", "charts/episodic_length", "charts/SPS"]);

export function planCharts(names: string[]): ChartGroup[] {
	const has = new Set(names);
	const starting = (prefix: string) => names.filter((name) => name.startsWith(prefix) && !KNOWN.has(name));
	const rank = Object.keys(LEARNING_TITLES);
	const losses = starting("losses/").sort((a, b) => place(rank, a) - place(rank, b));
	const evaluations = starting("eval");
	const times = (title: string, prefix: string): ChartPlan => ({
		title,
		names: starting(prefix).map((name) => ({ name, label: name.slice(prefix.length) })),
		stacked: true,
	});
	const groups: ChartGroup[] = [
		{
			title: "Progress",
			open: true,
			charts: [...PROGRESS, ...evaluations.map((name) => one(spoken(name), name))],
		},
		{
			title: "Learning",
			open: true,
			charts: losses.map((name) => one(LEARNING_TITLES[name] ?? spoken(name), name)),
		},
		{
			title: "Speed",
			open: true,
			charts: [
				one("Policy lag", "pace/lag"), // versions; not one axis with records, which are thousands
				one("Records waiting", "stream/lag"),
				times("Where the learner's time goes", "seconds/learner/"),
				times("Where the actors' time goes", "seconds/actors/"),
			],
		},
		{
			title: "Hyperparameters",
			open: false,
			charts: starting("charts/").map((name) => one(spoken(name), name)),
		},
		{
			title: "Accounting and stream",
			open: false,
			charts: [
				...starting("accounting/"),
				...starting("stream/").filter((name) => name !== "stream/lag"),
			].map((name) => one(spoken(name), name)),
		},
	];
	return groups
		.map((group) => ({
			...group,
			charts: group.charts
				.map((chart) => ({ ...chart, names: chart.names.filter(({ name }) => has.has(name)) }))
				.filter((chart) => chart.names.length > 0),
		}))
		.filter((group) => group.charts.length > 0);
}

function place(rank: string[], name: string): number {
	const at = rank.indexOf(name);
	return at < 0 ? rank.length : at;
}

function spoken(name: string): string {
	const last = name.replace(/^(losses|charts|accounting|evaluation|eval)\//, "").replaceAll(/[_/]/g, " ");
	return last.charAt(0).toUpperCase() + last.slice(1);
}

/** Whether an algorithm can choose the actions of an environment, before a run would find out. */

import { useQuery } from "@tanstack/react-query";
import type { AlgorithmView } from "../api/client";
import { algorithmsQuery, environmentQuery, environmentsQuery } from "../api/queries";
import { valueAt, type Wish } from "./wish";

/** Those that can choose such actions. */
export const fitting = (action: string, algorithms: AlgorithmView[]) =>
	algorithms.filter((one) => one.actions.includes(action)).map((one) => one.name);

/** What to say where it cannot; null where it can, or where nobody knows. */
export function misfit(
	name: string,
	environment: string,
	action: string | undefined,
	algorithms: AlgorithmView[],
): string | null {
	const chosen = algorithms.find((one) => one.name === name);
	if (!chosen || !action || chosen.actions.includes(action)) return null;
	const others = fitting(action, algorithms);
	const advice = others.length ? `: use ${others.join(" or ")}` : "";
	return `${name} needs ${chosen.actions.join(" or ")} actions; ${environment} has ${action}${advice}`;
}

/** Of the environment in a whole spec. */
export function useMisfit(spec: Wish | undefined, environment: string, algorithm: string): string | null {
	const { data: algorithms = [] } = useQuery(algorithmsQuery);
	const { data: environments = [] } = useQuery(environmentsQuery);
	const known = environments.some((one) => one.id === environment && one.installed);
	const { data } = useQuery({
		...environmentQuery(environment),
		enabled: known && isPlain(spec, environment),
		retry: 2,
	});
	if (!isPlain(spec, environment)) return null;
	return misfit(algorithm, environment, (data?.action as { kind?: string } | null)?.kind, algorithms);
}

/** With arguments or wrappers its actions may be others than those that are listed. */
function isPlain(spec: Wish | undefined, environment: string): boolean {
	const part = (spec?.environment ?? {}) as Wish;
	const kwargs = valueAt(spec, ["environment", "kwargs"]) ?? {};
	const wrappers = valueAt(spec, ["environment", "wrappers"]) ?? [];
	return part.id === environment && Object.keys({ ...(kwargs as Wish), ...(wrappers as Wish) }).length === 0;
}

import { stringify } from "yaml";

export function Yaml({ value }: { value: unknown }) {
	return <pre className="panel code">{stringify(value)}</pre>;
}

/** The part of JSON Schema that specs use: what a field is, how its text is read, and what is wrong with it. */

export interface Schema {
	type?: string;
	title?: string;
	description?: string;
	default?: unknown;
	examples?: unknown[];
	enum?: unknown[];
	anyOf?: Schema[];
	$ref?: string;
	properties?: Record<string, Schema>;
	required?: string[];
	items?: Schema | false;
	minimum?: number;
	maximum?: number;
	exclusiveMinimum?: number;
	exclusiveMaximum?: number;
	pattern?: string;
	minItems?: number;
	maxItems?: number;
	$defs?: Record<string, Schema>;
}

/** A schema with its reference followed; what stands beside the reference wins. */
export function follow(schema: Schema, root: Schema): Schema {
	if (!schema.$ref) return schema;
	const name = schema.$ref.split("/").at(-1) ?? "";
	const { $ref: _, ...beside } = schema;
	return { ...follow(root.$defs?.[name] ?? {}, root), ...beside };
}

export type FieldKind = "switch" | "choice" | "text" | "group";

export function kindOf(schema: Schema): FieldKind {
	if (schema.properties) return "group";
	if (schema.type === "boolean") return "switch";
	if (schema.enum) return "choice";
	return "text";
}

const isNumber = (schema: Schema) => schema.type === "number" || schema.type === "integer";
const options = (schema: Schema): Schema[] => schema.anyOf ?? [schema];

/** A value as one types it. */
export function typed(value: unknown): string {
	if (value === null || value === undefined) return "";
	if (typeof value === "string") return value;
	return JSON.stringify(value);
}

/** The value that a text means to a field; throws a sentence when it means none. */
export function read(text: string, schema: Schema): unknown {
	const said = text.trim();
	const kinds = options(schema);
	if (said === "") {
		if (kinds.some((one) => one.type === "null")) return null;
		if (kinds.some((one) => one.type === "string")) return "";
		throw new Error("a value is needed");
	}
	if (kinds.some(isNumber) && /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(said)) return Number(said);
	if (kinds.some((one) => one.type === "array" || one.type === "object")) {
		try {
			return JSON.parse(said);
		} catch {
			throw new Error(`must be JSON, such as ${typed(schema.default) || "[]"}`);
		}
	}
	if (kinds.some((one) => one.type === "string" || one.enum)) return said;
	throw new Error(
		kinds.some((one) => one.type === "integer") ? "must be a whole number" : "must be a number",
	);
}

/** What is wrong with a value, as a sentence; null when nothing is. */
export function fault(value: unknown, schema: Schema): string | null {
	const kinds = options(schema);
	const faults = kinds.map((one) => simpleFault(value, one));
	if (faults.includes(null)) return null;
	const close = kinds.findIndex((one) => typeMatches(value, one));
	return faults[Math.max(close, 0)] ?? null;
}

function typeMatches(value: unknown, schema: Schema): boolean {
	if (schema.enum) return schema.enum.includes(value);
	switch (schema.type) {
		case "null":
			return value === null;
		case "integer":
		case "number":
			return typeof value === "number";
		case "array":
			return Array.isArray(value);
		case "object":
			return typeof value === "object" && value !== null && !Array.isArray(value);
		case undefined:
			return true;
		default:
			return typeof value === schema.type;
	}
}

const NAMES: Record<string, string> = {
	integer: "a whole number",
	number: "a number",
	string: "text",
	boolean: "true or false",
	array: "a list",
	object: "an object",
	null: "empty",
};

function simpleFault(value: unknown, schema: Schema): string | null {
	if (!typeMatches(value, schema))
		return schema.enum
			? `must be one of ${schema.enum.join(", ")}`
			: `must be ${NAMES[schema.type ?? ""] ?? schema.type}`;
	if (typeof value === "number") return numberFault(value, schema);
	if (typeof value === "string" && schema.pattern && !new RegExp(schema.pattern).test(value))
		return "is not written as it must be (for example lin_3e-4)";
	if (Array.isArray(value)) return listFault(value, schema);
	return null;
}

function numberFault(value: number, schema: Schema): string | null {
	if (!Number.isFinite(value)) return "must be a finite number";
	if (schema.type === "integer" && !Number.isInteger(value)) return "must be a whole number";
	if (schema.minimum !== undefined && value < schema.minimum) return `must be at least ${schema.minimum}`;
	if (schema.maximum !== undefined && value > schema.maximum) return `must be at most ${schema.maximum}`;
	if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum)
		return `must be more than ${schema.exclusiveMinimum}`;
	if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum)
		return `must be less than ${schema.exclusiveMaximum}`;
	return null;
}

function listFault(list: unknown[], schema: Schema): string | null {
	if (schema.minItems !== undefined && list.length < schema.minItems) return `needs ${schema.minItems} items`;
	if (!schema.items) return null;
	const wrong = list.findIndex((item) => fault(item, schema.items as Schema) !== null);
	return wrong < 0 ? null : `item ${wrong + 1} ${fault(list[wrong], schema.items)}`;
}

export const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

import "@testing-library/jest-dom/vitest";
import { cleanup } from "@testing-library/react";
import { afterEach } from "vitest";

afterEach(cleanup);

// Mantine asks for what happy-dom does not have
Object.assign(document, { fonts: { addEventListener() {}, removeEventListener() {} } });
window.matchMedia ??= ((query: string) => ({
	matches: false,
	media: query,
	addEventListener() {},
	removeEventListener() {},
})) as unknown as typeof window.matchMedia;
globalThis.ResizeObserver ??= class {
	observe() {}
	unobserve() {}
	disconnect() {}
} as unknown as typeof ResizeObserver;

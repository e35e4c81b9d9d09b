import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const server = process.env.PENSTOCK_SERVER ?? "http://127.0.0.1:8080";

export default defineConfig({
	plugins: [react()],
	build: {
		outDir: "../src/penstock/server/page",
		emptyOutDir: true,
		target: "es2022",
		modulePreload: { polyfill: false },
		assetsInlineLimit: 0, // data: addresses are not in our Content-Security-Policy
	},
	server: { proxy: { "/api": { target: server, ws: true, changeOrigin: true } } },
	test: {
		environment: "happy-dom",
		setupFiles: ["src/testing.ts"],
		css: false,
		include: ["src/**/*.test.{ts,tsx}"],
	},
});

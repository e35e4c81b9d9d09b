/**
 * Completes package-lock.json: `npm ci` wants an entry for the builds of every platform, and a registry that mirrors
 * one platform only leaves the others out. Theirs are pinned by version, without a hash. Run: node scripts/lock.mjs
 */
import { readFileSync, writeFileSync } from "node:fs";

const PLACE = new URL("../package-lock.json", import.meta.url);
const lock = JSON.parse(readFileSync(PLACE, "utf8"));
const SYSTEMS = [
	"android",
	"darwin",
	"freebsd",
	"linux",
	"netbsd",
	"openbsd",
	"openharmony",
	"sunos",
	"win32",
];
const CPUS = {
	arm64: "arm64",
	x64: "x64",
	ia32: "ia32",
	"arm-": "arm",
	ppc64: "ppc64",
	s390x: "s390x",
	riscv64: "riscv64",
	loong64: "loong64",
	wasm32: "wasm32",
};

let added = 0;
for (const entry of Object.values(lock.packages)) {
	for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
		const key = `node_modules/${name}`;
		if (lock.packages[key] || !/^\d/.test(version)) continue;
		const os = SYSTEMS.find((system) => name.includes(system));
		const cpu = Object.entries(CPUS).find(([word]) => name.includes(word))?.[1];
		if (!os && !cpu) throw new Error(`${name} names no platform; add it by hand`);
		lock.packages[key] = {
			version,
			...(cpu ? { cpu: [cpu] } : {}),
			dev: true,
			...(name.includes("musl") ? { libc: ["musl"] } : {}),
			optional: true,
			...(os ? { os: [os] } : {}),
		};
		added += 1;
	}
}
const sorted = Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1));
lock.packages = Object.fromEntries(sorted);
writeFileSync(PLACE, `${JSON.stringify(lock, null, 2)}\n`);
console.log(`${added} builds for other platforms added`);

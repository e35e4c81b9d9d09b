/** The few pictures this page needs; each is decoration beside words or a label. */

const PATHS = {
	runs: "M4 6h16M4 12h16M4 18h10",
	add: "M12 5v14M5 12h14",
	compare: "M4 18 9 9l4 5 7-9M4 20h16",
	environments: "M4 7l8-4 8 4v10l-8 4-8-4zM4 7l8 4 8-4M12 11v10",
	settings:
		"M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM4 12h2M18 12h2M12 4v2M12 18v2M6.3 6.3l1.4 1.4M16.3 16.3l1.4 1.4M17.7 6.3l-1.4 1.4M7.7 16.3l-1.4 1.4",
	audit: "M6 3h9l4 4v14H6zM9 11h7M9 15h7",
	sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M19 5l-1.4 1.4M6.4 17.6 5 19",
	moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z",
	play: "M7 4v16l13-8z",
	pause: "M8 5v14M16 5v14",
	stop: "M6 6h12v12H6z",
	record: "M12 5a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM12 10a2 2 0 1 0 0 4 2 2 0 0 0 0-4z",
	save: "M5 4h11l3 3v13H5zM8 4v5h7V4M8 20v-6h8v6",
	more: "M5 12h.01M12 12h.01M19 12h.01",
	download: "M12 4v11M7 11l5 5 5-5M5 20h14",
	undo: "M9 7 5 11l4 4M5 11h9a5 5 0 0 1 0 10h-3",
	trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
	search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 20 20",
	out: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
	fork: "M7 4v6a4 4 0 0 0 4 4h6M7 10v10M14 11l3 3-3 3",
	copy: "M9 9h11v11H9zM5 15V4h11",
	check: "M5 12.5 10 17 19 7",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
	return (
		<svg
			width={size}
			height={size}
			viewBox="0 0 24 24"
			fill="none"
			stroke="currentColor"
			strokeWidth={name === "more" ? 3 : 1.8}
			strokeLinecap="round"
			strokeLinejoin="round"
			aria-hidden="true"
		>
			<path d={PATHS[name]} />
		</svg>
	);
}

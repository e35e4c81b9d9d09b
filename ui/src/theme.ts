/** How everything looks: one calm accent, dense sizes, system fonts. */

import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from "@mantine/core";

const water: MantineColorsTuple = [
	"#e6f7fb",
	"#d3ebf2",
	"#a7d6e4",
	"#78c0d5",
	"#51adc8",
	"#39a1c0",
	"#2699ba",
	"#0f7f9e",
	"#086f8b",
	"#005d77",
];

export const theme = createTheme({
	colors: { water },
	primaryColor: "water",
	primaryShade: { light: 8, dark: 7 },
	defaultRadius: "sm",
	autoContrast: true,
	fontFamily: 'ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif',
	fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace',
	fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.125rem" },
	headings: { fontWeight: "600", sizes: { h1: { fontSize: "1.25rem" }, h2: { fontSize: "0.9375rem" } } },
	cursorType: "pointer",
	components: {
		// its placeholder for the focus stands among the items without a role
		Menu: { defaultProps: { withInitialFocusPlaceholder: false } },
		Modal: { defaultProps: { closeButtonProps: { "aria-label": "Close" } } },
		Drawer: { defaultProps: { closeButtonProps: { "aria-label": "Close" } } },
		Table: { defaultProps: { verticalSpacing: 6, fz: "sm" } },
		Tooltip: { defaultProps: { openDelay: 300, withArrow: true, fz: "xs" } },
		Button: { defaultProps: { size: "xs" } },
		TextInput: { defaultProps: { size: "xs" } },
		NumberInput: { defaultProps: { size: "xs" } },
		Select: { defaultProps: { size: "xs" } },
		MultiSelect: { defaultProps: { size: "xs" } },
	},
});

export const variables: CSSVariablesResolver = () => ({
	variables: {},
	// words in Mantine's own red, teal and yellow are too pale for their grounds
	light: {
		"--mantine-color-dimmed": "#5a6771",
		"--mantine-color-placeholder": "#6b7883",
		"--mantine-color-error": "#c02626",
		"--mantine-color-red-text": "#c02626",
		"--mantine-color-red-light-color": "#b32020",
		"--mantine-color-teal-light-color": "#06664a",
		"--mantine-color-yellow-light-color": "#7a4f00",
	},
	dark: {
		"--mantine-color-error": "#ff8787",
		"--mantine-color-dimmed": "#9aa7b1",
		"--mantine-color-placeholder": "#8a97a1",
		"--mantine-color-body": "#181c20",
		"--mantine-color-default": "#1f2429",
		"--mantine-color-default-border": "#39424a",
		"--mantine-color-text": "#dbe2e7",
	},
});

import type { ReactNode } from "react";

/** A panel that is wider than a narrow screen: it scrolls by itself, also by keyboard. */
export function Scroll({ label, children, top }: { label: string; children: ReactNode; top?: number }) {
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
		<section className="panel scroll-x" aria-label={label} tabIndex={0} style={{ marginTop: top }}>
			{children}
		</section>
	);
}

/** One person's visit. A token that expires hides the page and keeps it; only another person gets a new one. */

import { type QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { type ReactNode, useLayoutEffect, useState, useSyncExternalStore } from "react";
import { onSession, token, whyGone } from "../api/session";
import { LiveFeed, usePerson } from "../live/live";
import { SignIn } from "./SignIn";
import { Loading } from "./states";

interface Props {
	/** What was asked belongs to one person. */
	makeQueries: () => QueryClient;
	children: ReactNode;
}

export function Visit({ makeQueries, children }: Props) {
	const secret = useSyncExternalStore(onSession, token);
	const expired = useSyncExternalStore(onSession, whyGone) === "expired";
	if (secret === null && !expired) return <SignIn expired={false} />;
	return (
		<LiveFeed secret={secret}>
			<Kept signedIn={secret !== null} makeQueries={makeQueries}>
				{children}
			</Kept>
		</LiveFeed>
	);
}

function Kept({ signedIn, makeQueries, children }: Props & { signedIn: boolean }) {
	const { name } = usePerson(); // empty until the feed of this token has told
	const [owner, setOwner] = useState(() => ({ name: "", visit: 0, queries: makeQueries() }));
	if (name && name !== owner.name)
		setOwner(
			owner.name
				? { name, visit: owner.visit + 1, queries: makeQueries() } // what another one typed is not theirs
				: { ...owner, name },
		);
	const strange = signedIn && owner.name !== "" && name === "";
	const shown = signedIn && !strange;
	useHiddenDialogs(!shown);
	return (
		<>
			<div inert={!shown} style={shown ? undefined : { visibility: "hidden" }}>
				<QueryClientProvider key={owner.visit} client={owner.queries}>
					{children}
				</QueryClientProvider>
			</div>
			{!shown && <div className="over">{strange ? <Loading what="the page" /> : <SignIn expired />}</div>}
		</>
	);
}

/** Dialogs and menus hang at the end of the document, outside of what is hidden. */
function useHiddenDialogs(hide: boolean): void {
	useLayoutEffect(() => {
		if (!hide) return;
		const portals = [...document.body.querySelectorAll<HTMLElement>(":scope > [data-portal]")];
		for (const portal of portals) {
			portal.inert = true;
			portal.style.display = "none";
		}
		return () => {
			for (const portal of portals) {
				portal.inert = false;
				portal.style.display = "";
			}
		};
	}, [hide]);
}

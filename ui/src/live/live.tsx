/** The feed in React: one for the page, and hooks that listen to it. */

import {
	createContext,
	type ReactNode,
	useContext,
	useEffect,
	useRef,
	useState,
	useSyncExternalStore,
} from "react";
import { api } from "../api/client";
import { Feed, type Kind, type News, type Status } from "./feed";

const Context = createContext<Feed | null>(null);

/** One feed for each token; without one there is none, and what is shown stays as it is. */
export function LiveFeed({ secret, children }: { secret: string | null; children: ReactNode }) {
	const [feed, setFeed] = useState<Feed | null>(null);
	useEffect(() => {
		if (secret === null) return;
		const made = new Feed({
			open: (address) => new WebSocket(address),
			address: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/live`,
			token: () => secret,
			refused: askWhetherSignedIn,
		});
		made.connect();
		setFeed(made);
		const again = () => made.connect();
		window.addEventListener("online", again);
		return () => {
			window.removeEventListener("online", again);
			made.close();
			setFeed(null);
		};
	}, [secret]);
	return <Context.Provider value={feed}>{children}</Context.Provider>;
}

/** Whether it is the token that a WebSocket was refused for: then the answer signs out. */
export function askWhetherSignedIn(): void {
	api.GET("/api/v1/server").catch(() => {}); // away: the socket is tried again anyway
}

const never = () => () => {};

export function useLiveStatus(): Status {
	const feed = useContext(Context);
	return useSyncExternalStore(
		(changed) => (feed ? feed.onStatus(changed) : never()),
		() => feed?.status ?? "connecting",
	);
}

/** The server's words where it refused the feed. */
export function useRefusal(): string {
	const feed = useContext(Context);
	useLiveStatus();
	return feed?.words ?? "";
}

const RANKS = ["viewer", "operator", "admin"];

/** Whose token this is, as the feed told; empty until it has. */
export function usePerson(): { name: string; role: string; may: (role: string) => boolean } {
	const feed = useContext(Context);
	useLiveStatus();
	const role = feed?.role ?? "";
	return {
		name: feed?.name ?? "",
		role,
		may: (needed) => role === "" || RANKS.indexOf(role) >= RANKS.indexOf(needed),
	};
}

/** Call `news` for each message and `gap` when some were lost; `run` may be "*", or null for nothing. */
export function useNews(kind: Kind, run: string | null, news: (news: News) => void, gap: () => void): void {
	const feed = useContext(Context);
	const latest = useRef({ news, gap });
	latest.current = { news, gap };
	useEffect(() => {
		if (!feed || run === null) return;
		return feed.listen(
			kind,
			run,
			(one) => latest.current.news(one),
			() => latest.current.gap(),
		);
	}, [feed, kind, run]);
}

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
import { token } from "../api/session";
import { Feed, type Kind, type News, type Status } from "./feed";

const Context = createContext<Feed | null>(null);

export function LiveFeed({ children }: { children: ReactNode }) {
	const [feed, setFeed] = useState<Feed | null>(null);
	useEffect(() => {
		const made = new Feed({
			open: (address) => new WebSocket(address),
			address: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/live`,
			token,
		});
		made.connect();
		setFeed(made);
		const again = () => made.connect();
		window.addEventListener("online", again);
		return () => {
			window.removeEventListener("online", again);
			made.close();
		};
	}, []);
	return <Context.Provider value={feed}>{children}</Context.Provider>;
}

const never = () => () => {};

export function useLiveStatus(): Status {
	const feed = useContext(Context);
	return useSyncExternalStore(
		(changed) => (feed ? feed.onStatus(changed) : never()),
		() => feed?.status ?? "connecting",
	);
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

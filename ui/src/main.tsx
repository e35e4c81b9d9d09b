import "@mantine/core/styles.css";
import "./app.css";
import { MantineProvider } from "@mantine/core";
import { QueryClient } from "@tanstack/react-query";
import { createRouter, RouterProvider } from "@tanstack/react-router";
import { setNonce } from "get-nonce";
import { StrictMode, useEffect, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";
import { Problem } from "./api/client";
import { onSession, token } from "./api/session";
import { fetchPartsLater, routeTree } from "./routes";
import { Visit } from "./shell/Visit";
import { theme, variables } from "./theme";

const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
setNonce(nonce); // for the styles that open dialogs add

const makeQueries = () =>
	new QueryClient({
		defaultOptions: {
			queries: {
				retry: (failures, error) =>
					failures < 4 &&
					!(error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429),
				staleTime: 2000,
				refetchOnWindowFocus: false,
				networkMode: "always", // loopback works without a network
			},
			mutations: { networkMode: "always" },
		},
	});

const router = createRouter({ routeTree, defaultPreload: "intent" });

declare module "@tanstack/react-router" {
	interface Register {
		router: typeof router;
	}
}

function Page() {
	const signedIn = useSyncExternalStore(onSession, token) !== null;
	useEffect(() => (signedIn ? fetchPartsLater() : undefined), [signedIn]);
	return (
		<Visit makeQueries={makeQueries}>
			<RouterProvider router={router} />
		</Visit>
	);
}

const root = document.getElementById("root");
if (root)
	createRoot(root).render(
		<StrictMode>
			<MantineProvider
				theme={theme}
				cssVariablesResolver={variables}
				defaultColorScheme="auto"
				getStyleNonce={() => nonce}
			>
				<Page />
			</MantineProvider>
		</StrictMode>,
	);

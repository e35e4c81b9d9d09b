/** The frame of every page: where one can go, who is signed in, and whether the feed is live. */

import {
	ActionIcon,
	Alert,
	AppShell,
	Box,
	Burger,
	em,
	Group,
	Text,
	Tooltip,
	useComputedColorScheme,
	useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure, useMediaQuery } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { forgetToken } from "../api/session";
import { useLiveStatus, usePerson, useRefusal } from "../live/live";
import { Icon, type IconName } from "./icons";

const BREAKPOINT = 768;
const PLACES: { to: string; label: string; icon: IconName }[] = [
	{ to: "/runs", label: "Runs", icon: "runs" },
	{ to: "/new", label: "New run", icon: "add" },
	{ to: "/compare", label: "Compare", icon: "compare" },
	{ to: "/environments", label: "Environments", icon: "environments" },
	{ to: "/audit", label: "Audit", icon: "audit" },
	{ to: "/settings", label: "Settings", icon: "settings" },
];

export function Shell() {
	const [open, { toggle, close }] = useDisclosure();
	const { pathname } = useLocation();
	const narrow = useMediaQuery(`(max-width: ${em(BREAKPOINT - 0.1)})`) ?? false;
	useRefetchAfterOutage();
	useTitle(pathname);
	// biome-ignore lint/correctness/useExhaustiveDependencies: the menu closes whenever the place changes
	useEffect(close, [pathname]);
	return (
		<AppShell
			header={{ height: 48 }}
			navbar={{ width: 196, breakpoint: "sm", collapsed: { mobile: !open } }}
			padding="md"
		>
			<a className="skip" href="#main">
				Skip to content
			</a>
			<AppShell.Header px="md">
				<Group h="100%" justify="space-between" wrap="nowrap">
					<Group gap="sm" wrap="nowrap">
						<Burger
							opened={open}
							onClick={toggle}
							hiddenFrom="sm"
							size="sm"
							aria-label={open ? "Close menu" : "Open menu"}
						/>
						<Link to="/runs" className="plain" aria-label="Penstock, all runs">
							<Group gap={8} wrap="nowrap">
								<img src="/icon.svg" width={22} height={22} alt="" />
								<Text fw={650} fz="lg">
									Penstock
								</Text>
							</Group>
						</Link>
					</Group>
					<Group gap="xs" wrap="nowrap">
						<Connection />
						<SchemeSwitch />
						<SignOut />
					</Group>
				</Group>
			</AppShell.Header>
			<AppShell.Navbar p="xs" inert={narrow && !open}>
				<nav aria-label="Main">
					{PLACES.map((place) => (
						<Link key={place.to} to={place.to} className="nav-link">
							<Icon name={place.icon} />
							{place.label}
						</Link>
					))}
				</nav>
			</AppShell.Navbar>
			<AppShell.Main id="main" tabIndex={-1}>
				<Offline />
				<Outlet />
			</AppShell.Main>
		</AppShell>
	);
}

/** A run's page says more of itself. */
function useTitle(pathname: string) {
	useEffect(() => {
		if (pathname.startsWith("/runs/")) return;
		const place = PLACES.find(({ to }) => to === pathname);
		document.title = place ? `${place.label} · Penstock` : "Penstock";
	}, [pathname]);
}

function Connection() {
	const status = useLiveStatus();
	const color = status === "open" ? "teal.6" : status === "connecting" ? "gray.5" : "red.6";
	const label = { open: "Live", connecting: "Connecting", offline: "Offline", refused: "Refused" }[status];
	return (
		<Tooltip
			label={
				status === "open" ? "Numbers change as the server reports them" : "The live feed is not connected"
			}
		>
			<Group gap={6} wrap="nowrap" role="status" aria-label={`Live feed: ${label}`}>
				<Box w={8} h={8} bg={color} style={{ borderRadius: 8 }} />
				<Text fz="xs" c="dimmed">
					{label}
				</Text>
			</Group>
		</Tooltip>
	);
}

function Offline() {
	const status = useLiveStatus();
	const words = useRefusal();
	if (status === "refused")
		return (
			<Alert color="yellow" variant="light" mb="md" title="The server refuses the live feed" role="alert">
				{words} Numbers do not change by themselves for now; it is tried again.
			</Alert>
		);
	if (status !== "offline") return null;
	return (
		<Alert color="red" variant="light" mb="md" title="The server cannot be reached" role="alert">
			What you see is as of when it was lost. Training goes on without this page; it comes back by itself,
			with what was missed.
		</Alert>
	);
}

/** What was asked while the server was away, or may have changed meanwhile, is asked again. */
function useRefetchAfterOutage() {
	const status = useLiveStatus();
	const queries = useQueryClient();
	const lost = useRef(false);
	const opened = useRef(false);
	useEffect(() => {
		if (status === "offline" || (status !== "open" && opened.current)) lost.current = true;
		if (status === "open") opened.current = true;
		if (status === "open" && lost.current) {
			lost.current = false;
			queries.invalidateQueries();
		}
	}, [status, queries]);
}

function SchemeSwitch() {
	const scheme = useComputedColorScheme("light");
	const { setColorScheme } = useMantineColorScheme();
	const other = scheme === "dark" ? "light" : "dark";
	return (
		<Tooltip label={`Switch to ${other}`}>
			<ActionIcon
				variant="subtle"
				color="gray"
				onClick={() => setColorScheme(other)}
				aria-label={`Switch to ${other} colours`}
			>
				<Icon name={scheme === "dark" ? "sun" : "moon"} />
			</ActionIcon>
		</Tooltip>
	);
}

function SignOut() {
	const person = usePerson();
	return (
		<Group gap={4} wrap="nowrap">
			{person.name && (
				<Text fz="xs" c="dimmed" visibleFrom="sm">
					{person.name}, {person.role}
				</Text>
			)}
			<Tooltip label="Sign out">
				<ActionIcon variant="subtle" color="gray" onClick={() => forgetToken("left")} aria-label="Sign out">
					<Icon name="out" />
				</ActionIcon>
			</Tooltip>
		</Group>
	);
}

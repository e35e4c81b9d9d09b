/** Sign in with a token. It is checked first, and kept only when it is right. */

import { Alert, Button, Center, Checkbox, Code, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { Problem, problemOf } from "../api/client";
import { keepToken } from "../api/session";

async function check(secret: string): Promise<void> {
	let response: Response;
	try {
		response = await fetch("/api/v1/server", { headers: { Authorization: `Bearer ${secret}` } });
	} catch {
		throw new Problem(0, "No connection", "The server does not answer. Is `penstock up` running?");
	}
	if (response.status === 401)
		throw new Problem(401, "Wrong token", "This token is not known here, or it was revoked or has expired.");
	if (!response.ok) throw problemOf(response.status, await response.json().catch(() => null));
}

export function SignIn({ expired }: { expired: boolean }) {
	const [secret, setSecret] = useState("");
	const [remember, setRemember] = useState(false);
	const [problem, setProblem] = useState<Problem | null>(null);
	const [busy, setBusy] = useState(false);

	async function submit(event: FormEvent) {
		event.preventDefault();
		const value = secret.trim();
		if (!/^[\x21-\x7e]+$/.test(value)) {
			setProblem(new Problem(401, "Not a token", "A token is one word that begins with pst_."));
			return;
		}
		setBusy(true);
		setProblem(null);
		try {
			await check(value);
			keepToken(value, remember);
		} catch (error) {
			setProblem(error instanceof Problem ? error : new Problem(0, "Refused", String(error)));
		} finally {
			setBusy(false);
		}
	}

	return (
		<Center mih="100vh" p="md" component="main">
			<form onSubmit={submit} className="panel" style={{ width: "100%", maxWidth: 400, padding: 28 }}>
				<Stack gap="md">
					<Stack gap={4} align="center">
						<img src="/icon.svg" width={44} height={44} alt="" />
						<Title order={1}>Penstock</Title>
						<Text c="dimmed" ta="center">
							See and steer training
						</Text>
					</Stack>
					{expired && !problem && (
						<Alert color="yellow" variant="light" role="status">
							Your token is no longer valid. Sign in again: the page stays where it was, with all you typed.
						</Alert>
					)}
					<PasswordInput
						label="Token"
						description={
							<>
								<Code>penstock up</Code> printed it at its first start; it is also in{" "}
								<Code>~/.penstock/token</Code>
							</>
						}
						placeholder="pst_…"
						value={secret}
						onChange={(event) => setSecret(event.currentTarget.value)}
						error={problem?.message}
						autoComplete="current-password"
						data-autofocus
						autoFocus
						required
						withAsterisk={false}
					/>
					<Checkbox
						label="Remember on this computer"
						description="Otherwise the token is forgotten when you close the tab."
						checked={remember}
						onChange={(event) => setRemember(event.currentTarget.checked)}
						size="xs"
					/>
					<Button type="submit" size="sm" loading={busy} disabled={!secret.trim()}>
						Sign in
					</Button>
					<Text fz="xs" c="dimmed">
						No token? Ask an admin: <Code>penstock token create NAME --role viewer</Code>
					</Text>
				</Stack>
			</form>
		</Center>
	);
}

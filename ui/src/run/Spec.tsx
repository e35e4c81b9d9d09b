/** The whole spec of a run, every default written out. */

import { Button, CopyButton, Group } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { stringify } from "yaml";
import type { RunDetail } from "../api/client";
import { Icon } from "../shell/icons";

export function Spec({ detail }: { detail: RunDetail }) {
	const yaml = stringify(detail.spec);
	return (
		<>
			<Group gap="xs" mb="xs">
				<CopyButton value={yaml}>
					{({ copied, copy }) => (
						<Button
							variant="default"
							leftSection={<Icon name={copied ? "check" : "copy"} size={14} />}
							onClick={copy}
						>
							{copied ? "Copied" : "Copy"}
						</Button>
					)}
				</CopyButton>
				<Button
					variant="default"
					renderRoot={(props) => <Link to="/new" search={{ from: detail.run }} {...props} />}
				>
					New run with this spec
				</Button>
			</Group>
			<pre className="panel code">{yaml}</pre>
		</>
	);
}

"""`penstock mcp`: what an AI assistant starts to steer runs."""

import sys
from typing import Annotated

from cyclopts import Parameter


def mcp(*, read_only: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Serve the Model Context Protocol on standard input and output, for Claude and other assistants.

    It uses the running server; where none runs it starts one in the background, which stays (penstock down).
    Everything else is said on standard error. Over HTTP the server speaks MCP itself, at /mcp.

    Example: `claude mcp add penstock -- penstock mcp`

    Parameters
    ----------
    read_only
        The assistant may look at everything and change nothing.
    """
    import os

    from penstock import config, remote
    from penstock.loop.presence import server_of
    from penstock.server.bridge import Bridge
    from penstock.up import start_server

    home = config.home()
    address = os.environ.get("PENSTOCK_SERVER")
    if address is None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        presence = server_of(home)
        address = presence.address if presence is not None else start_server(home)
    print(f"penstock mcp: using the server at {address}", file=sys.stderr)
    Bridge(address.rstrip("/"), remote.token(home), read_only).run()

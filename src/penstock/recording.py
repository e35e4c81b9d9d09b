"""Commands about recorded episodes: through the server where one runs, else straight from the run's folder."""

import time
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, PenstockError, Unavailable
from penstock.flags import Checkpoint, Json
from penstock.look import read_from

RECORD_SECONDS = 900.0


def play(
    run: str, /, *, gif: Path, checkpoint: Checkpoint = "best", seed: int = 0, json: Json = False
) -> None:
    """Record one episode as a GIF; a server plays it and keeps it among the run's recordings.

    Example: `penstock play cartpole-k3v9 --gif cartpole.gif`
    """
    from penstock import config, remote
    from penstock.envs.make import refuse_client
    from penstock.loop.media import record
    from penstock.loop.runs import RunFolder
    from penstock.view import print_json

    server = remote.server(config.home())
    if server is not None:
        made = _played(server, run, {"checkpoint": checkpoint, "seed": seed}, gif)
        return print_json(made) if json else print(_text(made))
    folder = RunFolder.open(config.home(), run)
    refuse_client(folder.spec().environment)
    recording = record(folder, folder.choose(checkpoint), gif, seed)
    return print_json(recording) if json else print(recording.text())


def recordings(run: str, /, *, json: Json = False) -> None:
    """List the recorded episodes of a run; `penstock play` makes one.

    Example: `penstock recordings cartpole-k3v9`
    """
    from penstock.view import print_json

    found = read_from(f"/runs/{run}/recordings", {}, lambda reads: reads.recordings(run))
    if json:
        return print_json(found)
    return print("\n".join(map(_text, found)) or f"{run} has no recordings; penstock play {run} --gif FILE")


def _text(one: dict[str, Any]) -> str:
    """One line for people."""
    name = one.get("file") or one["id"][:12]
    if one["state"] != "done":
        return f"{name}: {one['state']}{': ' + one['reason'] if one['reason'] else ''} (checkpoint {one['checkpoint']})"
    return (
        f"{name}: return {_number(one['total_reward'])} in {one['length']:,} steps "
        f"({one['frames']} frames, {one['bytes'] / 1024:,.0f} KiB, checkpoint {one['checkpoint']})"
    )


def _played(server: Any, run: str, wish: dict[str, Any], gif: Path) -> dict[str, Any]:
    """Have the server record an episode, wait for it, and fetch it into `gif`."""
    from penstock.loop.files import write_atomically

    id = server.ask("POST", f"/runs/{run}/recordings", wish)["command"]["id"]
    until = time.monotonic() + RECORD_SECONDS
    while True:
        known: dict[str, Any] = next(
            (one for one in server.get(f"/runs/{run}/recordings") if one["id"] == id), {"state": "queued"}
        )
        if known["state"] == "failed":
            raise PenstockError(f"the recording of {run} failed: {known['reason']}")
        if known["state"] == "done":
            break
        if time.monotonic() > until:
            raise Unavailable(
                f"the recording of {run} is not made yet; look later: penstock recordings {run}"
            )
        time.sleep(0.2)
    try:
        write_atomically(gif, server.download(f"/runs/{run}/recordings/{id}/download"))
    except OSError as error:
        raise ConfigError(f"the picture {gif} cannot be written: {error.strerror or error}") from error
    return {**known, "file": str(gif)}  # as one that was made without a server tells it


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"

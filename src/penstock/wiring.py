"""Where the parts are put together: which stream, which executor."""

from pathlib import Path

from penstock.logs import Log
from penstock.loop.registry import RunRecord, find
from penstock.model.spec import StreamSpec
from penstock.stream.base import Stream
from penstock.stream.embedded import EmbeddedStream


def open_stream(home: Path, spec: StreamSpec | None = None) -> Stream:
    """The log under `home`; with the run's own disk budget where its spec is known."""
    if spec is None:
        return EmbeddedStream(home / "stream", on_event=_tell)
    return EmbeddedStream(home / "stream", budget_bytes=spec.budget_bytes, on_event=_tell)


def _tell(event: str, fields: dict[str, str]) -> None:
    Log(process="stream").warning(event, **fields)


def join(home: Path, run: str) -> tuple[Stream, RunRecord]:
    """The stream and the record of a run that somebody has registered."""
    record = find(open_stream(home), run)
    return open_stream(home, record.spec.stream), record

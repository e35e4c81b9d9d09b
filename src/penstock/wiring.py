"""Where the parts are put together: which stream, which executor."""

import os
from pathlib import Path

import msgspec

from penstock.errors import ConfigError
from penstock.logs import Log
from penstock.loop.registry import RunRecord, find
from penstock.model.spec import KAFKA_URL, StreamSpec, shown_url
from penstock.stream.base import Stream
from penstock.stream.embedded import EmbeddedStream

STREAM = "PENSTOCK_STREAM"
"""Names the stream of processes that are not told otherwise; a keeper sets it for its workers."""


def open_stream(home: Path, spec: StreamSpec | None = None) -> Stream:
    """The log that a spec names; without one, what PENSTOCK_STREAM names, or the embedded log."""
    spec = spec or StreamSpec(url=default_url())
    if spec.url == "embedded":
        return EmbeddedStream(home / "stream", budget_bytes=spec.budget_bytes, on_event=_tell)
    if not KAFKA_URL.fullmatch(spec.url):
        raise ConfigError(
            f"{shown_url(spec.url)!r} is no known stream; use 'embedded' or 'kafka://HOST:PORT'"
        )
    try:
        from penstock.stream.kafka import KafkaStream  # an extra: only where it is used
    except ImportError as error:
        raise ConfigError(f"{spec.url} needs Kafka's client; pip install 'penstock[kafka]'") from error
    return KafkaStream(spec.url, spec.kafka, on_event=_tell)


def default_url() -> str:
    return os.environ.get(STREAM) or "embedded"


def join(home: Path, run: str) -> tuple[Stream, RunRecord]:
    """The stream and the record of a run that somebody has registered, perhaps on another host.

    The stream is opened under the address that this process knows it by, with the run's own settings.
    """
    first = open_stream(home)
    record = find(first, run)
    spec = msgspec.structs.replace(record.spec.stream, url=default_url())
    if spec == StreamSpec(url=default_url()):
        return first, record
    first.close()
    return open_stream(home, spec), record


def _tell(event: str, fields: dict[str, str]) -> None:
    Log(process="stream").warning(event, **fields)

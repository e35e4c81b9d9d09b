"""`penstock topics`: what lies in a stream, and making and removing it by hand."""

import sys
from typing import Annotated, Any

from cyclopts import App, Parameter

from penstock.errors import ConfigError, NotFound, nearest
from penstock.flags import Json, Set, StreamUrl, assignments

topics = App(
    name="topics",
    help="Look at a stream's topics, make them beforehand where Penstock may not, and remove a run's.",
    help_format="markdown",
)
DryRun = Annotated[bool, Parameter("--dry-run", negative="", help="Only say what would be done.")]


@topics.command(name="list")
def list_(*, stream: StreamUrl = None, json: Json = False) -> None:
    """List the topics of a stream with their partitions, records and bytes.

    Example: `penstock topics list --stream kafka://broker:9092`
    """
    from penstock.model.topics import is_ours
    from penstock.view import print_json, table

    with _opened(stream) as log:
        found = [info for info in log.topics() if is_ours(info.name)]
    if json:
        print_json([_facts(info) for info in found])
    elif not found:
        print("no topics yet; a run makes its own")
    else:
        rows = [(info.name, str(info.partitions), str(info.replication), f"{info.records:,}", _bytes(info.bytes),
                 _kept(info.policy)) for info in found]  # fmt: skip
        print(table(("topic", "partitions", "copies", "records", "bytes", "kept"), rows, right={1, 2, 3, 4}))


@topics.command
def describe(topic: str, /, *, stream: StreamUrl = None, json: Json = False) -> None:
    """Tell everything about one topic, its newest record included.

    Example: `penstock topics describe experiences.cartpole-k3v9`
    """
    from penstock.view import print_json

    with _opened(stream) as log:
        known = {info.name: info for info in log.topics()}
        if topic not in known:
            raise NotFound(f"there is no topic {topic!r} in this stream{nearest(topic, known)}")
        facts = _facts(known[topic]) | {"end": log.end(topic), "newest": _newest(log, topic)}
    if json:
        print_json(facts)
    else:
        for name, value in facts.items():
            print(f"{name:<12} {value}")


@topics.command
def create(
    source: str, /, *, name: str, stream: StreamUrl = None, sets: Set = None, dry_run: DryRun = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Make all topics that a run needs, for clusters where only some may: then train with the same name.

    Example: `penstock topics create spec.yaml --name lander-1 --stream kafka://broker:9092 --dry-run`, then
    `penstock train spec.yaml --name lander-1 --stream kafka://broker:9092 --set stream.kafka.create=false`

    Parameters
    ----------
    source
        An environment id or a spec file, as for train: partitions, copies and retention stand in it.
    name
        The run's id.
    """
    from penstock import config
    from penstock.loop.registry import topics_of
    from penstock.view import print_json

    said = {} if stream is None else {"stream.url": stream}
    spec = config.resolve(source, assignments(sets) | said)
    wanted = topics_of(name, spec)
    if not dry_run:
        with _opened_as(spec.stream) as log:
            for topic, policy in wanted.items():
                log.ensure(topic, policy)
    if json:
        print_json([{"topic": topic, "kept": _kept(policy)} for topic, policy in wanted.items()])
        return
    for topic, policy in wanted.items():
        print(
            f"{'would make' if dry_run else 'made'} {topic}  ({policy.partitions} partitions, {_kept(policy)})"
        )


@topics.command
def delete(
    run: str, /, *, stream: StreamUrl = None, dry_run: DryRun = False,
    yes: Annotated[bool, Parameter(["--yes", "-y"], negative="", help="Do not ask.")] = False, json: Json = False,
) -> None:  # fmt: skip
    """Remove the topics of a run, and with them all its experience. Its checkpoints stay.

    Example: `penstock topics delete cartpole-k3v9 --dry-run`
    """
    from penstock.control import verbs
    from penstock.model.topics import run_of
    from penstock.view import print_json

    with _opened(stream) as log:
        found = log.topics()
        doomed = [info for info in found if run_of(info.name) == run]
        if not doomed and not verbs.is_registered(log, run):
            known = {other for info in found if (other := run_of(info.name))}
            raise NotFound(f"no topic of this stream belongs to a run {run!r}{nearest(run, known)}")
        if not dry_run:
            _confirm(f"{len(doomed)} topics with {sum(info.records for info in doomed):,} records", yes)
            verbs.remove_topics(_home(), run, log)
    if json:
        print_json([info.name for info in doomed])
    for info in [] if json else doomed:
        print(f"{'would remove' if dry_run else 'removed'} {info.name}  ({info.records:,} records)")


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"this removes {what} for good; say --yes to do it, --dry-run to look first")
    if input(f"Remove {what} for good? [y/N] ").strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was removed")


def _home() -> Any:
    from penstock import config

    return config.home()


def _opened(url: str | None) -> Any:
    from penstock.model.spec import StreamSpec

    return _opened_as(StreamSpec(url=url or "embedded"))


def _opened_as(spec: Any) -> Any:
    from contextlib import closing

    from penstock.wiring import open_stream

    return closing(open_stream(_home(), spec))


def _facts(info: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {"topic": info.name, "partitions": info.partitions, "copies": info.replication,
            "records": info.records, "bytes": info.bytes, **asdict(info.policy)}  # fmt: skip


def _newest(log: Any, topic: str) -> str:
    """What the newest record is, in words."""
    from penstock.errors import Damaged
    from penstock.model.codec import open_frame
    from penstock.stream.base import Record

    end = log.end(topic)
    reader = log.reader(topic, {partition: max(0, offset - 1) for partition, offset in end.items()})
    found: list[Record] = []
    for _ in end:
        found += reader.read(len(end), 2.0)
        if len(found) >= len(end):
            break
    reader.close()
    if not found:
        return "none"
    record = found[-1]
    try:
        kind = open_frame(record.value).schema.name.lower()
    except Damaged as error:
        kind = f"no record of ours ({error})"
    return f"{kind}, key {record.key!r}, {len(record.value):,} bytes, at {record.partition}/{record.offset}"


def _kept(policy: Any) -> str:
    parts = []
    if policy.compact:
        parts.append("newest of each key")
    if policy.retention_bytes is not None:
        parts.append(_bytes(policy.retention_bytes))
    if policy.retention_seconds is not None:
        parts.append(f"{policy.retention_seconds / 86400:g} days")
    return ", ".join(parts) or "everything"


def _bytes(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"

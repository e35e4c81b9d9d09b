"""What people see of a keeper: a snapshot while it runs, one line when it ended."""

from typing import TYPE_CHECKING, Any

from penstock.loop.display import Snapshot
from penstock.model.run import RunStatus

if TYPE_CHECKING:
    from penstock.loop.keeper import Keeper

SHARES = {
    "actors/environment": "environment",
    "actors/policy": "policy",
    "actors/stream": "stream",
    "actors/waiting": "waiting",
    "learner/learning": "learning",
    "learner/waiting": "waiting",
}


def snapshot(keeper: "Keeper") -> Snapshot:
    """The keeper's newest knowledge."""
    status, report, stop = keeper.status, keeper.heard.report, keeper.spec.stop
    values = report.get("values", {})
    return Snapshot(
        run=status.run,
        state=status.state,
        environment=status.environment,
        algorithm=status.algorithm,
        steps=report.get("steps", status.steps),
        seconds=report.get("seconds", status.seconds),
        mean_return=values.get("charts/episodic_return", status.mean_return),
        returns=tuple(keeper.heard.returns),
        mean_length=values.get("charts/episodic_length"),
        episodes=report.get("episodes", status.episodes),
        steps_per_second=keeper.heard.steps_per_second,
        version=report.get("version", status.version),
        lag=values.get("pace/lag"),
        updates=report.get("updates", status.updates),
        actors=len(report.get("roster", ())),
        restarts=keeper.restarts,
        stop_steps=stop.steps,
        stop_target=stop.target,
        stop_seconds=stop.seconds,
        stop_updates=stop.updates,
        shares=shares(values),
        stream=_stream_facts(keeper, values),
        events=[_sentence(event) for event in keeper.events],
    )


def _stream_facts(keeper: "Keeper", values: dict[str, float]) -> dict[str, float]:
    """What the stream row shows."""
    waits = values.get("stream/waits", 0) + keeper.heard.flow()["stream/actors/waits"]
    return {
        "lag": values.get("stream/lag", 0),
        "bytes_per_second": keeper.heard.bytes_per_second,
        "dead_letters": values.get("accounting/dead_letters", 0),
        "waits": waits,
    }


def shares(values: dict[str, float]) -> dict[str, float]:
    """Where the time of actors and learner went, as parts of 1."""
    sums: dict[str, float] = {}
    for name, part in SHARES.items():
        sums[part] = sums.get(part, 0.0) + values.get(f"seconds/{name}", 0.0)
    total = sum(sums.values())
    return {part: seconds / total for part, seconds in sums.items()} if total else {}


def summary(status: RunStatus) -> dict[str, Any]:
    """The last line of `penstock train --json`."""
    names = (
        "run", "state", "reason", "steps", "episodes", "mean_return", "updates", "version", "seconds",
        "steps_per_second", "weights_sha256", "checkpoint",
    )  # fmt: skip
    return {name: getattr(status, name) for name in names}


def _sentence(event: dict[str, Any]) -> str:
    words = {name: value for name, value in event.items() if name not in ("time", "process", "event")}
    details = ", ".join(f"{name} {value}" for name, value in words.items())
    return f"{event['process']}: {event['event'].replace('_', ' ')}" + (f" ({details})" if details else "")

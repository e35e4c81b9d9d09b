"""`make faults`: the kill and outage campaigns at length, and a report for `docs/faults.md`."""

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.brokers import shared_broker
from tests.faults.applications import Undisturbed, judge_times, killed_beside
from tests.faults.campaign import CAMPAIGNS, Outcome
from tests.faults.commands import Siege, besieged
from tests.faults.crowd import Crowd, crowded
from tests.faults.outages import Outage, broker_killed, link_cut, one_of_three
from tests.faults.poison import poisoned

REPORT = Path(__file__).parents[2] / "docs" / "faults.md"
OUTAGES: dict[str, Callable[[Path, int, int], Outage]] = {
    "broker": broker_killed,
    "three": one_of_three,
    "links": link_cut,
}


def main() -> int:
    options = _options()
    sections, broken = [], []
    for name, campaign in ALL.items():
        if options.only and name not in options.only:
            continue
        seeds = range(1, (options.seeds if name in CAMPAIGNS else options.outage_seeds) + 1)
        strikes = options.kills if name in CAMPAIGNS else options.outages
        strikes = {"server": options.server_kills, "gateway": options.gateway_kills}.get(name, strikes)
        for seed in seeds:
            with tempfile.TemporaryDirectory(prefix="penstock-faults-", ignore_cleanup_errors=True) as home:
                try:
                    sections.append((name, campaign(Path(home), seed, strikes)))
                    print(row(sections[-1][1]), flush=True)
                except AssertionError as error:
                    broken.append(f"{name}, seed {seed}: {error}")
                    print(f"BROKEN {broken[-1]}", flush=True)
    if not options.only:
        REPORT.write_text(report([outcome for _, outcome in sections], broken))
        print(f"wrote {REPORT}")
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults ARGS=…", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kill campaign")
    parser.add_argument("--kills", type=int, default=20, help="kills in each of them")
    parser.add_argument("--outage-seeds", type=int, default=1, help="runs of each outage campaign")
    parser.add_argument("--outages", type=int, default=10, help="outages in each of them")
    parser.add_argument("--server-kills", type=int, default=100, help="kills of the server among commands")
    parser.add_argument(
        "--gateway-kills", type=int, default=20, help="kills of the gateway beside an application"
    )
    parser.add_argument(
        "--only", choices=sorted(ALL), action="append", help="these campaigns, without a report"
    )
    return parser.parse_args()


def _poison(home: Path, seed: int, _: int) -> Outcome:
    """1,000 bad records among 100,000 good ones."""
    began = time.monotonic()
    with shared_broker() as broker:
        facts = poisoned(home, broker, good=100_000, bad=1_000, updates=2_000, seed=seed)
    return Outcome(f"poison, seed {seed}", {"bad records": 1_000}, facts, time.monotonic() - began)


def _server(home: Path, seed: int, kills: int) -> Siege:
    """Twenty commands for each kill."""
    return besieged(home, seed, kills, commands=20 * kills)


def _gateway(home: Path, seed: int, kills: int) -> Undisturbed:
    outcome = killed_beside(home, seed, kills)
    judge_times(outcome)
    return outcome


def _crowd(home: Path, seed: int, _: int) -> Crowd:
    """A thousand connections, eight policies, five minutes."""
    return crowded(home, seed, connections=1_000, seconds=300)


Campaign = Outcome | Outage | Siege | Undisturbed | Crowd
ALL: dict[str, Callable[[Path, int, int], Campaign]] = {
    **CAMPAIGNS,
    **OUTAGES,
    "poison": _poison,
    "server": _server,
    "gateway": _gateway,
    "crowd": _crowd,
}


def report(outcomes: Iterable[Campaign], broken: list[str]) -> str:
    found = list(outcomes)
    sieges = [outcome for outcome in found if isinstance(outcome, Siege)]
    kills = [outcome for outcome in found if isinstance(outcome, Outcome)]
    outages = [outcome for outcome in found if isinstance(outcome, Outage)]
    lines = [
        "# Faults",
        "",
        f"Written by `make faults` on {time.strftime('%Y-%m-%d')}, Python {platform.python_version()}: "
        f"{len(found)} campaigns, {len(broken)} broken promises.",
        "",
        "The judge is `tests/faults/checker.py`: it compares what actors were acknowledged (a journal beside the",
        "log), what the log holds and what the history says was used. Planted bugs prove that it catches what it",
        "should (`tests/faults/test_checker.py`).",
        "",
        "## Processes killed",
        "",
        "`kill -9` of the learner, an actor, the keeper, or all at once. *Synchronous* runs must end with the same",
        "weights hash as a run that was left alone; *overlapped* runs must account for every rollout once. *Poison*:",
        "corrupt and foreign records in the log; each must become a dead letter with a reason, and end nobody.",
        "",
        "| campaign | strikes | updates | rollouts | used | duplicates | epochs | seconds | weights |",
        "|---|---|---|---|---|---|---|---|---|",
        *[row(outcome) for outcome in kills],
        "",
        "## Brokers killed, links cut",
        "",
        "Real Kafka, real network namespaces. *To go on*: from the moment the broker answers again, or the link is",
        "mended, to the second update after it. Every acknowledged rollout is in the log and accounted for once.",
        "",
        "| campaign | strikes | to go on, median (max) | longest pause | acknowledged | in the log | used "
        "| restarts | memory, settled → greatest |",
        "|---|---|---|---|---|---|---|---|---|",
        *[row(outcome) for outcome in outages],
        "",
        "## The server killed among commands",
        "",
        "Clients send commands under keys of their own, some again and again, while the server is killed with",
        "`kill -9` and started again. Each must have one answer, one line in the audit trail and one effect in keeper",
        "and learner, in the order of the log; what is wanted must be the sum of the log.",
        "",
        "| campaign | kills | commands | accepted | requests sent | written to the log | twice | seconds |",
        "|---|---|---|---|---|---|---|---|",
        *[row(outcome) for outcome in sieges],
        "",
        "## The gateway killed beside an application",
        "",
        "An application decides through our client, about a thousand times a second, while its policy is trained and",
        "the gateway is killed with `kill -9` and started again. Beside it a bare loop calls a policy of the same",
        "size: what the machine allows. Versions must not go back; what was acknowledged must be stored once.",
        "",
        "| campaign | kills | decisions | p99.9 (bare) | slowest (bare) | acknowledged = stored | updates | seconds |",
        "|---|---|---|---|---|---|---|---|",
        *[row(outcome) for outcome in found if isinstance(outcome, Undisturbed)],
        "",
        "## A crowd",
        "",
        "A thousand connections share eight policies for five minutes; one message in twenty is sent twice. No call",
        "may fail, the gateway's memory must stay, and every acknowledged trajectory must be accounted for once.",
        "",
        "| campaign | connections | calls | acknowledged | packed | stale | updates | p99 of Send | memory | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *[row(outcome) for outcome in found if isinstance(outcome, Crowd)],
        "",
        *[f"- **broken**: {line}" for line in broken],
    ]
    return "\n".join(lines).rstrip() + "\n"


def row(outcome: Campaign) -> str:
    facts = outcome.facts
    if isinstance(outcome, Siege):
        return (
            f"| {outcome.name} | {outcome.kills} | {outcome.asked} | {outcome.accepted} | {outcome.sent} "
            f"| {outcome.written} | {facts['written twice']} | {outcome.seconds:.0f} |"
        )
    if isinstance(outcome, Undisturbed):
        return (
            f"| {outcome.name} | {outcome.kills} | {outcome.decisions:,} "
            f"| {outcome.p999 * 1e3:.2f} ms ({outcome.bare_p999 * 1e3:.2f} ms) "
            f"| {outcome.slowest * 1e3:.1f} ms ({outcome.bare_slowest * 1e3:.1f} ms) | {facts['stored']} "
            f"| {facts['updates']} | {outcome.seconds:.0f} |"
        )
    if isinstance(outcome, Crowd):
        calls = sum(outcome.calls[method] for method in ("Open", "Send", "Fetch"))
        memory = f"{outcome.memory[len(outcome.memory) // 3]:.0f} → {outcome.memory[-1]:.0f} MB"
        return (
            f"| {outcome.name} | {outcome.connections} | {calls:,} | {facts['acknowledged']:,} | {facts['packed']:,} "
            f"| {facts['stale']:,} | {facts['updates']} | {outcome.slowest['Send']:.2f} s | {memory} "
            f"| {outcome.seconds:.0f} |"
        )
    if isinstance(outcome, Outage):
        times = sorted(outcome.recoveries)
        back = f"{times[len(times) // 2]:.1f} s ({times[-1]:.1f} s)" if times else "–"
        memory = ", ".join(
            f"{name.split(' ', 1)[1].split(' ')[0]} {settled:.0f} → {greatest:.0f} MB"
            for name, (settled, greatest) in outcome.memory.items()
        )
        return (
            f"| {outcome.name} | {outcome.strikes} | {back} | {outcome.longest_pause:.1f} s "
            f"| {facts['acknowledged']} | {facts['rollouts']} | {facts['used']} | {facts['restarts']} | {memory} |"
        )
    kills = ", ".join(f"{count} {name}" for name, count in sorted(outcome.kills.items()))
    weights = "equal" if facts.get("equal") else "–"
    return (
        f"| {outcome.name} | {kills} | {facts['updates']} | {facts['rollouts']} | {facts['used']} "
        f"| {facts['duplicates']} | {facts['epochs']} | {outcome.seconds:.0f} | {weights} |"
    )


if __name__ == "__main__":
    sys.exit(main())

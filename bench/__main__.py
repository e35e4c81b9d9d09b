"""`python -m bench`: measure Penstock side by side with its peers. See bench/README.md."""

import argparse
import os
import sys
from pathlib import Path

from bench import client, control, cpp, deltas, kafka, learn, limit, micro, race, report, sustained, venvs

SECTIONS = ("race", "limit", "sustained", "micro", "learn", "kafka", "control", "client", "cpp", "deltas")


def main() -> int:
    arguments = _arguments()
    out = arguments.out
    (out / "logs").mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    if load > report.QUIET_LOAD:
        print(
            f"warning: the load is {load:.1f}; numbers mean little unless the machine is quiet",
            file=sys.stderr,
        )
    if arguments.section == "setup":
        for peer in arguments.peers:
            venvs.ensure(peer)
        return 0
    if arguments.section != "report":
        report.save(out, "machine", report.machine())
    for section in SECTIONS if arguments.section == "all" else (arguments.section,):
        if section in SECTIONS:
            report.save(out, section, _measure(section, arguments))
    print(report.report(out, arguments.publish))
    return 0


def _measure(section: str, arguments: argparse.Namespace) -> object:
    out, quick = arguments.out, arguments.quick
    if section == "race":
        outcomes = race.race(arguments.environments, arguments.peers, arguments.seeds, out, arguments.cold)
        return race.as_json(outcomes)
    if section == "limit":
        return {name: limit.measure(name, 2.0 if quick else 10.0) for name in arguments.environments}
    if section == "sustained":
        rounds, seconds, limit_seconds = (1, 30.0, 3.0) if quick else (3, 90.0, 10.0)
        return sustained.measure(out, rounds, seconds, limit_seconds)
    if section == "micro":
        return micro.measure(out, quick)
    if section == "client":
        turns, seconds = (1, 2.0) if quick else (7, 6.0)
        peers = tuple(peer for peer in arguments.peers if peer in client.SAMPLERS)
        return client.measure(out, turns, seconds, peers)
    if section == "cpp":
        return cpp.measure(out.resolve(), 1 if quick else 5)
    if section == "deltas":
        return deltas.measure(*((4, 1) if quick else (30, 3)))
    if section == "control":
        return control.measure(quick)
    if section == "kafka":
        rounds, seconds, records = (1, 25.0, 100) if quick else (3, 60.0, 500)
        return kafka.measure(out, rounds, seconds, records)
    return learn.measure(out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("section", nargs="?", default="all", choices=("all", *SECTIONS, "report", "setup"))
    parser.add_argument(
        "--peers", type=_names, default=venvs.DEFAULT_PEERS, help=f"of {', '.join(venvs.PEERS)}"
    )
    parser.add_argument("--seeds", type=int, default=5, help="how often each contestant trains")
    parser.add_argument(
        "--environments", type=_names, default=tuple(race.TARGETS), help="of CartPole-v1, LunarLander-v3"
    )
    parser.add_argument("--out", type=Path, default=Path("bench/out"), help="where numbers and logs go")
    parser.add_argument(
        "--cold", action="store_true", help="race with an empty compilation cache for every seed"
    )
    parser.add_argument(
        "--quick", action="store_true", help="short windows; says whether it works, not how fast"
    )
    parser.add_argument(
        "--publish", action="store_true", help="copy the report to docs/bench.md and docs/bench.png"
    )
    arguments = parser.parse_args()
    for given, known in ((arguments.peers, venvs.PEERS), (arguments.environments, tuple(race.TARGETS))):
        for name in given:
            if name not in known:
                parser.error(f"no {name!r}; there are: {', '.join(known)}")
    return arguments


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip().replace("-factory", "_factory") for part in text.split(",") if part.strip())


if __name__ == "__main__":
    raise SystemExit(main())

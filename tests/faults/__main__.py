"""`make faults`: the kill campaigns at length, and a report for `docs/faults.md`."""

import argparse
import platform
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.campaign import CAMPAIGNS, Outcome

REPORT = Path(__file__).parents[2] / "docs" / "faults.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults ARGS=…", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each campaign")
    parser.add_argument("--kills", type=int, default=20, help="kills in each run")
    parser.add_argument("--only", choices=sorted(CAMPAIGNS), help="one campaign")
    options = parser.parse_args()
    outcomes, broken = [], []
    for name, campaign in CAMPAIGNS.items():
        if options.only not in (None, name):
            continue
        for seed in range(1, options.seeds + 1):
            with tempfile.TemporaryDirectory(prefix="penstock-faults-") as home:
                try:
                    outcomes.append(campaign(Path(home), seed, options.kills))
                    print(row(outcomes[-1]), flush=True)
                except AssertionError as error:
                    broken.append(f"{name}, seed {seed}: {error}")
                    print(f"BROKEN {broken[-1]}", flush=True)
    REPORT.write_text(report(outcomes, broken))
    print(f"wrote {REPORT}")
    return 1 if broken else 0


def report(outcomes: list[Outcome], broken: list[str]) -> str:
    kills = sum(sum(outcome.kills.values()) for outcome in outcomes)
    lines = [
        "# Kill campaigns",
        "",
        f"Written by `make faults` on {time.strftime('%Y-%m-%d')}, Python {platform.python_version()}:",
        f"{len(outcomes)} runs, {kills} times `kill -9` (learner, an actor, the keeper, or all at once), "
        f"{len(broken)} broken promises.",
        "",
        "*Synchronous* runs must end with the same weights hash as a run that was left alone. *Overlapped* runs",
        "must account for every rollout in the log once. The judge is `tests/faults/checker.py`; planted bugs",
        "prove that it catches what it should (`tests/faults/test_checker.py`).",
        "",
        "| campaign | kills | updates | rollouts | used | duplicates | epochs | seconds | weights |",
        "|---|---|---|---|---|---|---|---|---|",
        *[row(outcome) for outcome in outcomes],
        "",
        *[f"- **broken**: {line}" for line in broken],
    ]
    return "\n".join(lines).rstrip() + "\n"


def row(outcome: Outcome) -> str:
    facts = outcome.facts
    kills = ", ".join(f"{count} {name}" for name, count in sorted(outcome.kills.items()))
    weights = "equal" if facts.get("equal") else "–"
    return (
        f"| {outcome.name} | {kills} | {facts['updates']} | {facts['rollouts']} | {facts['used']} "
        f"| {facts['duplicates']} | {facts['epochs']} | {outcome.seconds:.0f} | {weights} |"
    )


if __name__ == "__main__":
    sys.exit(main())

"""One decision of the C++ client, with versions coming in beside it."""

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from tests import cpp

PROMISED_US = 3.0


def measure(out: Path, turns: int = 5) -> dict[str, Any]:
    """Build it (Release) and time a million decisions, a few times; medians."""
    program = cpp.build(out / "cpp", "-DCMAKE_BUILD_TYPE=Release") / "bench" / "penstock_bench"
    said = [
        subprocess.run([program], check=True, capture_output=True, text=True).stdout for _ in range(turns)
    ]
    rows = [json.loads(line) for line in said]
    names = {"p50_ns": "p50_us", "p99_ns": "p99_us", "p999_ns": "p999_us", "max_ns": "slowest_us"}
    return {new: round(statistics.median(row[old] for row in rows) / 1000, 2) for old, new in names.items()}


def verdicts(facts: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    """A row for the promise."""
    if facts is None:
        return []
    held = "yes" if facts["p50_us"] <= PROMISED_US else "NO"
    return [("request_for_action in C++, p50, µs", f"≤ {PROMISED_US:g}", f"{facts['p50_us']:g}", held)]

"""All that was measured, as a table in Markdown, as JSON and as a picture."""

import json
import os
import platform
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import client, cpp, deltas
from bench.processes import ROOT
from bench.race import OURS, SB3_RATIO

QUIET_LOAD = 0.5
QUIET_SHARE = 0.1
"""Verdicts count only below these: load before the start; share of the processors used by others meanwhile."""
SECTIONS = (
    "machine",
    "race",
    "limit",
    "sustained",
    "micro",
    "learn",
    "kafka",
    "control",
    "client",
    "cpp",
    "deltas",
)


def machine() -> dict[str, Any]:
    """What it was measured on."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": names[0].partition(":")[2].strip() if names else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("penstock", "jax", "numpy", "gymnasium")},
    }


def save(out: Path, section: str, facts: Any) -> None:
    """Keep one section's numbers, so that sections can be measured one by one."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{section}.json").write_text(json.dumps(facts, indent=2) + "\n")


def report(out: Path, publish: bool = False) -> str:
    """Write bench.md, bench.json and bench.png from whatever sections there are; return the Markdown."""
    facts = {
        name: json.loads(path.read_text()) for name in SECTIONS if (path := out / f"{name}.json").exists()
    }
    text = markdown(facts)
    (out / "bench.json").write_text(json.dumps(facts, indent=2) + "\n")
    (out / "bench.md").write_text(text)
    if "race" in facts:
        _plot(facts, out / "bench.png")
    if publish:
        for suffix in ("md", "png"):
            if (out / f"bench.{suffix}").exists():
                shutil.copy(out / f"bench.{suffix}", ROOT / "docs" / f"bench.{suffix}")
    return text


def markdown(facts: dict[str, Any]) -> str:
    """The tables and the verdict on every promise."""
    parts = ["# Measured\n"]
    if "machine" in facts:
        about = facts["machine"]
        packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items())
        parts.append(
            f"{about['date']}, {about['cores']} cores of {about['processor']}, "
            f"Python {about['python']}, {packages}; "
            f"load before {about['load_before']:.1f}. How: [bench/README.md](../bench/README.md).\n"
        )
    if reason := noise(facts):
        parts.append(f"**Not valid: {reason}. Only whether algorithms learn can be read from this.**\n")
    if "race" in facts:
        parts.append(_race_table(facts))
        if any(row["lower_bound"] for row in facts["race"]["summary"]):
            parts.append("`>`: stopped there because it took more than the allowed multiple of our median.\n")
        parts.append("![time to the target](bench.png)\n")
    if "limit" in facts:
        head = ("physical limit", "cores", "steps/s", "unwrapped steps/s")
        rows = [(name, *(f"{value:,}" for value in row.values())) for name, row in facts["limit"].items()]
        parts.append(_table(head, rows))
    if "learn" in facts:
        parts.append(_learn_table(facts["learn"]))
    parts.append(_table(("promise", "needed", "measured", "held"), verdicts(facts)))
    return "\n".join(parts)


def _race_table(facts: dict[str, Any]) -> str:
    limits = facts.get("limit", {})
    rows = []
    for environment in dict.fromkeys(row["environment"] for row in facts["race"]["summary"]):
        here = (row for row in facts["race"]["summary"] if row["environment"] == environment)
        rows.extend(_race_row(row) for row in here)
        if environment in limits:
            speed = f"{limits[environment]['steps_per_second']:,.0f}"
            rows.append((environment, "physical limit: random actions", "-", "-", "-", "-", speed, "-", "-"))
    head = ("environment", "who", "median s", "× ours", "reached", "steps", "steps/s", "CPU s", "peak MB")
    return _table(head, rows)


def _race_row(row: dict[str, Any]) -> tuple[str, ...]:
    times = "1" if row["who"] == OURS else f"{row['times_ours']} ×" if row["times_ours"] else "-"
    return (
        row["environment"],
        row["who"],
        _seconds(row),
        times,
        f"{row['reached']} of {row['runs']}",
        f"{row['median_steps']:,.0f}",
        f"{row['steps_per_second']:,.0f}",
        f"{row['cpu_seconds']:.1f}",
        f"{row['peak_mb']:,.0f}",
    )


def _seconds(row: dict[str, Any]) -> str:
    if row["median_seconds"] is None:
        return "not reached"
    return f"{'> ' if row['lower_bound'] else ''}{row['median_seconds']:.1f}"


def _learn_table(rows: list[dict[str, Any]]) -> str:
    head = ("algorithm", "environment", "target", "seed", "mean return", "steps", "seconds")
    names = ("algorithm", "environment", "target", "seed", "mean_return", "steps", "seconds")
    return _table(head, [[row[name] for name in names] for row in rows])


def verdicts(facts: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """One row for each promise that was measured."""
    rows = [*_race_verdicts(facts.get("race"))]
    if sustained := facts.get("sustained"):
        ratio = sustained["ratio"]
        held = "yes" if ratio >= 0.65 else "above the floor, below the aim" if ratio >= 0.5 else "NO"
        name = "LunarLander-v3, sustained, share of the physical limit"
        # nothing steps faster than the limit: such a ratio says that the two were measured on different machines
        rows.append((name, "65 %; at least 50 %", f"{ratio:.0%}", held if ratio <= 1 else "not valid"))
    needed = {
        "decision_us": ("one decision, 64×64, µs", 15.0),
        "actor_own_mb": ("an actor's own memory, MB", 120.0),
        "version_loaded_p99_ms": ("version published → loaded, p99, ms", 20.0),
        "first_update_seconds": ("first update, warm cache, s", 6.0),
    }
    micro = facts.get("micro", {})
    for name, (words, most) in needed.items():
        if name in micro:
            rows.append((words, f"≤ {most:g}", f"{micro[name]:g}", _yes(micro[name] <= most)))
    if "stream_mb_per_second" in micro:
        speed = micro["stream_mb_per_second"]
        rows.append(("stream, 64 KiB records, MB/s", "≥ 500", f"{speed:,.0f}", _yes(speed >= 500)))
    rows += _kafka_verdicts(facts.get("kafka"))
    rows += _control_verdicts(facts.get("control"))
    rows += client.verdicts(facts.get("client")) + cpp.verdicts(facts.get("cpp"))
    rows += deltas.verdicts(facts.get("deltas"))
    for row in facts.get("learn", []):
        name = f"{row['algorithm']} learns {row['environment']} (seed {row['seed']})"
        rows.append((name, f"≥ {row['target']:g}", str(row["mean_return"]), _yes(row["reached"])))
    if noise(facts):
        rows = [row if " learns " in row[0] else (*row[:3], "not valid") for row in rows]
    return rows


def _control_verdicts(control: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    if control is None:
        return []
    crowd, acts, ten, down = control["crowd"], control["acts"], control["ten"], control["down"]
    slowest = max(acts["changed_max_ms"], acts["scaled_max_ms"])
    trouble = crowd["rest_errors"] + crowd["feed_errors"] + crowd["lost"]
    watched = f"training beside {crowd['viewers']:,} viewers and 20 requests/s"
    return [
        (watched, "≥ 95 %", f"{crowd['kept']:.0%}", _yes(crowd["kept"] >= 0.95)),
        (
            "REST reads meanwhile, p99",
            "≤ 250 ms",
            f"{crowd['rest_p99_ms']:.0f} ms",
            _yes(crowd["rest_p99_ms"] <= 250),
        ),
        ("errors and lost messages meanwhile", "0", str(trouble), _yes(trouble == 0)),
        ("a command acts on a running run, slowest", "≤ 1 s", f"{slowest:.0f} ms", _yes(slowest <= 1000)),
        (
            f"{ten['runs']} runs at once, REST p99",
            "≤ 1 s",
            f"{ten['p99_ms']:.0f} ms",
            _yes(ten["p99_ms"] <= 1000),
        ),
        (f"{ten['runs']} runs at once, done", "all", str(ten["done"]), _yes(ten["done"] == ten["runs"])),
        ("training while the server is down", "≥ 95 %", f"{down['kept']:.0%}", _yes(down["kept"] >= 0.95)),
    ]


def _kafka_verdicts(kafka: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    if kafka is None:
        return []
    ratio, read = kafka["ratio"], kafka["written_to_read_ms"]["kafka"]["p50"]
    loaded, speeds = kafka["version_loaded_p99_ms"]["kafka"], kafka["steps_per_second"]
    measured = f"{ratio:.0%} ({speeds['kafka']:,} of {speeds['embedded']:,} steps/s)"
    return [
        (f"{kafka['environment']}, two actors, Kafka over embedded", "≥ 90 %", measured, _yes(ratio >= 0.9)),
        ("Kafka: rollout written → read, p50, ms", "≤ 10", f"{read:g}", _yes(read <= 10)),
        ("Kafka: version published → loaded, p99, ms", "≤ 60", f"{loaded:g}", _yes(loaded <= 60)),
    ]


def noise(facts: dict[str, Any]) -> str:
    """Why no speed measured here may be believed; empty on a quiet machine."""
    load = facts.get("machine", {}).get("load_before", 0.0)
    others = max((row.get("others", 0.0) for row in facts.get("race", {}).get("summary", [])), default=0.0)
    if load <= QUIET_LOAD and others <= QUIET_SHARE:
        return ""
    return f"the machine was busy (load {load:.1f} before; others used up to {others:.0%} of the processors)"


def _race_verdicts(race: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    promised = {"CartPole-v1": SB3_RATIO["CartPole-v1"], "LunarLander-v3": 3.0}
    rows = []
    for row in race["summary"] if race else []:
        if row["who"] == OURS:
            continue
        ours = next(o for o in race["summary"] if o["environment"] == row["environment"] and o["who"] == OURS)
        least = promised[row["environment"]] if row["who"] == "sb3" else 1.0
        times = row["times_ours"] if row["times_ours"] is not None else float("inf")
        held = ours["reached"] * 2 > ours["runs"] and times >= least
        name = f"{row['environment']}: {row['who']}'s time over ours"
        measured = "not reached" if row["times_ours"] is None else f"{'> ' * row['lower_bound']}{times} ×"
        rows.append((name, f"≥ {least:g} ×", measured, _yes(held)))
    return rows


def _yes(held: bool) -> str:
    return "yes" if held else "NO"


def _table(head: Any, rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def _plot(facts: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    runs = facts["race"]["runs"]
    environments = list(dict.fromkeys(run["environment"] for run in runs))
    figure, axes = pyplot.subplots(
        1, len(environments), figsize=(5.5 * len(environments), 3.6), squeeze=False
    )
    for axis, environment in zip(axes[0], environments, strict=True):
        here = [row for row in facts["race"]["summary"] if row["environment"] == environment]
        for place, row in enumerate(here):
            known = row["median_seconds"]
            axis.barh(place, known or 0, color="#2a6f97" if row["who"] == OURS else "#adb5bd")
            axis.text(known or 0, place, f" {_seconds(row)}", va="center", fontsize=9)
            own = [run for run in runs if run["who"] == row["who"] and run["environment"] == environment]
            for run in own:
                mark = "o" if run["reached"] else ">" if run["stopped"] else "x"
                axis.plot(run["seconds"], place, mark, color="black", markersize=4)
        axis.set_yticks(range(len(here)), [row["who"] for row in here])
        axis.invert_yaxis()
        axis.margins(x=0.2)
        axis.set_xlabel(
            "seconds from process start (bar: median; ● reached, ▶ stopped, × not reached)", fontsize=8
        )
        axis.set_title(environment)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)

"""The control plane under load: viewers and requests beside training, ten runs at once, a server that is down.

`crowd`: training on one core, the server and everybody who watches on the other, by turns with nobody watching.
`acts`: how long commands take to act on a running run.
`ten`: ten runs with two actors each on two cores, while somebody asks ten times a second.
`down`: steps/s of a run while its server is up and while it is killed, by turns.

    python -m bench.control --only crowd
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from tests.faults.commands import learning_rates, steps_per_second, steps_while_down
from tests.servers import QUICK, Server, keepers, workers

TRAINING, SERVING = "0", "1"
"""Processors."""
ENDLESS: dict[str, Any] = {
    "environment": "LunarLander-v3", "name": "steady", "stop": {"steps": None, "target": None},
    "actors": {"count": 1, "cpus": [int(TRAINING)]}, "learner": {"cpus": [int(TRAINING)]},
    "evaluation": {"every_seconds": 0},
}  # fmt: skip


def measure(quick: bool) -> dict[str, Any]:
    seconds, turns = (10.0, 1) if quick else (30.0, 3)
    return {
        "crowd": _in_home(lambda home: crowd(home, seconds, turns, 200 if quick else 1000)),
        "acts": _in_home(acts),
        "ten": _in_home(lambda home: ten(home, 3 if quick else 10)),
        "down": _in_home(lambda home: steps_while_down(home, seconds / 1.5, turns)),
    }


def crowd(home: Path, seconds: float, turns: int, viewers: int) -> dict[str, Any]:
    """Training alone on its core, and beside viewers and requests on the other."""
    rates: dict[str, list[float]] = {"alone": [], "watched": []}
    watched: list[dict[str, Any]] = []
    asked: list[dict[str, Any]] = []
    with Server(home, prefix=("taskset", "-c", SERVING)) as server:
        server.post("/runs", ENDLESS)
        server.wait_for("steady", lambda status: status["updates"] > 5, 120, "training")
        for _ in range(turns):
            rates["alone"].append(steps_per_second(home, "steady", seconds))
            loads = _loads(server, viewers, seconds + 12)
            time.sleep(8.0)  # until all are connected
            rates["watched"].append(steps_per_second(home, "steady", seconds))
            watched.append(_result(loads[0]))
            asked.append(_result(loads[1]))
            print(
                f"crowd: {rates['alone'][-1]:,.0f} alone, {rates['watched'][-1]:,.0f} watched",
                file=sys.stderr,
            )
    kept = statistics.median(b / a for a, b in zip(rates["alone"], rates["watched"], strict=True))
    return {
        "viewers": viewers, "steps_per_second": rates, "kept": round(kept, 3),
        "rest": asked, "rest_p99_ms": max(one["p99_ms"] for one in asked),
        "rest_errors": sum(one["errors"] for one in asked),
        "feed": watched, "lost": sum(one["lost"] for one in watched),
        "feed_errors": sum(len(one["errors"]) for one in watched),
    }  # fmt: skip


def acts(home: Path, times: int = 20) -> dict[str, Any]:
    """From asking to the effect in the process that it is about: the learner's settings, the keeper's actors."""
    answered: list[float] = []
    changed: list[float] = []
    scaled: list[float] = []
    with Server(home) as server:
        server.post("/runs", QUICK | {"name": "steady"})
        server.wait_for("steady", lambda status: status["updates"] > 50, what="training")
        keeper = keepers(home)[0]
        with server.client() as client:
            for number in range(times):
                rate, began = 1e-4 + number * 1e-8, time.perf_counter()
                client.post(
                    "/runs/steady/settings", json={"settings": {"learning_rate": rate}}
                ).raise_for_status()
                answered.append(time.perf_counter() - began)
                while learning_rates(home, "steady")[-1:] != [rate]:
                    time.sleep(0.002)
                changed.append(time.perf_counter() - began)
            for number in range(6):
                wanted, began = 3 - number % 2, time.perf_counter()
                client.post("/runs/steady/actors", json={"actors": wanted}).raise_for_status()
                while len(workers(keeper, "actor")) != wanted:
                    time.sleep(0.002)
                scaled.append(time.perf_counter() - began)
                time.sleep(3.0)
    return {
        "answered_p50_ms": _percentile(answered, 50), "answered_max_ms": _percentile(answered, 100),
        "changed_p50_ms": _percentile(changed, 50), "changed_max_ms": _percentile(changed, 100),
        "scaled_p50_ms": _percentile(scaled, 50), "scaled_max_ms": _percentile(scaled, 100),
    }  # fmt: skip


def ten(home: Path, runs: int) -> dict[str, Any]:
    """All at once; somebody asks all the while."""
    began = time.monotonic()
    with Server(home) as server:
        spec = QUICK | {"stop": {"updates": 300, "target": None}, "seeds": runs, "name": "ten"}
        server.post("/runs", spec)
        seen: list[float] = []
        with server.client() as client:
            while True:
                path = random.choice(["/runs", f"/runs/ten-{random.randint(1, runs)}", "/server"])
                at = time.perf_counter()
                client.get(path).raise_for_status()
                seen.append(time.perf_counter() - at)
                states = [run["state"] for run in server.get("/runs", group="ten-seeds")["items"]]
                if all(state not in ("pending", "running", "stopping") for state in states):
                    break
                time.sleep(0.1)
    return {
        "runs": runs, "done": states.count("done"), "seconds": round(time.monotonic() - began, 1),
        "asked": len(seen), "p50_ms": _percentile(seen, 50), "p99_ms": _percentile(seen, 99),
    }  # fmt: skip


def ask(url: str, token: str, seconds: float, per_second: float) -> dict[str, Any]:
    """Read requests of every kind, at a steady rate, from four threads."""
    seen: list[float] = []
    errors: list[str] = []
    threads = [
        threading.Thread(target=_ask_on, args=(url, token, seconds, per_second / 4, seen, errors))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "asked": len(seen), "per_second": per_second, "errors": len(errors), "first": errors[:3],
        "p50_ms": _percentile(seen, 50), "p99_ms": _percentile(seen, 99),
    }  # fmt: skip


def _ask_on(
    url: str, token: str, seconds: float, per_second: float, seen: list[float], errors: list[str]
) -> None:
    paths = ("/runs", "/runs/steady", "/runs/steady/metrics?points=200&names=charts/episodic_return",
             "/runs/steady/logs?lines=100", "/runs/steady/actors", "/commands", "/server")  # fmt: skip
    headers = {"Authorization": f"Bearer {token}"}
    until = time.monotonic() + seconds
    with httpx2.Client(
        base_url=f"{url}/api/v1", headers=headers, timeout=30.0, trust_env=False, verify=False
    ) as client:
        while time.monotonic() < until:
            at = time.perf_counter()
            response = client.get(random.choice(paths))
            seen.append(time.perf_counter() - at)
            if not response.is_success:
                errors.append(f"{response.status_code} {response.text[:200]}")
            time.sleep(max(0.0, 1 / per_second - (time.perf_counter() - at)))


def _loads(server: Server, viewers: int, seconds: float) -> list["subprocess.Popen[str]"]:
    assert server.process is not None
    place = ["--url", server.address, "--token", server.token, "--seconds", str(seconds)]
    words = [
        ["-m", "bench.viewers", *place, "--viewers", str(viewers), "--pid", str(server.process.pid)],
        ["-m", "bench.control", "--ask", *place],
    ]
    return [
        subprocess.Popen(["taskset", "-c", SERVING, sys.executable, *one], stdout=subprocess.PIPE, text=True)
        for one in words
    ]


def _result(load: "subprocess.Popen[str]") -> dict[str, Any]:
    out, _ = load.communicate(timeout=180)
    return dict(json.loads(out))


def _percentile(seen: list[float], percent: int) -> float:
    return round(sorted(seen)[min(len(seen) - 1, len(seen) * percent // 100)] * 1e3, 1) if seen else 0.0


def _in_home(part: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-control-", ignore_cleanup_errors=True) as home:
        return part(Path(home))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.control", description=__doc__)
    parser.add_argument("--only", choices=("crowd", "acts", "ten", "down"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--token", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--viewers", type=int, default=1000)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(ask(options.url, options.token, options.seconds, 20.0)))
        return 0
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "crowd": lambda home: crowd(home, options.seconds, 3, options.viewers),
        "acts": lambda home: acts(home),
        "ten": lambda home: ten(home, 10),
        "down": lambda home: steps_while_down(home),
    }
    found = {options.only: _in_home(parts[options.only])} if options.only else measure(options.quick)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Small promises, each alone: a decision, an actor's memory, a version's way, the first update, the log."""

import contextlib
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import psutil

from bench.processes import end_tree, penstock, run
from penstock.envs.layout import describe
from penstock.model import topics
from penstock.model.policy import NetworkSpec, Policy, PolicyDescription, PolicyFacts
from penstock.model.spec import StreamSpec
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version
from penstock.policy import networks
from penstock.policy.acting import Acting
from penstock.stream.base import TopicPolicy
from penstock.wiring import open_stream

RUN = "bench"


def measure(out: Path, quick: bool = False) -> dict[str, Any]:
    """All of them; `quick` leaves out what starts whole runs."""
    facts: dict[str, Any] = {
        "decision_us": round(decision_us(), 2),
        "version_loaded_p99_ms": round(version_ms(100 if quick else 500), 2),
    }
    if quick:
        return facts
    facts["actor_own_mb"] = round(actor_mb(out), 1)
    facts["first_update_seconds"] = round(first_update_seconds(out), 2)
    from bench import stream

    log = stream.measure()
    facts["stream_mb_per_second"] = log["64 KiB records"]["MB/s"]
    facts["stream"] = log
    return facts


def policy() -> Policy:
    """A 64×64 policy of CartPole with random weights."""
    environment = gymnasium.make("CartPole-v1")
    _, info = environment.reset(seed=1)
    spaces, _ = describe(environment, info, "CartPole-v1")
    description = PolicyDescription("ppo", "categorical", spaces, NetworkSpec())
    tensors = networks.initial(description, np.random.default_rng(1))
    facts = PolicyFacts(RUN, Version(1, 0), weights_sha256(tensors), description, {0: 0}, 0)
    return Policy(facts, tensors)


def decision_us(repeats: int = 7, decisions: int = 2000) -> float:
    """Microseconds of one decision for one observation, as an actor makes it: median of a few loops."""
    acting = Acting((made := policy()).facts.description)
    acting.load(made.tensors)
    name = next(iter(made.facts.description.spaces.observation.columns))
    observations = {name: np.random.default_rng(1).random((1, 4), np.float32)}
    noise = acting.noise((1, 0, 0), decisions, 1)
    loops = []
    for _ in range(repeats):
        started = time.perf_counter()
        for row in noise:
            acting.decide(observations, None, row)
        loops.append((time.perf_counter() - started) / decisions * 1e6)
    return statistics.median(loops)


def version_ms(count: int, url: str = "embedded") -> float:
    """99th percentile, in ms, from publishing a version to a waiting process having it ready to act."""
    from penstock.loop.policies import Publisher

    root = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    stream = open_stream(root, StreamSpec(url=url))
    stream.ensure(topics.model_updates(RUN), TopicPolicy(compact=True))
    child = context.Process(target=_follow_versions, args=(root, url, count, there))
    child.start()
    try:
        here.recv()
        publisher = Publisher(stream, RUN, 1)
        made = policy()
        for step in range(1, count + 1):
            time.sleep(0.01)
            facts = msgspec.structs.replace(made.facts, version=Version(1, step), published_at=time.time())
            publisher.publish(Policy(facts, made.tensors))
        latencies = sorted(here.recv())
    finally:
        child.join(10)
        stream.close()
        shutil.rmtree(root, ignore_errors=True)
    return float(latencies[int(len(latencies) * 0.99)] * 1e3)


def _follow_versions(root: Path, url: str, count: int, results: Connection) -> None:
    from penstock.loop.policies import Subscriber

    stream = open_stream(root, StreamSpec(url=url))
    subscriber = Subscriber(stream, RUN)
    subscriber.poll(0)
    acting: Acting | None = None
    results.send("ready")
    latencies: list[float] = []
    while subscriber.version.step < count:
        if subscriber.poll(0.25) and subscriber.newest is not None:
            acting = acting or Acting(subscriber.newest.facts.description)
            acting.load(subscriber.newest.tensors)
            latencies.append(time.time() - subscriber.newest.facts.published_at)
    results.send(latencies)
    stream.close()


def actor_mb(out: Path, seconds: float = 20.0) -> float:
    """The greatest own memory (USS, in MB) of an actor process of a live CartPole run."""
    environ, known = _environ(out), set(psutil.Process().children(recursive=True))
    argv = penstock("train", "CartPole-v1", "--keep-going", "--quiet")
    with (out / "logs" / "memory.log").open("ab") as log:
        child = subprocess.Popen(argv, stdout=log, stderr=log, env=environ, start_new_session=True)
        greatest = 0.0
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(1.0)
                greatest = max(greatest, _greatest_actor(child.pid))
        finally:
            end_tree(known)
    if not greatest:
        raise SystemExit("no actor process was seen; see logs/memory.log")
    return greatest / 1e6


def _greatest_actor(root: int) -> float:
    greatest = 0.0
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(root).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "actor" in process.cmdline():
                    greatest = max(greatest, float(process.memory_full_info().uss))
    return greatest


def first_update_seconds(out: Path, repeats: int = 3) -> float:
    """Seconds from process start to the first update of CartPole with a warm cache: median of a few."""
    argv = penstock("train", "CartPole-v1", "--json", "--set", "stop.updates=2")
    found = []
    for _ in range(repeats + 1):
        started = time.time()
        done = run(argv, out / "logs" / "first-update.log", 300.0, _environ(out))
        assert done.line is not None, "see logs/first-update.log"
        metrics = Path(_environ(out)["PENSTOCK_HOME"]) / "runs" / done.line["run"] / "metrics.jsonl"
        with metrics.open() as lines:
            found.append(json.loads(next(lines))["time"] - started)
    return statistics.median(found[1:])  # the first one warms the cache


def _environ(out: Path) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_HOME": str((out / "home" / "micro").resolve())}

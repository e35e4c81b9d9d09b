"""Kafka beside the embedded log: the same LunarLander run on both by turns, and how long records take.

A real broker on this machine, one node, default settings: it shares the two cores with actors and learner.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import micro, sustained
from penstock.broker import Broker
from penstock.model import topics
from penstock.model.spec import StreamSpec
from penstock.stream.base import Stream, TopicPolicy
from penstock.wiring import open_stream

ROLLOUT_BYTES = 64_000
"""About what an actor of the LunarLander preset writes at once."""


def measure(out: Path, rounds: int = 3, seconds: float = 60.0, records: int = 500) -> dict[str, Any]:
    """Throughput by turns (embedded, Kafka, embedded, …), then latencies of both."""
    broker = Broker(out / "broker")
    broker.start()
    try:
        urls = {"embedded": "embedded", "kafka": f"kafka://{broker.bootstrap}"}
        speeds: dict[str, list[float]] = {name: [] for name in urls}
        for seed in range(1, rounds + 1):
            for name, url in urls.items():
                speeds[name].append(sustained.one(out, seed, seconds, ("--stream", url)))
                print(f"{name} {speeds[name][-1]:,.0f} steps/s", file=sys.stderr, flush=True)
        ratios = [
            kafka / embedded for kafka, embedded in zip(speeds["kafka"], speeds["embedded"], strict=True)
        ]
        return {
            "environment": sustained.ENVIRONMENT,
            "steps_per_second": {name: round(statistics.median(found)) for name, found in speeds.items()},
            "runs": {name: [round(speed) for speed in found] for name, found in speeds.items()},
            "ratio": round(statistics.median(ratios), 3),
            "written_to_read_ms": {name: written_to_read(url, records) for name, url in urls.items()},
            "version_loaded_p99_ms": {
                name: round(micro.version_ms(records, url), 2) for name, url in urls.items()
            },
        }
    finally:
        broker.delete()


def written_to_read(url: str, count: int) -> dict[str, float]:
    """Milliseconds from before `write` to another process having the record: median and 99th percentile."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as home:
        stream = _open(home, url)
        topic = topics.experiences(f"bench-{time.time_ns()}")
        stream.ensure(topic, TopicPolicy(partitions=4))
        child = subprocess.Popen(
            [sys.executable, "-m", "bench.kafka", home, url, topic, str(count)], stdout=subprocess.PIPE,
            text=True, cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        writer, filler = stream.writer(topic), bytes(ROLLOUT_BYTES)
        for number in range(count):
            time.sleep(0.02)
            writer.write(str(number % 2), f"{time.time():020.8f}".encode() + filler)
        found = sorted(json.loads(child.stdout.readline()))
        child.wait()
        stream.close()
    return {"p50": round(statistics.median(found) * 1e3, 2), "p99": round(found[int(count * 0.99)] * 1e3, 2)}


def _receive(home: str, url: str, topic: str, count: int) -> None:
    stream = _open(home, url)
    reader = stream.reader(topic, stream.end(topic))
    reader.read(1, 0.2)
    print("ready", flush=True)
    found: list[float] = []
    while len(found) < count:
        found += [time.time() - float(record.value[:20]) for record in reader.read(64, 0.25)]
    print(json.dumps(found), flush=True)


def _open(home: str, url: str) -> Stream:
    return open_stream(Path(home), StreamSpec(url=url))


if __name__ == "__main__":
    _receive(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

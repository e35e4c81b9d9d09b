"""The embedded log between two processes: one writes, one reads everything, old records go meanwhile.

`python -m bench.stream` prints the numbers; `measure()` returns them. Throughput is taken once the
retention window has wrapped twice, when every write also deletes: a log that is fast only while its file is
new would be of no use.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.stream.base import TopicPolicy, Writer
from penstock.stream.embedded import EmbeddedStream

TOPIC = "experiences.bench"
WINDOW = 128 << 20
REPEATS = 3


def measure(folder: Path | None = None) -> dict[str, Any]:
    """Medians over a few repeats, on the disk that holds `folder` (a temporary one unless given).

    The rate per CPU second (writer and reader together) says what the code costs on a machine whose
    cores are busy with something else.
    """
    root = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=folder))
    try:
        facts: dict[str, Any] = {}
        sizes = {"64 KiB": (65536, 65536), "4 to 128 KiB": (4096, 131072), "1 MiB": (1 << 20, 1 << 20)}
        for name, (smallest, largest) in sizes.items():
            runs = [_throughput(root, smallest, largest) for _ in range(REPEATS)]
            facts[f"{name} records"] = {
                key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]
            }
        facts["small records/s (200 bytes, alone)"] = round(_small_writes(root))
        facts["synced records/s (200 bytes)"] = round(_small_writes(root, "commands.control", 200))
        facts["wake-up, median µs"], facts["wake-up, 99 % µs"] = (round(us) for us in _wake_ups(root))
        return facts
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _throughput(root: Path, smallest: int, largest: int) -> dict[str, float]:
    """What gets from one process to another, after the window has wrapped twice."""
    stream = EmbeddedStream(root)
    stream.remove_run("bench")
    stream.ensure(TOPIC, TopicPolicy(retention_bytes=WINDOW))
    reader = _child("read", root)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    writer = stream.writer(TOPIC)
    _write(writer, "warm", smallest, largest, 2 * WINDOW)
    started, cpu = time.perf_counter(), time.process_time()
    written = _write(writer, "slot-0", smallest, largest, 4 * WINDOW)
    writer.write("end", b"")
    writer_seconds = time.perf_counter() - started
    cpu = time.process_time() - cpu
    facts = json.loads(reader.stdout.readline())
    elapsed = time.perf_counter() - started
    reader.wait()
    stream.close()
    return {
        "MB/s": facts["bytes"] / elapsed / 1e6,
        "MB/s written": written / writer_seconds / 1e6,
        "MB per CPU second": written / (cpu + facts["cpu"] * written / max(facts["bytes"], 1)) / 1e6,
        "share read before it was dropped": facts["bytes"] / written,
    }


def _write(writer: Writer, key: str, smallest: int, largest: int, total: int) -> int:
    sizes = random.Random(7)
    source = memoryview(os.urandom(largest))
    written = 0
    while written < total:
        size = sizes.randint(smallest, largest)
        writer.write(key, source[:size])
        written += size
    return written


def _small_writes(root: Path, topic: str = TOPIC, count: int = 5000) -> float:
    stream = EmbeddedStream(root)
    writer, value = stream.writer(topic), bytes(200)
    started = time.perf_counter()
    for _ in range(count):
        writer.write("k", value)
    elapsed = time.perf_counter() - started
    stream.close()
    return count / elapsed


def _wake_ups(root: Path, count: int = 200) -> tuple[float, float]:
    """Median and 99th percentile from `write` to the other process having the record."""
    stream = EmbeddedStream(root, poll_seconds=5.0)
    stream.ensure("metrics.actors", TopicPolicy())
    child = _child("wake", root)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    writer = stream.writer("metrics.actors")
    for _ in range(count):
        time.sleep(0.003)
        writer.write("k", repr(time.perf_counter()).encode())
    writer.write("k", b"end")
    latencies = sorted(json.loads(child.stdout.readline()))
    child.wait()
    stream.close()
    return statistics.median(latencies) * 1e6, latencies[int(len(latencies) * 0.99)] * 1e6


def _child(role: str, root: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bench.stream", role, str(root)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )


def _read_all(root: Path) -> None:
    stream = EmbeddedStream(root)
    reader = stream.reader(TOPIC)
    print("ready", flush=True)
    total, cpu = 0, 0.0
    while True:
        for record in reader.read(64, 60.0):
            if record.key == "end":
                print(json.dumps({"bytes": total, "cpu": time.process_time() - cpu}), flush=True)
                return
            if record.key == "warm":
                cpu = time.process_time()
            else:
                total += len(record.value)


def _receive(root: Path) -> None:
    stream = EmbeddedStream(root, poll_seconds=5.0)
    reader = stream.reader("metrics.actors")
    reader.read(1, 0.01)
    print("ready", flush=True)
    latencies = []
    while True:
        for record in reader.read(1, 60.0):
            if record.value == b"end":
                print(json.dumps(latencies), flush=True)
                return
            latencies.append(time.perf_counter() - float(record.value))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        {"read": _read_all, "wake": _receive}[sys.argv[1]](Path(sys.argv[2]))
    else:
        print(json.dumps(measure(), indent=2, ensure_ascii=False))

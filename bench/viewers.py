"""Many live viewers on one machine: what they cost the server, what they lose, how late they are.

    python -m bench.viewers --viewers 1000 --seconds 20                        a server and three runs of its own
    python -m bench.viewers --url http://127.0.0.1:8080 --token pst_… --pid N  a server that runs already

Every viewer is a WebSocket of its own, in one process beside the server's, and watches metrics and states of all
runs. One JSON object is printed: the share of one core the server used, messages lost, and delays from the moment a
report was written to the moment a viewer had it.
"""

import argparse
import asyncio
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil

SETTLE_SECONDS = 3.0
CONNECTS_AT_ONCE = 50
NAMES = [f"group-{index % 5}/number-{index}" for index in range(32)]
"""As many numbers as a real report has."""


# -- the load: viewers ------------------------------------------------------------------------------


class News(msgspec.Struct):
    seq: int
    kind: str
    columns: dict[str, list[float | None]] = {}


class Told(msgspec.Struct):
    type: str
    messages: list[News] = []


@dataclass
class Tally:
    """What all viewers saw between begin and end."""

    viewers: int = 0
    ready: int = 0
    gaps: int = 0
    errors: list[str] = field(default_factory=list)
    counting: bool = False
    delays: list[float] = field(default_factory=list)
    bytes: int = 0
    decoded: dict[bytes, Told] = field(default_factory=dict)

    def decode(self, payload: bytes) -> Told:
        """Viewers of the same get the same bytes: each is decoded once."""
        known = self.decoded.get(payload)
        if known is None:
            if len(self.decoded) > 64:
                self.decoded.clear()
            known = self.decoded[payload] = msgspec.json.decode(payload, type=Told)
        return known


class ViewerProtocol(asyncio.Protocol):
    """The least a viewer can be: a handshake, one subscription, unmasked frames in."""

    def __init__(self, tally: Tally, host: str, token: str) -> None:
        self._tally, self._host, self._token = tally, host, token
        self._buffer = bytearray()
        self._open = False
        self.seqs: list[int] = []
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET /api/v1/live HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def say(self, **message: Any) -> None:
        self.send(0x81, json.dumps(message).encode())

    def send(self, kind: int, payload: bytes) -> None:
        size = (
            bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        )
        self._transport.write(bytes([kind]) + size + b"\0\0\0\0" + payload)  # a mask of zeros changes nothing

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open and not self._handshake():
            return
        while (frame := self._frame()) is not None:
            kind, payload = frame
            if kind == 0x1:
                self._told(payload)
            elif kind == 0x9:
                self.send(0x8A, payload)

    def connection_lost(self, error: Exception | None) -> None:
        if self._tally.viewers:
            self._tally.errors.append(f"lost: {error}")
        if not self.subscribed.done():
            self.subscribed.set_exception(
                ConnectionError(f"the server hung up: {bytes(self._buffer[:200])!r}")
            )

    def _handshake(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        if b" 101 " not in self._buffer[:32]:
            raise ConnectionError(bytes(self._buffer[:200]).decode(errors="replace"))
        del self._buffer[: end + 4]
        self._open = True
        self.say(type="hello", token=self._token)
        self.say(type="subscribe", kinds=["metrics", "states"], runs="*")
        return True

    def _frame(self) -> tuple[int, bytes] | None:
        if len(self._buffer) < 2:
            return None
        size, start = self._buffer[1] & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(self._buffer[2:start], "big")
        if len(self._buffer) < start + size:
            return None
        kind, payload = self._buffer[0] & 0x0F, bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return kind, payload

    def _told(self, payload: bytes) -> None:
        tally, told = self._tally, self._tally.decode(payload)
        if told.type == "subscribed":
            self.subscribed.set_result(None)
        elif told.type == "gap":
            tally.gaps += 1
        elif told.type == "error":
            tally.errors.append(payload.decode()[:200])
        if not tally.counting:
            return
        now = time.time()
        tally.bytes += len(payload)
        for news in told.messages:
            self.seqs.append(news.seq)
            tally.delays.extend(now - at for at in news.columns.get("time", ()) if at is not None)


async def load(url: str, token: str, viewers: int, seconds: float, pid: int) -> dict[str, Any]:
    """Connect all, let them settle, count for some seconds."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    loop, tally, all_viewers = asyncio.get_running_loop(), Tally(), []
    began = time.monotonic()
    for first in range(0, viewers, CONNECTS_AT_ONCE):
        some = [
            (
                await loop.create_connection(
                    lambda: ViewerProtocol(tally, f"{host}:{port}", token), host, port
                )
            )[1]
            for _ in range(first, min(viewers, first + CONNECTS_AT_ONCE))
        ]
        await asyncio.wait_for(asyncio.gather(*(viewer.subscribed for viewer in some)), 30)
        all_viewers += some
    connected = time.monotonic() - began
    await asyncio.sleep(SETTLE_SECONDS)
    server = psutil.Process(pid)
    before, own, at = cpu_of(server), time.process_time(), time.monotonic()
    tally.viewers, tally.counting = viewers, True
    await asyncio.sleep(seconds)
    tally.counting = False
    elapsed = time.monotonic() - at
    tally.viewers = 0
    return {
        "viewers": viewers,
        "seconds": round(elapsed, 1),
        "connect_seconds": round(connected, 2),
        "server_core_share": round((cpu_of(server) - before) / elapsed, 3),
        "load_core_share": round((time.process_time() - own) / elapsed, 3),
        "server_mb": round(server.memory_info().rss / 2**20),
        **counted(tally, all_viewers, elapsed),
    }


def counted(tally: Tally, viewers: list[ViewerProtocol], seconds: float) -> dict[str, Any]:
    """What was lost: of the messages that everyone could have seen, those that someone did not."""
    seen = [viewer.seqs for viewer in viewers if viewer.seqs]
    begin = max((seqs[0] for seqs in seen), default=0)
    end = min((seqs[-1] for seqs in seen), default=0)
    common = {seq for seqs in seen for seq in seqs if begin <= seq <= end}
    lost = sum(len(common) - sum(begin <= seq <= end for seq in seqs) for seqs in seen)
    delays = sorted(tally.delays)
    return {
        "messages_each": len(common),
        "lost": lost + len(common) * (len(viewers) - len(seen)),
        "gaps": tally.gaps,
        "errors": tally.errors[:5],
        "mb_per_second": round(tally.bytes / seconds / 2**20, 1),
        "delay_p50": round(statistics.median(delays), 3) if delays else None,
        "delay_p99": round(delays[int(len(delays) * 0.99)], 3) if delays else None,
        "delay_max": round(delays[-1], 3) if delays else None,
    }


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


# -- a server and runs of its own ---------------------------------------------------------------------


def serve(home: Path) -> None:
    """The whole application as `penstock up` has it, starting no runs; prints its address."""
    from penstock.control.control import open_control
    from penstock.executors.local import LocalExecutor
    from penstock.model.spec import StreamSpec
    from penstock.server.app import create_app
    from penstock.server.hosts import LOOPBACK
    from penstock.server.serve import serve as listen
    from penstock.wiring import open_stream

    control = open_control(
        home, "bench", f"sqlite:///{home / 'penstock.db'}", "embedded",
        lambda url: open_stream(home, StreamSpec(url=url)), lambda spec: open_stream(home, spec.stream),
        LocalExecutor(), 0,
    )  # fmt: skip
    server = listen(create_app(control, allowed_hosts=LOOPBACK), "127.0.0.1", 0)
    print(json.dumps({"url": server.address}), flush=True)
    server.run()


def write_runs(home: Path, runs: int, rate: float, stop: threading.Event) -> None:
    """Runs that report `rate` times a second and tell their state once a second, like a keeper."""
    from penstock import config
    from penstock.loop.files import append_line
    from penstock.loop.runs import RunFolder
    from penstock.model.run import RunState

    folders = [RunFolder.create(home, config.resolve("CartPole-v1"), f"synthetic-{n}") for n in range(runs)]
    steps = 0
    while not stop.wait(1 / rate):
        steps += 1
        for folder in folders:
            numbers = {name: steps / (index + 1.7) for index, name in enumerate(NAMES)}
            row = {"steps": steps, "seconds": steps / rate, "time": time.time(), **numbers}
            append_line(folder.metrics_file, row)
            if steps % max(1, round(rate)) == 0:
                status = folder.stored_status()
                folder.save_status(msgspec.structs.replace(status, state=RunState.RUNNING, steps=steps))


def measure(viewers: int, seconds: float, runs: int, rate: float) -> dict[str, Any]:
    """All of it, in a home that is thrown away."""
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="penstock-viewers-") as folder:
        home = Path(folder)
        writer = threading.Thread(target=write_runs, args=(home, runs, rate, stop))
        server = subprocess.Popen(
            [sys.executable, "-m", "bench.viewers", "--serve", folder], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            writer.start()
            token = (home / "token").read_text().strip()
            found = asyncio.run(load(url, token, viewers, seconds, server.pid))
        finally:
            stop.set()
            if writer.ident is not None:
                writer.join()
            server.terminate()
            server.wait(20)
    return {**found, "runs": runs, "reports_per_second": rate}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.viewers", description=__doc__)
    parser.add_argument("--viewers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=10.0, help="reports a second of each run")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--token", default=os.environ.get("PENSTOCK_TOKEN", ""))
    parser.add_argument("--pid", type=int, help="of that server")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return 0
    if arguments.url:
        pid = arguments.pid or os.getpid()
        found = asyncio.run(load(arguments.url, arguments.token, arguments.viewers, arguments.seconds, pid))
    else:
        found = measure(arguments.viewers, arguments.seconds, arguments.runs, arguments.rate)
    print(json.dumps(found))
    return 0 if not found["lost"] and not found["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())

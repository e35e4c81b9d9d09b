"""Commands while the server is killed: each accepted one has exactly one effect.

Clients send a seeded list of commands, each under its own key, some of them again and again, and ask until they
have an answer; meanwhile the server is killed with `kill -9` and started again. The judge compares what was
answered, what the log holds, what the audit trail says, and what keeper and learner did.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from penstock.loop.files import read_lines
from penstock.model import topics
from penstock.model.commands import Command, Desired, decode_command
from penstock.model.spec import StreamSpec
from penstock.stream.records import RecordReader
from penstock.wiring import open_stream
from tests.servers import QUICK, Server, keepers, workers

RUNS = ("first", "second")
SETTLE_SECONDS = 40.0


@dataclass(frozen=True)
class Wish:
    """One command a client wants done, and how often it asks for it."""

    key: str
    run: str
    path: str
    body: Any
    times: int


@dataclass
class Siege:
    """One campaign, for the report."""

    name: str
    asked: int = 0
    accepted: int = 0
    sent: int = 0
    kills: int = 0
    written: int = 0
    """Commands in the log, with those that were written twice."""
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def wishes(count: int, seed: int) -> list[Wish]:
    """Seeded commands; every learning rate and note is another one, so that each effect can be told."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        run, kind = chance.choice(RUNS), chance.random()
        if kind < 0.45:
            path, body = "settings", {"settings": {"learning_rate": 1e-4 + number * 1e-8}}
        elif kind < 0.75:
            path, body = "actors", {"actors": chance.randint(0, 3)}
        elif kind < 0.95:
            path, body = "", {"note": f"note {number}"}
        else:
            path, body = "checkpoints", None
        times = chance.choice((1, 1, 1, 2, 3))
        found.append(Wish(f"{seed}-{number}", run, path, body, times))
    return found


def besieged(
    home: Path, seed: int, kills: int, commands: int = 2_000, url: str = "embedded", clients: int = 4
) -> Siege:
    """Send `commands` while the server is killed `kills` times; a broken promise is an AssertionError."""
    siege, began = Siege(f"server killed, {url.partition(':')[0]}, seed {seed}"), time.monotonic()
    flags = () if url == "embedded" else ("--stream", url)
    with Server(home, flags) as server:
        for run in RUNS:
            server.post("/runs", QUICK | {"name": run, "actors": {**QUICK["actors"], "count": 1}})
        for run in RUNS:
            server.wait_for(run, lambda status: status["updates"] > 5, what="training")
        asked = wishes(commands, seed)
        answers = _storm(server, asked, kills, clients, seed, siege)
        siege.asked, siege.accepted = len(asked), len(answers)
        _settle(server)
        _judge(server, url, asked, answers, siege)
        server.stop()
    siege.seconds = time.monotonic() - began
    return siege


def _storm(
    server: Server, asked: list[Wish], kills: int, clients: int, seed: int, siege: Siege
) -> dict[str, dict[str, Any]]:
    """The answers by key. Kills are spread over the commands, so that all of them happen among commands."""
    chance, done, sent = random.Random(f"kills {seed}"), threading.Semaphore(0), Counter[str]()
    answers: dict[str, dict[str, Any]] = {}
    queue = iter(asked)
    lock = threading.Lock()

    def client() -> None:
        with server.client() as http:
            ask_all(http)

    def ask_all(http: httpx2.Client) -> None:
        while True:
            with lock:
                wish = next(queue, None)
            if wish is None:
                return
            for _ in range(wish.times):
                answer = _insist(http, wish, sent)
                earlier = answers.setdefault(wish.key, answer)
                assert earlier["command"]["id"] == answer["command"]["id"], "one key, two commands"
            done.release()

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(client) for _ in range(clients)]
        for number in range(kills):
            for _ in range(max(1, len(asked) // (kills + 1))):
                if not done.acquire(timeout=120):
                    break
            time.sleep(chance.random() * 0.05)
            server.kill()
            siege.kills = number + 1
            server.start()
        for future in running:
            future.result()
    siege.sent = sent["sent"]
    return answers


def _insist(http: httpx2.Client, wish: Wish, sent: Counter[str]) -> dict[str, Any]:
    """Ask until there is an answer; the key makes sure that asking again is safe."""
    method = "POST" if wish.path else "PATCH"
    path = f"/runs/{wish.run}/{wish.path}".rstrip("/")
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with contextlib.suppress(httpx2.TransportError, httpx2.HTTPError):
            sent["sent"] += 1
            response = http.request(method, path, json=wish.body, headers={"Idempotency-Key": wish.key})
            if response.is_success:
                return dict(response.json())
            assert response.status_code in (429, 503), f"{path}: {response.status_code} {response.text}"
        time.sleep(0.05)
    raise AssertionError(f"no answer for {wish}")


def _settle(server: Server) -> None:
    """What is must become what is wanted within seconds, without anybody asking again.

    A learner that compiles for another number of actors obeys when it is done with that.
    """
    given = Counter(row["run"] for row in _trail(server) if row["verb"] == "set")
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        status = [server.get(f"/runs/{run}") for run in RUNS]
        fitting = all(_actors(server, one["run"]) == one["desired"]["actors"] for one in status)
        if fitting and all(len(learning_rates(server.home, run)) >= given[run] for run in RUNS):
            return
        time.sleep(0.2)
    raise AssertionError(f"it is not what is wanted: {[one['desired'] for one in status]}")


def learning_rates(home: Path, run: str) -> list[float]:
    """The learning rates the learner has changed to, in order."""
    events = read_lines(home / "runs" / run / "events.jsonl")
    return [event["learning_rate"] for event in events if event["event"] == "settings_changed"]


def _actors(server: Server, run: str) -> int:
    for keeper in keepers(server.home):
        if keeper.cmdline()[-1] == run:
            return len(workers(keeper, "actor"))
    return -1


def _judge(
    server: Server, url: str, asked: list[Wish], answers: dict[str, dict[str, Any]], siege: Siege
) -> None:
    assert answers.keys() == {wish.key for wish in asked}, "a command has no answer"
    ids = {answer["command"]["id"] for answer in answers.values()}
    assert len(ids) == len(asked), "two commands share an id"
    log = _log(server.home, url)
    siege.written = len(log)
    first = {command.id: command for command in reversed(log)}
    assert ids <= first.keys(), "an accepted command is not in the log"
    trail = _trail(server)
    assert [row["id"] for row in trail] == [row["id"] for row in {row["id"]: row for row in trail}.values()]
    assert {row["id"] for row in trail} == first.keys(), "the trail and the log differ"
    assert all(row["outcome"] == "applied" for row in trail), "an accepted command was refused"
    order = list(dict.fromkeys(command.id for command in log))
    for run in RUNS:
        _judge_run(server, run, [first[id] for id in order if first[id].run == run])
    siege.facts = {"trail": len(trail), "written twice": len(log) - len(first)}


def _judge_run(server: Server, run: str, given: list[Command]) -> None:
    """What is wanted is the sum of the log; keeper and learner did each command once, in its order."""
    status = server.get(f"/runs/{run}")
    desired = Desired(actors=1)
    for command in given:
        desired = desired.after(command)
    assert status["desired"]["actors"] == desired.actors
    assert status["desired"]["settings"] == desired.settings
    notes = [command.arguments["note"] for command in given if command.verb == "label"]
    assert status["note"] == (notes[-1] if notes else "")
    events = list(read_lines(server.home / "runs" / run / "events.jsonl"))
    obeyed = [event["id"] for event in events if event["event"] == "command"]
    assert obeyed == [command.id for command in given if command.verb != "start"], "the keeper did otherwise"
    rates = learning_rates(server.home, run)
    wanted = [command.arguments["learning_rate"] for command in given if command.verb == "set"]
    assert rates == wanted, "the learner did otherwise"
    assert status["restarts"] == 0, "something died besides the server"
    assert not [event for event in events if event["event"] == "resume_not_exact"]


def _log(home: Path, url: str) -> list[Command]:
    stream = open_stream(home, StreamSpec(url=url))
    try:
        reader = RecordReader(stream, topics.COMMANDS, decode_command, None)
        return [command for batch in reader.drain() for _, command in batch]
    finally:
        stream.close()


def _trail(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = server.get("/commands", limit=500, **({"cursor": cursor} if cursor else {}))
        found += page["items"]
        cursor = page["next"]
        if cursor is None:
            return found


def steps_while_down(home: Path, seconds: float = 20.0, turns: int = 3) -> dict[str, Any]:
    """Steps/s of a run with the server and without it, in turns."""
    with Server(home) as server:
        run = server.post("/runs", QUICK | {"name": "steady"})["run"]
        server.wait_for(run, lambda status: status["updates"] > 20, what="training")
        rates: dict[str, list[float]] = {"up": [], "down": []}
        for _ in range(turns):
            rates["up"].append(steps_per_second(home, run, seconds))
            server.kill()
            rates["down"].append(steps_per_second(home, run, seconds))
            server.start()
    middle = {name: sorted(found)[len(found) // 2] for name, found in rates.items()}
    return {"rates": rates, "kept": middle["down"] / middle["up"]}


def steps_per_second(home: Path, run: str, seconds: float) -> float:
    def steps() -> float:
        line = (home / "runs" / run / "metrics.jsonl").read_bytes().splitlines()[-2]
        return float(msgspec.json.decode(line)["steps"])

    before, began = steps(), time.monotonic()
    time.sleep(seconds)
    return (steps() - before) / (time.monotonic() - began)

"""One node of a broker: its settings, its process, and what its log says. All of it lies in one folder."""

import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.broker.jars import Kafka
from penstock.errors import ConfigError, Conflict
from penstock.loop.files import read_json, write_atomically
from penstock.loop.processes import identify, is_alive
from penstock.model.run import Keeper

KEPT_LOG_BYTES = 8 << 20
FORMAT_SECONDS = 120.0

SERVER_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC")
"""SerialGC starts 0.7 s faster than G1. The full compiler stays: without it large records take about twice as long."""
TOOL_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG4J = """status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=info
"""


class Node:
    """A Kafka process that is broker and controller: `server.properties`, `data/`, `log.txt`, `pid`."""

    def __init__(self, index: int, folder: Path, wrapper: Sequence[str] = ()) -> None:
        self.index, self.folder, self._wrapper = index, folder, wrapper
        self.log = folder / "log.txt"
        self._child: subprocess.Popen[bytes] | None = None

    def write_settings(self, lines: Mapping[str, str]) -> None:
        """Write server.properties, and how to log: warnings, and when the server started and ended."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in lines.items())
        write_atomically(self.folder / "server.properties", text.encode())
        write_atomically(self.folder / "log4j2.properties", LOG4J.encode())

    def begin_format(self, kafka: Kafka, cluster: str) -> "subprocess.Popen[str] | None":
        """Let Kafka's storage tool prepare `data/` if it is new; hand the process to `end_format`."""
        if (self.folder / "data" / "meta.properties").exists():
            return None
        command = kafka.command(
            (*TOOL_JVM, *self._logging()),
            ("kafka.tools.StorageTool", "format", "--ignore-formatted"),
            ("-t", cluster, "-c", str(self.folder / "server.properties")),
        )
        return subprocess.Popen(
            command,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def end_format(self, tool: "subprocess.Popen[str]") -> None:
        """Wait for the storage tool; raise ConfigError with its last line if it refused."""
        try:
            said, _ = tool.communicate(timeout=FORMAT_SECONDS)
        except subprocess.TimeoutExpired:
            tool.kill()
            said, _ = tool.communicate()
        if tool.returncode != 0:
            told = [line for line in said.splitlines() if line and not line[0].isspace()]  # no stack traces
            reason = told[-1] if told else "it did not say why"
            raise ConfigError(f"Kafka's storage tool refused {self.folder}: {reason}")

    def launch(self, kafka: Kafka) -> None:
        """Start the process in a session of its own, so that it survives the terminal."""
        command = kafka.command(
            (*SERVER_JVM, *self._logging()), ("kafka.Kafka", str(self.folder / "server.properties"))
        )
        if self.log.exists() and self.log.stat().st_size > KEPT_LOG_BYTES:
            self.log.replace(self.folder / "log.old.txt")
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*self._wrapper, *command], cwd=self.folder, env=_environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if (keeper := identify(self._child.pid)) is not None:  # else it has ended already
            write_atomically(self.folder / "pid", msgspec.json.encode(keeper))

    def process(self) -> Keeper | None:
        """The live process; None where it has ended or another one has its pid."""
        path = self.folder / "pid"
        if not path.exists():
            return None
        keeper = read_json(path, Keeper)
        if self._child is not None and self._child.pid == keeper.pid:
            # also once the main thread is gone, while others still hold the port
            return keeper if self._child.poll() is None else None
        return keeper if is_alive(keeper) else None

    def signal(self, number: signal.Signals) -> None:
        """Signal the live process, if there is one."""
        keeper = self.process()
        if keeper is None:
            return
        if keeper.host != socket.gethostname():
            raise Conflict(
                f"{self.folder} runs on {keeper.host}; stop it there, or remove {self.folder / 'pid'}"
            )
        os.kill(keeper.pid, number)

    def data_bytes(self) -> int:
        """What the data takes on the disk. Kafka's index files are sparse: their length says nothing."""
        total = 0
        for parent, _, names in os.walk(self.folder / "data"):
            for name in names:
                try:
                    total += os.lstat(os.path.join(parent, name)).st_blocks * 512
                except FileNotFoundError:  # Kafka has just removed it
                    continue
        return total

    def tail(self, lines: int) -> list[str]:
        """The last lines of the log."""
        try:
            with self.log.open(errors="replace") as file:
                return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
        except FileNotFoundError:
            return []

    def complaint(self) -> str:
        """What the log says went wrong last, and where to read on."""
        loud = [
            line for line in self.tail(200) if " ERROR " in line or " FATAL " in line or "Exception" in line
        ]
        return f"{loud[-1].strip() if loud else 'it did not say why'} (see {self.log})"

    def _logging(self) -> tuple[str, ...]:
        return (f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",)


def small_settings(nodes: int) -> dict[str, str]:
    """Settings of a small cluster: few threads, small internal topics, nothing made by accident."""
    replicas, in_sync = str(min(nodes, 3)), str(2 if nodes >= 3 else 1)
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "num.network.threads": "2",
        "num.io.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "background.threads": "2",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        # a node that was killed may only come back when its session is over
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


def _environment() -> dict[str, str]:
    """Java reads file names by the locale, and in a plain C locale finds none that is not ASCII."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _escaped(value: str) -> str:
    """As Java's Properties reads it: Latin-1, with backslashes special."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "".join(_unit(character) for character in text)


def _unit(character: str) -> str:
    if character.isascii():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

"""A real Apache Kafka for tests and development: one node or a few, on this machine, in a folder.

In: a folder, how many nodes. Out: processes that answer at `bootstrap`, and per node in the folder
`node-<n>/{server.properties, data/, log.txt, pid}`. Not for production: no replicas on other machines.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.broker_jars import Kafka, find_kafka, locked
from penstock.errors import ConfigError, Conflict, Unavailable
from penstock.loop.files import read_json, write_atomically
from penstock.loop.processes import identify, is_alive
from penstock.model.run import Keeper

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below the ports that the kernel gives to clients: one of those could sit on ours while a node is down."""
START_SECONDS = 60.0
STOP_SECONDS = 15.0
KEPT_LOG_BYTES = 8 << 20

JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
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


class Shape(msgspec.Struct, frozen=True):
    """What a cluster keeps for life: who it is and where its nodes listen."""

    cluster: str
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]


class Broker:
    """A Kafka cluster of one to a few combined nodes, numbered from 1.

    The folder remembers ports and data: a Broker made again on it is the same cluster, also after
    `kill -9`. Its processes outlive this one; `stop` ends them. Methods may be called from any process.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        host: str = LOOPBACK,
        advertise: str | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Open the cluster in `folder`, or make it with `nodes` (default 1) there; nothing is started.

        `port` is the first node's, the next ones follow it; default: free ones. `settings` are lines of
        server.properties that win over ours, in which {node}, {host}, {port} and {controller_port} are
        filled in. Nodes listen on `host` and tell clients `advertise` (default: the same).
        `client_options` are librdkafka's, for listeners that want a password or TLS.
        """
        self.folder = folder.absolute()
        self._settings = dict(settings or {})
        self._host, self._advertise = host, advertise or host
        self._client_options = dict(client_options or {})
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.shape = self._open(nodes, port)

    @property
    def nodes(self) -> range:
        """The numbers of the nodes."""
        return range(1, len(self.shape.ports) + 1)

    @property
    def bootstrap(self) -> str:
        """What clients connect to: host:port of each node, with commas between."""
        return ",".join(self.address(index) for index in self.nodes)

    def address(self, index: int) -> str:
        return f"{self._advertise}:{self.shape.ports[index - 1]}"

    def node_folder(self, index: int) -> Path:
        return self.folder / f"node-{index}"

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start the nodes that do not run and return once all of them answer."""
        kafka = find_kafka()
        with locked(self.folder / "lock"):
            self._format(kafka)
            for index in self.nodes:
                self._launch(kafka, index)
        self.wait_ready(seconds)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask all nodes to end, and end those that have not after `seconds`; their data stays."""
        self._end(self.nodes, seconds)

    def delete(self) -> None:
        """Stop, and remove the folder with all data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_node(self, index: int) -> None:
        """Start one node unless it runs; `wait_ready` says when it answers."""
        kafka = find_kafka()
        with locked(self.folder / "lock"):
            self._format(kafka)
            self._launch(kafka, index)

    def stop_node(self, index: int, seconds: float = STOP_SECONDS) -> None:
        """Ask one node to end, and end it if it has not after `seconds`."""
        self._end([index], seconds)

    def kill_node(self, index: int) -> None:
        """End one node with SIGKILL, as a crash would; return when it is gone."""
        self._signal(index, signal.SIGKILL)
        self._wait_gone([index], STOP_SECONDS)

    def pids(self) -> dict[int, int | None]:
        """The process of each node; None where it does not run."""
        return {index: keeper.pid if (keeper := self._process(index)) else None for index in self.nodes}

    def wait_ready(
        self,
        seconds: float = START_SECONDS,
        options: Mapping[str, Any] | None = None,
        nodes: Collection[int] | None = None,
    ) -> None:
        """Return once each of `nodes` (default: all) answers clients and sees all of them.

        With all nodes, also every partition has a leader. Raise Unavailable after `seconds`, or at once
        when one of them has ended.
        """
        awaited = sorted(nodes or self.nodes)
        deadline = time.monotonic() + seconds
        for index in awaited:
            self._wait_answer(index, set(awaited), {**self._client_options, **(options or {})}, deadline)

    def _open(self, nodes: int | None, port: int | None) -> Shape:
        """The shape that the folder remembers, or a new one."""
        path = self.folder / "cluster.json"
        with locked(self.folder / "lock"):
            if not path.exists():
                shape = _new_shape(nodes or 1, port, self._host)
                write_atomically(path, msgspec.json.encode(shape))
                return shape
            shape = read_json(path, Shape)
            if nodes not in (None, len(shape.ports)) or port not in (None, shape.ports[0]):
                raise Conflict(
                    f"the broker in {self.folder} has {len(shape.ports)} node(s) from port {shape.ports[0]} on; "
                    "delete it first, or give the new one another name"
                )
            return shape

    def _format(self, kafka: Kafka) -> None:
        """Write the settings of all nodes, and let Kafka's storage tool prepare folders that are new."""
        (self.folder / "log4j2.properties").write_text(LOG4J)
        formatting = {}
        for index in self.nodes:
            folder = self.node_folder(index)
            folder.mkdir(exist_ok=True)
            properties = folder / "server.properties"
            properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties(index).items()))
            if not (folder / "data" / "meta.properties").exists():
                arguments = ("format", "--ignore-formatted", "-t", self.shape.cluster, "-c", str(properties))
                command = kafka.command("kafka.tools.StorageTool", *arguments, options=self._jvm())
                formatting[index] = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
        for index, process in formatting.items():
            said, _ = process.communicate()
            if process.returncode != 0:
                last = said.decode(errors="replace").strip().rpartition("\n")[2]
                raise ConfigError(f"Kafka's storage tool refused {self.node_folder(index)}: {last}")

    def _properties(self, index: int) -> dict[str, str]:
        """The server.properties of one node."""
        facts = {
            "{node}": str(index),
            "{host}": self._host,
            "{port}": str(self.shape.ports[index - 1]),
            "{controller_port}": str(self.shape.controller_ports[index - 1]),
        }
        lines = {
            **properties(len(self.nodes)),
            "node.id": "{node}",
            "listeners": f"PLAINTEXT://{{host}}:{{port}},CONTROLLER://{LOOPBACK}:{{controller_port}}",
            "advertised.listeners": f"PLAINTEXT://{self._advertise}:{{port}}",
            "controller.quorum.voters": ",".join(
                f"{number}@{LOOPBACK}:{port}" for number, port in enumerate(self.shape.controller_ports, 1)
            ),
            "log.dirs": str(self.node_folder(index) / "data"),
            **self._settings,
        }
        return {key: _filled(value, facts) for key, value in lines.items()}

    def _jvm(self) -> tuple[str, ...]:
        return (*JVM, f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}")

    def _launch(self, kafka: Kafka, index: int) -> None:
        """Start a node in a session of its own, so that it survives the terminal."""
        if self._process(index) is not None:
            return
        folder = self.node_folder(index)
        command = kafka.command("kafka.Kafka", str(folder / "server.properties"), options=self._jvm())
        log = folder / "log.txt"
        if log.exists() and log.stat().st_size > KEPT_LOG_BYTES:
            log.replace(folder / "log.old.txt")
        with log.open("ab") as output:
            child = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children[index] = child
        if (keeper := identify(child.pid)) is not None:  # else it has ended already
            write_atomically(folder / "pid", msgspec.json.encode(keeper))

    def _process(self, index: int) -> Keeper | None:
        """The live process of a node."""
        if index in self._children:
            self._children[index].poll()  # else a child of ours that has ended stays a zombie
        path = self.node_folder(index) / "pid"
        if not path.exists():
            return None
        keeper = read_json(path, Keeper)
        return keeper if is_alive(keeper) else None

    def _end(self, nodes: Collection[int], seconds: float) -> None:
        for index in nodes:
            self._signal(index, signal.SIGTERM)
        for index in self._wait_gone(nodes, seconds):
            self._signal(index, signal.SIGKILL)
        self._wait_gone(nodes, STOP_SECONDS)

    def _signal(self, index: int, number: signal.Signals) -> None:
        keeper = self._process(index)
        if keeper is None:
            return
        if keeper.host != socket.gethostname():
            raise Conflict(
                f"{self.node_folder(index)} runs on {keeper.host}; stop it there, or remove its pid file"
            )
        os.kill(keeper.pid, number)

    def _wait_gone(self, nodes: Collection[int], seconds: float) -> list[int]:
        """Those that still live after `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := [index for index in nodes if self._process(index)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _wait_answer(self, index: int, others: set[int], options: dict[str, Any], deadline: float) -> None:
        """Ask one node, and only it, until it sees all the others."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        quiet = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
        admin = AdminClient({"bootstrap.servers": self.address(index), **quiet, **options})
        while True:
            if self._process(index) is None:
                raise Unavailable(f"Kafka's node {index} has ended: {self.complaint(index)}")
            try:
                metadata = admin.list_topics(timeout=1)
            except KafkaException:
                metadata = None
            if metadata is not None and others <= set(metadata.brokers) and self._all_led(metadata, others):
                return
            if time.monotonic() > deadline:
                raise Unavailable(f"Kafka's node {index} does not answer at {self.address(index)}: "
                                  f"{self.complaint(index)}")  # fmt: skip
            time.sleep(0.05)

    def _all_led(self, metadata: Any, others: set[int]) -> bool:
        if len(others) < len(self.nodes):
            return True
        return all(
            part.leader >= 0 for topic in metadata.topics.values() for part in topic.partitions.values()
        )

    def complaint(self, index: int) -> str:
        """What the log of a node says went wrong last, and where to read on."""
        log = self.node_folder(index) / "log.txt"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        loud = [
            line for line in lines[-200:] if " ERROR " in line or " FATAL " in line or "Exception" in line
        ]
        return f"{loud[-1].strip() if loud else 'it did not say why'} (see {log})"


def properties(nodes: int) -> dict[str, str]:
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
    }


def _filled(value: str, facts: Mapping[str, str]) -> str:
    for name, fact in facts.items():
        value = value.replace(name, fact)
    return value


def _new_shape(nodes: int, port: int | None, host: str) -> Shape:
    if not 1 <= nodes <= 9:
        raise ConfigError(f"a broker has 1 to 9 nodes, not {nodes}")
    if port is not None and not 1 <= port <= 65536 - nodes:
        raise ConfigError(f"port {port} is none; give one from 1 to {65536 - nodes}")
    clients = tuple(_free_ports(nodes, host)) if port is None else tuple(range(port, port + nodes))
    controllers = tuple(_free_ports(nodes, LOOPBACK, clients))
    return Shape(urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="), clients, controllers)


def _free_ports(count: int, host: str, taken: Collection[int] = ()) -> list[int]:
    free: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(free) == count:
            break
        if port not in taken and _is_free(host, port):
            free.append(port)
    return free


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True

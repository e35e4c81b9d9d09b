"""A real Apache Kafka for tests and development: one node or a few, on this machine, in a folder.

In: a folder, how many nodes. Out: processes that answer at `bootstrap`, and per node in the folder
`node-<n>/{server.properties, data/, log.txt, pid}`. Not for production: all copies lie on one machine.
"""

import errno
import random
import shutil
import signal
import socket
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.broker.jars import Kafka, find_kafka, locked
from penstock.broker.node import Node, small_settings
from penstock.errors import ConfigError, Conflict, Unavailable
from penstock.loop.files import read_json, write_atomically

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below the ports that the kernel gives to clients: one of those could sit on ours while a node is down."""
START_SECONDS = 120.0
STOP_SECONDS = 15.0
PORT_SECONDS = 2.0
MOST_NODES = 9


class Shape(msgspec.Struct, frozen=True):
    """What a cluster keeps for life: who it is and where its nodes listen."""

    cluster: str
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]


class Broker:
    """A Kafka cluster of one to a few combined nodes, numbered from 1.

    The folder remembers ports and data: a Broker made again on it is the same cluster, also after
    `kill -9`. Its processes outlive this one; `stop` ends them. Any process may start and stop them.
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
        wrapper: Sequence[str] = (),
    ) -> None:
        """Open the cluster in `folder`, or make it with `nodes` (default 1) there; nothing is started.

        `port` is the first node's, the next ones follow it; default: free ones. `settings` are lines of
        server.properties that win over ours; {node}, {host}, {port} and {controller_port} in them are
        filled in. Nodes listen on `host` and tell clients `advertise` (default: the same).
        `client_options` are librdkafka's, for listeners that want a password or TLS. `wrapper` is a
        command that runs each node, as `ip netns exec NAME` or `setpriv --pdeathsig KILL`.
        """
        self.folder = folder.absolute()
        self._settings = dict(settings or {})
        self._host, self._advertise = host, advertise or host
        self._client_options = dict(client_options or {})
        if "," in str(self.folder):
            raise ConfigError(
                f"{self.folder} has a comma in it, where Kafka would begin another folder; use another"
            )
        self.shape = self._open(nodes, port)
        count = len(self.shape.ports)
        folders = {index: self.folder / f"node-{index}" for index in range(1, count + 1)}
        self.nodes = {index: Node(index, path, wrapper) for index, path in folders.items()}

    @property
    def bootstrap(self) -> str:
        """What clients connect to: host:port of each node, with commas between."""
        return ",".join(self.address(index) for index in self.nodes)

    @property
    def version(self) -> str | None:
        """The Kafka that ran here last."""
        path = self.folder / "version"
        return path.read_text() if path.exists() else None

    def address(self, index: int) -> str:
        return f"{self._advertise}:{self.shape.ports[index - 1]}"

    def pids(self) -> dict[int, int | None]:
        """The process of each node; None where it does not run."""
        return {i: keeper.pid if (keeper := node.process()) else None for i, node in self.nodes.items()}

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start the nodes that do not run and return once all answer; else end those and raise Unavailable."""
        if None in self.pids().values():
            self._start_with(quick(find_kafka()), seconds)
        else:
            self.wait_ready(seconds)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask all nodes to end, and end those that have not after `seconds`; their data stays."""
        self._end(self.nodes, seconds)

    def delete(self) -> None:
        """End all nodes at once and remove the folder with all data."""
        self._end(self.nodes, 0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_node(self, index: int) -> None:
        """Start one node unless it runs; `wait_ready` says when it answers."""
        self._launch(quick(find_kafka()), [index])

    def kill_node(self, index: int) -> None:
        """End one node with SIGKILL, as a crash would; return when it is gone."""
        self._end([index], 0)

    def wait_ready(
        self,
        seconds: float = START_SECONDS,
        options: Mapping[str, Any] | None = None,
        nodes: Collection[int] | None = None,
    ) -> None:
        """Return once each of `nodes` (default: all) answers clients and sees all of them.

        With all nodes, every partition has a leader, too. Raise Unavailable after `seconds`, or at once
        when one of them has ended.
        """
        awaited = set(self.nodes if nodes is None else nodes)
        deadline = time.monotonic() + seconds
        for index in sorted(awaited):
            while not self._answers(index, awaited, {**self._client_options, **(options or {})}):
                if self.nodes[index].process() is None:
                    raise Unavailable(f"Kafka's node {index} has ended: {self.nodes[index].complaint()}")
                if time.monotonic() > deadline:
                    place = f"{self.address(index)} does not answer after {seconds:.0f} s"
                    raise Unavailable(f"Kafka's node {index} at {place}: {self.nodes[index].complaint()}")
                time.sleep(0.05)

    def _open(self, nodes: int | None, port: int | None) -> Shape:
        """The shape that the folder remembers, or a new one."""
        path = self.folder / "cluster.json"
        with locked(self.folder / "lock"):
            if not path.exists():
                shape = _new_shape(1 if nodes is None else nodes, port, self._host)
                write_atomically(path, msgspec.json.encode(shape))
                return shape
        shape = read_json(path, Shape)
        if nodes not in (None, len(shape.ports)) or port not in (None, shape.ports[0]):
            raise Conflict(
                f"the broker in {self.folder} has {len(shape.ports)} node(s), the first on port {shape.ports[0]}; "
                "delete it first, or give the new one another name"
            )
        return shape

    def _start_with(self, kafka: Kafka, seconds: float) -> None:
        launched = self._launch(kafka, self.nodes)
        try:
            self.wait_ready(seconds)
        except BaseException:
            self._end(launched, 0)
            raise

    def _launch(self, kafka: Kafka, indexes: Collection[int]) -> list[int]:
        """Start those that do not run; return which."""
        with locked(self.folder / "lock"):
            idle = [self.nodes[index] for index in indexes if self.nodes[index].process() is None]
            for node in idle:
                self._check_port(node.index)
                node.write_settings(self._settings_of(node))
            tools = [(node, node.begin_format(kafka, self.shape.cluster)) for node in idle]
            for node, tool in tools:
                if tool is not None:
                    node.end_format(tool)
            write_atomically(self.folder / "version", kafka.version.encode())
            for node in idle:
                node.launch(kafka)
        return [node.index for node in idle]

    def _check_port(self, index: int) -> None:
        """Give a node that has just ended a moment to let its port go."""
        port = self.shape.ports[index - 1]
        deadline = time.monotonic() + PORT_SECONDS
        while not _is_free(self._host, port):
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise Conflict(
                f"{self._host}:{port}, where node {index} of {self.folder} listens, is taken; "
                "end the program that has it, or delete this broker and start one on another port"
            )

    def _settings_of(self, node: Node) -> dict[str, str]:
        """The server.properties of one node."""
        facts = {
            "{node}": str(node.index),
            "{host}": self._host,
            "{port}": str(self.shape.ports[node.index - 1]),
            "{controller_port}": str(self.shape.controller_ports[node.index - 1]),
        }
        voters = enumerate(self.shape.controller_ports, 1)
        lines = {
            **small_settings(len(self.nodes)),
            "node.id": "{node}",
            "listeners": f"PLAINTEXT://{{host}}:{{port}},CONTROLLER://{LOOPBACK}:{{controller_port}}",
            "advertised.listeners": f"PLAINTEXT://{self._advertise}:{{port}}",
            "controller.quorum.voters": ",".join(f"{index}@{LOOPBACK}:{port}" for index, port in voters),
            "log.dirs": str(node.folder / "data"),
            **self._settings,
        }
        return {key: _filled(value, facts) for key, value in lines.items()}

    def _end(self, indexes: Collection[int], seconds: float) -> None:
        """Ask to end, and end what has not after `seconds`; with 0 ask nobody."""
        if seconds > 0:
            self._signal(indexes, signal.SIGTERM)
            self._wait_gone(indexes, seconds)
        self._signal(indexes, signal.SIGKILL)
        self._wait_gone(indexes, STOP_SECONDS)

    def _signal(self, indexes: Collection[int], number: signal.Signals) -> None:
        for index in indexes:
            self.nodes[index].signal(number)

    def _wait_gone(self, indexes: Collection[int], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while any(self.nodes[index].process() for index in indexes) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _answers(self, index: int, others: set[int], options: dict[str, Any]) -> bool:
        """Whether this node sees all the others. A new client each time: an old one may ask another node."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if not _is_open(self._advertise, self.shape.ports[index - 1]):
            return False
        admin = AdminClient({"bootstrap.servers": self.address(index), "log_level": 0, **options})
        try:
            metadata = admin.list_topics(timeout=2)
        except KafkaException:
            return False
        leaders = [part.leader for topic in metadata.topics.values() for part in topic.partitions.values()]
        return others <= set(metadata.brokers) and (
            others < set(self.nodes) or all(at >= 0 for at in leaders)
        )


def quick(kafka: Kafka) -> Kafka:
    """The same Kafka with its classes archived, which takes a third off the time of a start.

    The first call with this Java and these jars runs a broker for that, once; where that fails, as with
    a cache that cannot be written, starts just stay slow.
    """
    archive = kafka.archive()
    try:
        if not archive.exists():
            with locked(archive.with_suffix(".lock")):
                if not archive.exists():
                    _make_archive(kafka, archive)
        return kafka.sharing(archive) if archive.stat().st_size else kafka
    except OSError:
        return kafka


def _make_archive(kafka: Kafka, archive: Path) -> None:
    """Run a broker that writes down the classes it used; an empty archive says that it could not."""
    trial = Broker(archive.with_suffix(".trial"))
    written = trial.folder / archive.name
    try:
        trial._start_with(kafka.recording(written), START_SECONDS)
        trial.stop()
        written.replace(archive)
    except (Unavailable, FileNotFoundError):
        archive.touch()
    finally:
        trial.delete()


def _filled(value: str, facts: Mapping[str, str]) -> str:
    for name, fact in facts.items():
        value = value.replace(name, fact)
    return value


def _new_shape(nodes: int, port: int | None, host: str) -> Shape:
    if not 1 <= nodes <= MOST_NODES:
        raise ConfigError(f"a broker has 1 to {MOST_NODES} nodes, not {nodes}")
    if port is not None and not 1 <= port <= 65536 - nodes:
        raise ConfigError(f"{port} is no port for {nodes} node(s); give one from 1 to {65536 - nodes}")
    clients = _free_ports(nodes, host) if port is None else tuple(range(port, port + nodes))
    cluster = "p" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]  # a leading - would be an option
    return Shape(cluster, clients, _free_ports(nodes, LOOPBACK, clients))


def _free_ports(count: int, host: str, taken: Collection[int] = ()) -> tuple[int, ...]:
    free: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if port not in taken and _is_free(host, port):
            free.append(port)
            if len(free) == count:
                return tuple(free)
    raise Conflict(f"all ports from {PORTS[0]} to {PORTS[-1]} are taken at {host}; end some programs")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as Kafka does: old connections may linger
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # an address of another network namespace is not taken
        return True


def _is_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True

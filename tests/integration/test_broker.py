"""A real Kafka, started, hurt and stopped, by the command line and from Python."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker import Broker
from penstock.broker import jars as broker_jars
from penstock.broker.jars import find_kafka
from penstock.errors import ConfigError, Conflict, Damaged, PenstockError, Unavailable
from tests.brokers import Secured, running, sasl_broker, tls_broker
from tests.integration.harness import command, environment, penstock

QUIET = {"log_level": 0}


def status(home: Path, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(penstock(home, "broker", "status", "--json", *arguments).stdout))


def topic(bootstrap: str, replicas: int = 1, **options: Any) -> str:
    """A new topic of one partition."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET, **options})
    admin.create_topics([NewTopic(name, 1, replicas)])[name].result(timeout=20)
    return name


def write(bootstrap: str, name: str, *values: bytes, **options: Any) -> None:
    """Return when all in-sync replicas have them."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **QUIET, **options})
    failures: list[Any] = []
    for value in values:
        producer.produce(name, value, callback=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failures


def read(bootstrap: str, name: str, count: int, **options: Any) -> list[bytes]:
    """The first `count` values of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", **QUIET, **options})
    consumer.assign([TopicPartition(name, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home where `penstock broker start` has run; its path is one that Java may stumble over."""
    path = tmp_path_factory.mktemp("broker") / "höme of=a user"
    try:
        penstock(path, "broker", "start")
        yield path
    finally:
        for name in ("default", "none", "far"):
            penstock(path, "broker", "stop", "--delete", "--name", name, check=False)


class TestTheCommand:
    def test_it_starts_a_broker_that_moves_records(self, home: Path) -> None:
        found = status(home)
        [node] = found["nodes"]
        assert (found["state"], node["state"], found["version"]) == ("running", "running", broker_jars.KAFKA)
        assert found["address"] == f"kafka://{node['address']}"
        name = topic(node["address"])
        write(node["address"], name, b"one", b"two")
        assert read(node["address"], name, 2) == [b"one", b"two"]

    def test_starting_twice_says_where_it_runs(self, home: Path) -> None:
        before = status(home)
        assert f"runs already: {before['address']}" in penstock(home, "broker", "start").stdout
        assert status(home)["nodes"][0]["pid"] == before["nodes"][0]["pid"]

    def test_two_terminals_that_start_it_at_once_start_one(self, home: Path) -> None:
        penstock(home, "broker", "stop")
        both = [
            subprocess.Popen(command("broker", "start"), env=environment(home), stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        assert [process.wait(60) for process in both] == [0, 0]
        [pid] = [node["pid"] for node in status(home)["nodes"]]
        assert len([path for path in Path("/proc").glob("[0-9]*/cmdline") if _runs(path, home)]) == 1, pid

    def test_data_and_address_survive_kill_9_and_stop(self, home: Path) -> None:
        before = status(home)
        address = before["nodes"][0]["address"]
        name = topic(address)
        write(address, name, b"kept")
        os.kill(before["nodes"][0]["pid"], signal.SIGKILL)
        _until(lambda: status(home)["state"] == "stopped")
        penstock(home, "broker", "start")
        assert status(home)["address"] == before["address"]
        assert read(address, name, 1) == [b"kept"]
        assert "its data is in" in penstock(home, "broker", "stop").stdout
        assert status(home)["state"] == "stopped"
        assert "was not running" in penstock(home, "broker", "stop").stdout
        penstock(home, "broker", "start")
        assert read(address, name, 1) == [b"kept"]

    def test_no_topic_is_made_by_accident(self, home: Path) -> None:
        address = status(home)["nodes"][0]["address"]
        admin = AdminClient({"bootstrap.servers": address, **QUIET})
        admin.list_topics("misspelt", timeout=5)
        time.sleep(0.5)
        assert "misspelt" not in admin.list_topics(timeout=5).topics

    def test_it_has_a_session_of_its_own(self, home: Path) -> None:
        pid = status(home)["nodes"][0]["pid"]
        assert os.getsid(pid) == pid

    def test_logs_are_short_and_say_when_it_started(self, home: Path) -> None:
        said = penstock(home, "broker", "logs").stdout
        assert "Kafka Server started" in said
        # a trace of an election on a busy machine is one thing said, however long
        assert len([line for line in said.splitlines() if re.match(r"\d{4}-\d\d-\d\dT", line)]) < 30
        assert len(penstock(home, "broker", "logs", "--lines", "1").stdout.splitlines()) == 1

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("stop", "--name", "defualt"), "no broker 'defualt'"),
            (("status", "--name", "defualt"), "did you mean 'default'?"),
            (("start", "--name", "../up"), "is no name for a broker"),
            (("start", "--nodes", "3"), "has 1 node(s)"),
            (("start", "--nodes", "0", "--name", "none"), "1 to 9 nodes, not 0"),
            (("start", "--port", "70000", "--name", "far"), "70000 is no port"),
            (("logs", "--node", "2"), "has no node 2"),
            (("logs", "--lines", "-1"), "give 0 or more"),
        ],
    )
    def test_a_wrong_word_is_answered_in_one_sentence(
        self, home: Path, arguments: tuple[str, ...], sentence: str
    ) -> None:
        done = penstock(home, "broker", *arguments, check=False)
        assert done.returncode == 1
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1

    def test_stop_delete_leaves_nothing(self, tmp_path: Path) -> None:
        penstock(tmp_path, "broker", "start", "--name", "brief")
        pid = status(tmp_path, "--name", "brief")["nodes"][0]["pid"]
        assert (
            "its data is gone" in penstock(tmp_path, "broker", "stop", "--name", "brief", "--delete").stdout
        )
        assert not (tmp_path / "broker" / "brief").exists()
        _until(lambda: not Path(f"/proc/{pid}").exists())

    def test_help_needs_no_kafka_client(self) -> None:
        check = "import sys, penstock.cli; sys.exit('confluent_kafka' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


class TestTheCluster:
    def test_three_nodes_lose_one_and_get_it_back(self, tmp_path: Path) -> None:
        with running(Broker(tmp_path / "trio", nodes=3)) as trio:
            name = topic(trio.bootstrap, replicas=3)
            write(trio.bootstrap, name, b"by three")
            trio.kill_node(1)
            assert [index for index, pid in trio.pids().items() if pid is None] == [1]
            write(trio.bootstrap, name, b"by two")
            with pytest.raises(Unavailable, match="node 1 has ended"):
                trio.wait_ready(5)
            trio.wait_ready(nodes=[2, 3])
            trio.start_node(1)
            trio.wait_ready()
            assert read(trio.address(1), name, 2) == [b"by three", b"by two"]

    def test_another_program_with_the_same_pid_is_left_alone(self, tmp_path: Path) -> None:
        broker = Broker(tmp_path / "b")
        with running(broker):
            pid_file = broker.nodes[1].folder / "pid"
            written = json.loads(pid_file.read_text())
        stranger = subprocess.Popen(["sleep", "60"])
        try:
            again = Broker(tmp_path / "b")
            pid_file.parent.mkdir(parents=True)
            pid_file.write_text(json.dumps({**written, "pid": stranger.pid}))
            again.stop()
            again.kill_node(1)
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()

    def test_a_port_that_is_taken_is_named(self, tmp_path: Path) -> None:
        with socket.socket() as squatter:
            squatter.bind(("127.0.0.1", 0))
            squatter.listen()
            port = squatter.getsockname()[1]
            with pytest.raises(Conflict, match=f"127.0.0.1:{port}, where node 1"):
                Broker(tmp_path / "b", port=port).start()

    def test_a_setting_that_kafka_refuses_is_told_and_nothing_stays_running(self, tmp_path: Path) -> None:
        broker = Broker(tmp_path / "b", settings={"num.io.threads": "-1"})
        with pytest.raises(PenstockError, match=r"num\.io\.threads"):
            broker.start()
        assert broker.pids() == {1: None}

    def test_an_address_of_another_machine_is_refused(self, tmp_path: Path) -> None:
        broker = Broker(tmp_path / "b", host="192.0.2.1")
        with pytest.raises(
            Unavailable, match=r"node 1 has ended: .*Cannot assign requested address.*log\.txt"
        ):
            broker.start()
        assert broker.pids() == {1: None}

    def test_a_mortal_node_ends_with_the_process_that_started_it(self, tmp_path: Path) -> None:
        """Else tests that are killed would leave it behind."""
        program = (
            "import sys, os, pathlib; from tests.brokers import MORTAL; from penstock.broker import Broker\n"
            "broker = Broker(pathlib.Path(sys.argv[1]), wrapper=MORTAL); broker.start()\n"
            "print(broker.pids()[1]); sys.stdout.flush(); os.kill(os.getpid(), 9)"
        )
        said = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "b")], stdout=subprocess.PIPE, check=False
        ).stdout
        _until(lambda: not Path(f"/proc/{int(said)}").exists())

    @pytest.mark.parametrize("make", [sasl_broker, tls_broker])
    def test_a_guarded_listener_lets_in_only_who_may(self, tmp_path: Path, make: Any) -> None:
        guarded: Secured = make(tmp_path)
        with running(guarded.broker) as broker:
            name = topic(broker.bootstrap, **guarded.options)
            write(broker.bootstrap, name, b"secret", **guarded.options)
            assert read(broker.bootstrap, name, 1, **guarded.options) == [b"secret"]
            with pytest.raises(KafkaException):
                AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET}).list_topics(timeout=2)

    def test_the_shared_broker_forgets_quickly(self, broker: Broker) -> None:
        """Other tests rely on its retention."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        config = {"retention.ms": "100", "segment.ms": "100"}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(timeout=20)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})

        def first_offset() -> int:
            write(broker.bootstrap, name, b"old")
            return int(consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=5)[0])

        _until(lambda: first_offset() > 0)
        consumer.close()


class TestKafkaItself:
    """Where the jars come from. `maven` is a stand-in for mvn that copies the real jars, and may spoil one."""

    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("KAFKA_HOME", raising=False)
        return tmp_path / "cache" / "penstock"

    @pytest.fixture
    def maven(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        libs = find_kafka().libs
        mvn = tmp_path / "bin" / "mvn"
        mvn.parent.mkdir()
        mvn.write_text(
            "#!/bin/bash\n"
            f'echo "$@" >> {tmp_path}/calls\n'
            'for word in "$@"; do case $word in -DoutputDirectory=*) to=${word#*=};; esac; done\n'
            f'mkdir "$to" && cp {libs}/*.jar "$to"\n'
            f'if [ -e {tmp_path}/spoil ]; then echo x >> "$to"/zstd*.jar; fi\n'
            f'if [ -e {tmp_path}/refuse ]; then echo "[ERROR] no route to the registry"; exit 1; fi\n'
        )
        mvn.chmod(0o755)
        monkeypatch.setenv("PATH", f"{mvn.parent}:{os.environ['PATH']}")
        return tmp_path

    def test_without_java_it_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        done = penstock(tmp_path / "home", "broker", "start", check=False)
        assert done.returncode == 1
        assert "no java on PATH" in done.stderr
        assert "apt-get install openjdk-17-jre-headless" in done.stderr

    def test_an_old_java_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text("""#!/bin/sh\necho 'openjdk version "1.8.0_402"' >&2\n""")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(ConfigError, match=r"Java 17 or newer, and .* is 8"):
            find_kafka()

    def test_without_maven_it_says_what_to_install(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(Path(broker_jars.find_java()).resolve().parents[1]))
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ConfigError, match=r"no mvn on PATH.*apt-get install.*maven.*KAFKA_HOME"):
            find_kafka()
        assert not list(cache.glob("kafka-*[0-9]"))

    def test_a_jar_with_a_wrong_checksum_is_refused_and_not_kept(self, maven: Path, cache: Path) -> None:
        (maven / "spoil").touch()
        with pytest.raises(Damaged, match=r"zstd-jni-.*\.jar has another sha256"):
            find_kafka()
        assert [path.name for path in cache.iterdir()] == [f"kafka-{broker_jars.KAFKA}.lock"]
        (maven / "spoil").unlink()
        assert find_kafka().libs == cache / f"kafka-{broker_jars.KAFKA}" / "libs"

    def test_a_download_that_fails_says_why_and_leaves_nothing(self, maven: Path, cache: Path) -> None:
        (maven / "refuse").touch()
        with pytest.raises(Unavailable, match="no route to the registry; try again"):
            find_kafka()
        assert [path.name for path in cache.iterdir()] == [f"kafka-{broker_jars.KAFKA}.lock"]

    def test_two_processes_download_once(self, maven: Path, cache: Path) -> None:
        program = [
            sys.executable,
            "-c",
            "from penstock.broker.jars import find_kafka; print(find_kafka().libs)",
        ]
        both = [subprocess.Popen(program, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        assert len({process.communicate(timeout=60)[0] for process in both}) == 1
        assert len((maven / "calls").read_text().splitlines()) == 1

    def test_a_jar_cut_short_in_the_cache_is_downloaded_again(self, maven: Path, cache: Path) -> None:
        libs = find_kafka().libs
        jar = next(libs.glob("kafka_2.13-*.jar"))
        jar.write_bytes(jar.read_bytes()[:1000])
        find_kafka()
        assert jar.stat().st_size > 1000
        assert len((maven / "calls").read_text().splitlines()) == 2

    def test_kafka_home_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "libs").symlink_to(find_kafka().libs)
        monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
        found = find_kafka()
        assert (found.libs, found.version) == (tmp_path / "libs", broker_jars.KAFKA)

    def test_kafka_home_that_leads_nowhere_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "nowhere"))
        done = penstock(tmp_path / "home", "broker", "start", check=False)
        assert done.returncode == 1
        assert f"KAFKA_HOME is {tmp_path / 'nowhere'}, which has no libs/" in done.stderr

    def test_doctor_says_what_the_broker_needs(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        found = json.loads(penstock(tmp_path, "doctor", "--json").stdout)
        parts = {part["name"]: part for part in found["parts"]}
        assert parts["kafka"]["ready"]
        assert parts["java"]["fix"] == "apt-get install openjdk-17-jre-headless"
        assert parts["broker"]["fix"] == "apt-get install maven"
        assert found["ready"]


def _runs(cmdline: Path, home: Path) -> bool:
    """Whether this process is a Kafka of that home."""
    try:
        words = cmdline.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return "kafka.Kafka" in words and any(word.startswith(str(home)) for word in words)


def _until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)

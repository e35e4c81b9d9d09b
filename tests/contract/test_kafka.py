"""Kafka keeps the contract, on a real broker; and what only it must cope with."""

import ctypes
import importlib.util
import os
import signal
import socketserver
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from penstock.broker import Broker
from penstock.errors import ConfigError, Unavailable
from penstock.model.codec import Schema, encode
from penstock.model.spec import KafkaSpec
from penstock.stream import kafka_clients
from penstock.stream.base import Stream, TopicPolicy, Writer
from penstock.stream.kafka import KafkaStream
from penstock.testing.streams import StreamContract, eventually, everything, start
from tests.brokers import PASSWORD, make_certificates, running, sasl_broker, tls_broker
from tests.lacking import lacking

QUICK = KafkaSpec(
    max_record_bytes=1 << 20,
    topic_config={"min.compaction.lag.ms": 0, "segment.ms": 200, "min.cleanable.dirty.ratio": 0.01},
)
FRAME = encode(Schema.REPORT, {"steps": 1})
Events = list[tuple[str, dict[str, Any]]]


def opening_of(url: str, spec: KafkaSpec = QUICK) -> str:
    return (
        "from penstock.model.spec import KafkaSpec\n"
        "from penstock.stream.kafka import KafkaStream\n"
        f"stream = KafkaStream({url!r}, {spec!r})"
    )


@pytest.fixture
def url(broker: Broker) -> str:
    """One broker serves all tests: each has a prefix of its own."""
    return f"kafka://{broker.bootstrap}/t-{uuid.uuid4().hex[:8]}"


class TestKafkaStream(StreamContract):
    patience_seconds = 30.0
    kills = 20
    settle_seconds = 0.3
    protects = False
    exact = False
    filler = b"x" * 300_000

    @pytest.fixture
    def opening(self, url: str) -> str:
        return opening_of(url)

    @pytest.fixture
    def stream(self, url: str) -> Iterator[Stream]:  # the annotation lets the type checker compare them
        opened = KafkaStream(url, QUICK)
        yield opened
        opened.close()


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def opened(url: str, events: Events) -> Iterator[Callable[..., KafkaStream]]:
    """Opens streams that are closed at the end."""
    streams = []

    def open_stream(**settings: Any) -> KafkaStream:
        made = KafkaStream(url, KafkaSpec(**settings), on_event=lambda *event: events.append(event))
        streams.append(made)
        return made

    yield open_stream
    for made in streams:
        made.close()


@pytest.fixture
def foreign(broker: Broker, url: str) -> Callable[..., str]:
    """Makes a topic as somebody else would, with records; returns its name of ours."""

    def make(topic: str, *values: bytes, partitions: int = 1, **config: str) -> str:
        name = f"{url.rpartition('/')[2]}.{topic}"
        options = {"bootstrap.servers": broker.bootstrap}
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = AdminClient(options)  # it must live until the answer has come
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
        producer = Producer(options)
        for value in values:
            producer.produce(name, value, b"k", 0)
        assert producer.flush(10) == 0
        return topic

    return make


# --- topics that are there already, and settings that do not fit them


def test_a_topic_that_must_not_be_made_is_named(opened: Callable[..., KafkaStream]) -> None:
    stream = opened(create=False)
    sentence = r"topic t-\w+\.experiences\.x is not there.*penstock topics create"
    with pytest.raises(ConfigError, match=sentence):
        stream.ensure("experiences.x", TopicPolicy())
    with pytest.raises(ConfigError, match=sentence):
        stream.writer("experiences.x").write("0", b"x")
    with pytest.raises(ConfigError, match=sentence):
        stream.reader("experiences.x")


def test_a_topic_that_is_there_is_enough(
    opened: Callable[..., KafkaStream], foreign: Callable[..., str]
) -> None:
    topic, stream = foreign("experiences.x", FRAME, partitions=8), opened(create=False)
    stream.ensure(topic, TopicPolicy(partitions=4))
    stream.writer(topic).write("7", b"x")
    assert [record.partition for record in everything(stream.reader(topic), 2)].count(7) == 1


def test_too_few_partitions_are_named(
    opened: Callable[..., KafkaStream], foreign: Callable[..., str]
) -> None:
    with pytest.raises(
        ConfigError, match=r"has 2 partition.*4 are asked for; lower stream\.kafka\.partitions"
    ):
        opened().ensure(foreign("experiences.x", partitions=2), TopicPolicy(partitions=4))


def test_more_copies_than_brokers_are_named(opened: Callable[..., KafkaStream]) -> None:
    with pytest.raises(ConfigError, match=r"cannot have 3 copies.*lower stream\.kafka\.replication"):
        opened(replication=3).ensure("experiences.x", TopicPolicy())


def test_too_few_copies_are_named(opened: Callable[..., KafkaStream], foreign: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match=r"has 1 copies, 2 are asked for; lower stream\.kafka\.replication"):
        opened(replication=2).ensure(foreign("experiences.x"), TopicPolicy())


def test_settings_that_kafka_refuses_are_named(opened: Callable[..., KafkaStream]) -> None:
    stream = opened(topic_config={"segment.mss": 5})
    with pytest.raises(ConfigError, match=r"Kafka refuses.*segment\.mss.*stream\.kafka\.topic_config"):
        stream.ensure("experiences.x", TopicPolicy())
    with pytest.raises(ConfigError, match="cannot be a topic"):
        stream.ensure("no name", TopicPolicy())


def test_a_compacted_topic_is_not_taken_for_experience(
    opened: Callable[..., KafkaStream], foreign: Callable[..., str]
) -> None:
    with pytest.raises(ConfigError, match=r"experiences\.x holds something else.*HOST:PORT/PREFIX"):
        opened().ensure(foreign("experiences.x", cleanup_policy="compact"), TopicPolicy())


def test_a_topic_that_holds_something_else_is_left_alone(
    opened: Callable[..., KafkaStream], foreign: Callable[..., str]
) -> None:
    with pytest.raises(ConfigError, match=r"runs holds something else.*HOST:PORT/PREFIX"):
        opened().ensure(foreign("runs", b'{"order": 1}', b'{"order": 2}'), TopicPolicy(compact=True))
    damaged = foreign("history.x", FRAME, b"one foreign record among ours")
    opened().ensure(damaged, TopicPolicy())


def test_settings_that_others_raised_stay(
    opened: Callable[..., KafkaStream], foreign: Callable[..., str], broker: Broker, url: str
) -> None:
    topic = foreign("history.x", max_message_bytes="100000000", segment_ms="12345", retention_ms="1000")
    opened().ensure(topic, TopicPolicy(retention_seconds=60))
    resource = ConfigResource(ResourceType.TOPIC, f"{url.rpartition('/')[2]}.{topic}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_configs([resource])[resource].result()
    names = ("max.message.bytes", "segment.ms", "retention.ms")
    assert [found[name].value for name in names] == ["100000000", "12345", "60000"]


def test_streams_with_other_prefixes_do_not_meet(opened: Callable[..., KafkaStream], broker: Broker) -> None:
    mine = opened()
    mine.ensure("runs", TopicPolicy(compact=True))
    mine.writer("runs").write("r", FRAME)
    other = KafkaStream(f"kafka://{broker.bootstrap}/other-{uuid.uuid4().hex[:8]}")
    assert other.newest("runs") == []
    assert other.topics() == []
    assert [info.name for info in mine.topics()] == ["runs"]
    bare = KafkaStream(f"kafka://{broker.bootstrap}")
    assert any(info.name.endswith(".runs") for info in bare.topics())
    assert not any(info.name.startswith("__") for info in bare.topics())
    other.close()
    bare.close()


def test_the_topics_of_a_run_go_together(opened: Callable[..., KafkaStream]) -> None:
    stream = opened()
    for topic in ("experiences.a", "model_updates.a", "history.a", "experiences.b", "metrics.actors"):
        stream.writer(topic).write("0", FRAME)
    stream.remove_run("a")
    stream.remove_run("unknown")
    assert [info.name for info in stream.topics()] == ["experiences.b", "metrics.actors"]


# --- records


def test_a_record_that_is_too_large_names_the_setting(
    opened: Callable[..., KafkaStream], foreign: Callable[..., str]
) -> None:
    stream = opened(max_record_bytes=1 << 16)
    sentence = r"a record of \d+ bytes.*stream\.kafka\.max_record_bytes \(now 65536\).*max\.message\.bytes"
    with pytest.raises(ConfigError, match=sentence):
        stream.writer("experiences.x").write("0", bytes((1 << 16) + 1))
    stream.writer("experiences.x").write("0", bytes(1 << 16))
    small = foreign("history.x", max_message_bytes="1000")
    with pytest.raises(ConfigError, match=sentence):
        stream.writer(small).write("0", os.urandom(5000))


def test_the_largest_record_passes(opened: Callable[..., KafkaStream]) -> None:
    stream = opened()
    value = os.urandom(32 << 20)
    stream.writer("experiences.x").write("0", value)
    reader = stream.reader("experiences.x")
    assert everything(reader, 1)[0].value == value
    assert next(stream.backwards("experiences.x", "0")).value == value


def test_foreign_keys_and_empty_values_stop_nobody(
    opened: Callable[..., KafkaStream], foreign: Callable[..., str], broker: Broker, url: str
) -> None:
    topic, stream = foreign("odd"), opened()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    name = f"{url.rpartition('/')[2]}.{topic}"
    for key, value in ((None, b"1"), (b"\xff\xfe", b"2"), (b"gone", b"3"), (b"gone", None), (None, None)):
        producer.produce(name, value, key)
    assert producer.flush(10) == 0
    found = [(record.key, record.value) for record in everything(stream.reader(topic), 5)]
    assert found == [("", b"1"), ("\ufffd\ufffd", b"2"), ("gone", b"3"), ("gone", b""), ("", b"")]
    assert [record.value for record in stream.backwards(topic, "gone")] == [b"", b"3"]
    assert [record.value for record in stream.newest(topic)] == [b"2"], "keys that were deleted are left out"


def test_records_carry_headers_and_their_compression(
    opened: Callable[..., KafkaStream], broker: Broker, url: str
) -> None:
    stream, prefix = opened(compression={"history": "zstd"}), url.rpartition("/")[2]
    report = encode(Schema.REPORT, {"run": "r-1", "text": "x" * 50_000})
    for topic in ("history.r-1", "metrics.actors"):
        stream.writer(topic).write("r-1", report)
        log = next(broker.folder.glob(f"*/data/{prefix}.{topic}-0/*.log"))
        assert (log.stat().st_size < 10_000) == (topic == "history.r-1")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([f"{prefix}.metrics.actors"])
    message = consumer.poll(20)
    assert message is not None
    assert dict(message.headers() or []) == {"schema": b"report", "run": b"r-1"}
    consumer.close()


def test_a_reader_whose_topic_was_made_anew_starts_again_and_says_so(
    opened: Callable[..., KafkaStream], events: Events
) -> None:
    stream = opened()
    writer = stream.writer("experiences.x")
    for number in range(20):
        writer.write("0", b"old %d" % number)
    reader = stream.reader("experiences.x")
    assert len(everything(reader, 20)) == 20
    stream.remove("experiences.x")
    stream.ensure("experiences.x", TopicPolicy())
    writer.write("0", b"new 0")
    writer.write("0", b"new 1")
    assert [record.value for record in everything(reader, 2, 30)] == [b"new 0", b"new 1"]
    late = stream.reader("experiences.x", {0: 20})
    assert [record.value for record in everything(late, 2)] == [b"new 0", b"new 1"]
    told = [facts for name, facts in events if name == "kafka_place_beyond_end"]
    assert told[-1] == {"topic": "experiences.x", "partition": 0, "position": 20, "end": 2}
    assert late.missed == 0


def test_a_writer_makes_a_topic_again_that_was_removed(opened: Callable[..., KafkaStream]) -> None:
    stream, other = opened(), opened()
    writer = stream.writer("experiences.x")
    writer.write("0", b"old")
    other.remove("experiences.x")
    writer.write("0", b"new")
    assert [record.value for record in everything(stream.reader("experiences.x"), 1)] == [b"new"]


def test_one_thread_does_not_wait_for_the_reports_of_another(opened: Callable[..., KafkaStream]) -> None:
    stream = opened()
    stream.ensure("experiences.x", TopicPolicy(partitions=4))

    def write(slot: int) -> None:
        writer = stream.writer("experiences.x")
        for number in range(100):
            writer.write(str(slot), b"%d" % number)

    threads = [threading.Thread(target=write, args=(slot,)) for slot in range(4)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 20
    found = everything(stream.reader("experiences.x"), 400)
    for slot in range(4):
        assert [int(record.value) for record in found if record.key == str(slot)] == list(range(100))


# --- processes

FORK = """
import os, sys
from penstock.errors import Conflict
from penstock.stream.base import TopicPolicy
stream.ensure("forked", TopicPolicy())
writer, reader = stream.writer("forked"), stream.reader("forked")
writer.write("k", b"1")
assert len(reader.read(1, 10)) == 1
stream.claim("x")
if os.fork() == 0:
    for use in (lambda: writer.write("k", b"2"), lambda: writer.offer("k", b"2"), lambda: reader.read(1, 0),
                lambda: stream.end("forked"), lambda: stream.claimed("x"), lambda: stream.reader("forked"),
                lambda: stream.ensure("forked", TopicPolicy()), lambda: stream.writer("forked")):
        try:
            use()
        except Conflict as error:
            assert "open one of its own after a fork" in str(error)
        else:
            os._exit(3)
    if close:
        reader.close()
        stream.close()
    sys.exit(0)
assert os.wait()[1] == 0
writer.write("k", b"3")
assert [record.value for record in reader.read(9, 10)] == [b"3"]
print("fine", flush=True)
"""


@pytest.mark.parametrize("close", [True, False])
def test_no_client_lives_across_a_fork(url: str, close: bool) -> None:
    child = start(opening_of(url), FORK, close=close)
    assert child.communicate(timeout=60)[0] == b"fine\n"
    assert child.returncode == 0


def test_a_producer_that_gave_up_is_replaced(opened: Callable[..., KafkaStream], events: Events) -> None:
    """librdkafka gives a producer up for good when a broker has lost what it had acknowledged."""
    found = importlib.util.find_spec("confluent_kafka")
    assert found is not None
    assert found.origin is not None
    libraries = list(Path(found.origin).parents[1].glob("confluent_kafka.libs/librdkafka*"))
    if not libraries:
        lacking("this confluent-kafka does not bring its own librdkafka; install its wheel")
    stream = opened()
    writer = stream.writer("experiences.x")
    writer.write("0", b"1")
    producer = writer._outlet.producer
    handle = ctypes.c_void_p.from_address(id(producer) + 16)  # behind the head of every Python object
    ctypes.CDLL(str(libraries[0])).rd_kafka_test_fatal_error(handle, 45, b"made up")
    writer.write("0", b"2")
    writer.offer("0", b"3")
    assert [name for name, _ in events] == ["kafka_producer_renewed"]
    assert [record.value for record in everything(stream.reader("experiences.x"), 3)] == [b"1", b"2", b"3"]


# --- brokers that cannot be reached, or turn us away


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "CONNECT_SECONDS", 2.5)
    monkeypatch.setattr(kafka_clients, "CERTAIN_SECONDS", 0.5)


USES: list[Callable[[KafkaStream], object]] = [
    lambda stream: stream.writer("t"),
    lambda stream: stream.reader("t"),
    lambda stream: stream.ensure("t", TopicPolicy()),
    lambda stream: stream.claimed("t"),
]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("use", USES)
def test_nobody_at_the_port_is_said_in_time(use: Callable[[KafkaStream], object]) -> None:
    started = time.monotonic()
    stream = KafkaStream("kafka://127.0.0.1:1/p")
    with pytest.raises(
        Unavailable, match=r"cannot reach Kafka at 127\.0\.0\.1:1 \(.*Connection refused\); start"
    ):
        use(stream)
    assert time.monotonic() - started < 8
    stream.close()


@pytest.mark.usefixtures("hasty")
def test_a_host_that_has_no_address_is_named() -> None:
    with pytest.raises(Unavailable, match=r"cannot reach Kafka at nowhere\.invalid:9092 \(Failed to resolve"):
        KafkaStream("kafka://nowhere.invalid:9092").reader("t")


class _NoKafka(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(100)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.usefixtures("hasty")
def test_a_server_that_is_no_kafka_is_named() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _NoKafka) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with pytest.raises(ConfigError, match=r"is no Kafka: correct security\.protocol, or stream\.url"):
                KafkaStream(f"kafka://127.0.0.1:{server.server_address[1]}").reader("t")
        finally:
            server.shutdown()


def refusal(broker: Broker, **options: str) -> str:
    spec = KafkaSpec(options={name.replace("_", "."): value for name, value in options.items()})
    stream = KafkaStream(f"kafka://{broker.bootstrap}/x", spec)
    with pytest.raises(ConfigError) as caught:
        stream.writer("t")
    stream.close()
    return str(caught.value)


@pytest.mark.usefixtures("hasty")
def test_a_broker_that_wants_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT", PASSWORD)
    monkeypatch.setenv("WRONG", "hunter2")
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "penstock"}
    secured = sasl_broker(tmp_path)
    # "node" is a user who may do nothing; the node itself talks to its controller without a name
    secured.broker._settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:penstock;User:ANONYMOUS",
    }
    with running(secured.broker) as broker:
        options = {name.replace("_", "."): value for name, value in login.items()} | {
            "sasl.password": "env:RIGHT"
        }
        stream = KafkaStream(f"kafka://{broker.bootstrap}/x", KafkaSpec(options=options))
        stream.ensure("t", TopicPolicy())
        stream.writer("t").write("k", b"x")
        assert len(everything(stream.reader("t"), 1)) == 1
        stream.close()
        wrong = refusal(broker, **login, sasl_password="env:WRONG")
        assert "correct sasl.username and sasl.password" in wrong
        assert "hunter2" not in wrong
        assert "set security.protocol and sasl.*" in refusal(broker)
        assert "correct sasl.mechanism" in refusal(
            broker, **login | {"sasl_mechanism": "SCRAM-SHA-256"}, sasl_password="env:RIGHT"
        )
        assert "correct security.protocol" in refusal(broker, security_protocol="SSL")
        nobody = refusal(broker, **login | {"sasl_username": "node"}, sasl_password="env:RIGHT")
        assert "does not allow this user to use the topic x.t (TOPIC_AUTHORIZATION_FAILED)" in nobody


@pytest.mark.usefixtures("hasty")
def test_a_broker_that_speaks_tls(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, _ = make_certificates(tmp_path / "other")
    secured = tls_broker(tmp_path)
    with running(secured.broker) as broker:
        stream = KafkaStream(f"kafka://{broker.bootstrap}/x", KafkaSpec(options=secured.options))
        stream.writer("t").write("k", b"x")
        assert len(everything(stream.reader("t"), 1)) == 1
        stream.close()
        assert "correct ssl.ca.location" in refusal(broker, security_protocol="SSL")
        assert "correct ssl.ca.location" in refusal(
            broker, security_protocol="SSL", ssl_ca_location=str(other)
        )
        assert "correct security.protocol: it seems to want TLS" in refusal(broker)


# --- brokers that go away


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of our own to kill."""
    with running(Broker(tmp_path_factory.mktemp("mortal") / "broker")) as broker:
        yield broker


class Numbers(threading.Thread):
    """Writes 0, 1, 2 … under one key until it is told to stop."""

    def __init__(self, writer: Writer, key: str) -> None:
        super().__init__()
        self.key, self.acknowledged = key, -1
        self._writer, self._stopping = writer, threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.002):
            self._writer.write(self.key, b"%d:" % (self.acknowledged + 1) + bytes(10_000))
            self.acknowledged += 1

    def goes_on(self, seconds: float) -> bool:
        before = self.acknowledged
        return eventually(lambda: self.acknowledged > before + 5, seconds)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def test_a_killed_broker_loses_and_doubles_nothing(mortal: Broker) -> None:
    events: Events = []
    stream = KafkaStream(f"kafka://{mortal.bootstrap}/k", on_event=lambda *event: events.append(event))
    stream.ensure("experiences.x", TopicPolicy(partitions=2))
    writers = [Numbers(stream.writer("experiences.x"), key) for key in ("0", "1")]
    reader, following = stream.reader("experiences.x"), {"0": 0, "1": 0}

    def read_on() -> None:
        for record in reader.read(1000, 0.2):
            assert int(record.value.partition(b":")[0]) == following[record.key], "in order, each once"
            following[record.key] += 1

    for writer in writers:
        writer.start()
    assert all(writer.goes_on(20) for writer in writers)
    mortal.kill_node(1)
    assert stream.reader("experiences.x", reader.position()).read(1, 0.1) == [], "an outage is no error"
    mortal.start()
    assert all(writer.goes_on(15) for writer in writers)
    read_on()
    for writer in writers:
        writer.stop()
    end = stream.end("experiences.x")
    assert eventually(lambda: read_on() or reader.position() == end, 30)
    assert all(following[writer.key] == writer.acknowledged + 1 for writer in writers)
    assert (reader.missed, stream.flow.dropped) == (0, 0)
    assert stream.flow.waits >= 2
    assert stream.flow.waited_seconds > 1
    assert "kafka_trouble" in [name for name, _ in events]
    stream.close()


def test_what_a_stream_does_while_the_brokers_are_away(mortal: Broker) -> None:
    spec = KafkaSpec(write_deadline=2)
    stream = KafkaStream(
        f"kafka://{mortal.bootstrap}/a", spec, on_event=lambda *event: None, question_seconds=1.0
    )
    writer, reader = stream.writer("metrics.actors"), stream.reader("metrics.actors")
    writer.write("k", b"before")
    assert len(everything(reader, 1)) == 1
    stream.claim("run")
    mortal.kill_node(1)
    try:
        with pytest.raises(
            Unavailable, match=r"waited \d s for Kafka at 127.*stream\.kafka\.write_deadline is 2 s"
        ):
            writer.write("k", b"too late")
        for question in (stream.end, stream.newest, stream.claimed):
            with pytest.raises(Unavailable, match="has not answered for 1 s"):
                question("metrics.actors")
        assert reader.read(1, 0.1) == []
        started = time.monotonic()
        for _ in range(12):
            writer.offer("k", bytes(1 << 20))
        assert time.monotonic() - started < 1, "nobody is waited for"
        assert stream.flow.dropped >= 4
    finally:
        mortal.start()
    writer.write("k", b"after")
    assert eventually(lambda: any(record.value == b"after" for record in reader.read(10, 0.5)), 20)
    assert stream.claimed("run") == 1
    stream.close()


def test_a_process_ends_at_once_while_the_brokers_do_not_answer(mortal: Broker) -> None:
    pid = mortal.pids()[1]
    assert pid is not None
    stream = KafkaStream(f"kafka://{mortal.bootstrap}/e", on_event=lambda *event: None)
    writer, reader = stream.writer("experiences.x"), stream.reader("experiences.x")
    writer.write("0", b"x")
    assert len(everything(reader, 1)) == 1
    os.kill(pid, signal.SIGSTOP)
    try:
        writer.offer("0", b"y")
        started = time.monotonic()
        reader.close()
        stream.close()
        assert time.monotonic() - started < 8
    finally:
        os.kill(pid, signal.SIGCONT)

"""librdkafka's options: ours, the spec's and this host's; secrets stay out of specs, errors and logs.

In: `stream.kafka.options` and the file named by PENSTOCK_KAFKA_CONFIG, whose lines win because they
belong to the host. Out: one dictionary for each kind of client.
"""

import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.errors import ConfigError
from penstock.model.spec import KafkaSpec
from penstock.stream.kafka_names import BROKERS, CONFIG_VARIABLE, check, is_secret
from penstock.stream.recovery import OnEvent

HIDDEN = "***"
OVERHEAD_BYTES = 16 << 10
"""What a batch adds to the largest record: its key, headers and framing."""
LARGEST_MESSAGE = 1_000_000_000
"""What librdkafka takes at most."""

Options = dict[str, str]

_IN_THE_SPEC = "stream.kafka.options"
_ELSEWHERE = ("env:", "file:")

COMMON: Options = {
    "client.id": "penstock",
    "log_level": "2",  # what is left out arrives as an error, where it can be told at a low rate
    "log.connection.close": "false",
    # a link that drops packets silently: requests time out and the connection is made again, instead of
    # waiting for the kernel's retransmissions, which are up to half a minute apart by then
    "socket.timeout.ms": "10000",
    "socket.connection.setup.timeout.ms": "3000",
    "api.version.request.timeout.ms": "5000",
    "socket.keepalive.enable": "true",
    "socket.nagle.disable": "true",
    "reconnect.backoff.ms": "100",
    "reconnect.backoff.max.ms": "500",
    "retry.backoff.ms": "100",
    "retry.backoff.max.ms": "500",
    "topic.metadata.refresh.interval.ms": "30000",
    "topic.metadata.refresh.fast.interval.ms": "100",
    "allow.auto.create.topics": "false",
}


def load(spec: KafkaSpec, environ: Mapping[str, str], on_event: OnEvent) -> Options:
    """The user's options with secrets filled in; ConfigError where one cannot be used as it is."""
    for name, value in spec.options.items():
        if is_secret(name) and not str(value).startswith(_ELSEWHERE):
            raise ConfigError(
                f"{_IN_THE_SPEC}: {name} is a secret and specs are stored and shown; write env:NAME or "
                f"file:PATH, or put it into the file named by {CONFIG_VARIABLE}"
            )
    found = {name: (_text(value), _IN_THE_SPEC) for name, value in spec.options.items()}
    if path := environ.get(CONFIG_VARIABLE):
        found |= {name: (value, path) for name, value in read_file(Path(path), on_event).items()}
    for name, (_, place) in found.items():
        check(name, place, of_the_host=place != _IN_THE_SPEC)
    return {name: _resolved(name, value, place, environ) for name, (value, place) in found.items()}


def read_file(path: Path, on_event: OnEvent) -> Options:
    """`key=value` lines, as Java's clients read them, or one JSON object; the brokers in it do not count."""
    try:
        text, mode = path.read_text(), path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{CONFIG_VARIABLE} names {path}, which cannot be read: {error}") from error
    options = _from_json(text, path) if text.lstrip().startswith("{") else _from_lines(text, path)
    plain = any(is_secret(name) and not value.startswith(_ELSEWHERE) for name, value in options.items())
    if plain and mode & (stat.S_IRGRP | stat.S_IROTH):
        on_event("kafka_config_readable_by_others", {"file": str(path), "fix": f"chmod 600 {path}"})
    return {name: value for name, value in options.items() if name not in BROKERS}


def scrubber(options: Options) -> "re.Pattern[str] | None":
    """What must never be shown: the values of secrets."""
    values = sorted((value for name, value in options.items() if is_secret(name) and value), reverse=True)
    return re.compile("|".join(map(re.escape, values))) if values else None


def producer(brokers: str, spec: KafkaSpec, options: Options, compression: str) -> Options:
    record = largest_message(spec)
    ours = {
        "enable.idempotence": "true",
        "acks": "all",
        "linger.ms": "0",
        "compression.type": compression,
        "message.max.bytes": str(record),
        "message.timeout.ms": str(max(1000, int(spec.write_deadline * 1000))),
        "request.timeout.ms": "8000",
        "queue.buffering.max.messages": "10000",
        "queue.buffering.max.kbytes": str(max(64 << 20, 2 * record) >> 10),
        "topic.metadata.propagation.max.ms": "5000",
    }
    return _client(brokers, ours, options)


def consumer(brokers: str, spec: KafkaSpec, options: Options) -> Options:
    # small, because every actor has one; a record that is larger is fetched by itself
    fetch = 8 << 20
    ours = {
        "group.id": "penstock",  # asked for by the library; nothing joins a group or commits
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "max.poll.interval.ms": "86400000",
        "fetch.wait.max.ms": "250",
        "fetch.max.bytes": str(fetch),
        "max.partition.fetch.bytes": str(1 << 20),
        "receive.message.max.bytes": str(min(2_147_483_647, fetch + largest_message(spec) + (1 << 20))),
        "queued.max.messages.kbytes": str(4 << 10),
        "queued.min.messages": "10000",
        "fetch.queue.backoff.ms": "10",
        "fetch.error.backoff.ms": "200",
    }
    return _client(brokers, ours, options)


def admin(brokers: str, options: Options) -> Options:
    return _client(brokers, {}, options)


def largest_message(spec: KafkaSpec) -> int:
    """`max.message.bytes` of topics of ours, and what clients take."""
    return min(LARGEST_MESSAGE, spec.max_record_bytes + OVERHEAD_BYTES)


def _client(brokers: str, ours: Options, options: Options) -> Options:
    return {**COMMON, **ours, **options, "bootstrap.servers": brokers}


def _resolved(name: str, value: str, place: str, environ: Mapping[str, str]) -> str:
    kind, _, rest = value.partition(":")
    if kind == "env":
        if rest not in environ:
            raise ConfigError(f"{place}: {name} reads the environment variable {rest}, which is not set")
        return environ[rest]
    if kind == "file":
        try:
            return Path(rest).expanduser().read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{place}: {name} reads {rest}, which cannot be read: {error}") from error
    if name.endswith(".location") and value and not Path(value).exists() and value != "probe":
        raise ConfigError(f"{place}: {name} names {value}, which is not there")
    return value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_json(text: str, path: Path) -> Options:
    try:
        found = msgspec.json.decode(text, type=dict[str, str | int | float | bool])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} does not read as JSON of option → value: {error}") from error
    return {name: _text(value) for name, value in found.items()}


def _from_lines(text: str, path: Path) -> Options:
    options = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ConfigError(f"{path}, line {number}: write key=value")
        options[name.strip()] = value.strip()
    return options

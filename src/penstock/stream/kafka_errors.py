"""What librdkafka complains about, as our errors: each names the setting that mends it."""

import re
import socket
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from penstock.errors import ConfigError, PenstockError, Unreachable
from penstock.stream.recovery import OnEvent

TELL_EVERY_SECONDS = 30.0
FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)

_CERTAIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
_WHERE = re.compile(r"^(?:\w+://)?[^\s/]+/\w+: ")
_AFTER = re.compile(r" \(after \d+ms in state (\w+)(?:, \d+ identical error\(s\) suppressed)?\)")
_HUNG_UP = re.compile(r"Disconnected|Broken pipe|Connection reset")
KNOCK_SECONDS = 2.0
_WHICH_VERSIONS = bytes.fromhex("0000000a 0012 0000 504e5354 ffff")
"""Kafka's request ApiVersions, which every listener answers before it asks who is there."""


class Ear:
    """Remembers why the brokers cannot be reached, and tells it now and then.

    librdkafka reports from inside its polls, so nothing is raised or told there; `tell` does that.
    """

    def __init__(self, brokers: str, scrub: Callable[[str], str], on_event: OnEvent) -> None:
        self._brokers, self._scrub, self._on_event = brokers, scrub, on_event
        self._lock = threading.Lock()
        self._last: tuple[int, str] | None = None
        self._times = 0
        self._told_at = -TELL_EVERY_SECONDS

    def heard(self, error: KafkaError) -> None:
        """Called by librdkafka while somebody polls."""
        with self._lock:
            self._times += 1
            # that all brokers are down says less than why the last one is
            if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:
                self._last = (error.code(), self._scrub(error.str()))

    def tell(self) -> None:
        """An event for what was heard, not more often than people can read."""
        with self._lock:
            if not self._times or time.monotonic() - self._told_at < TELL_EVERY_SECONDS:
                return
            facts = {"brokers": self._brokers, "reason": self._reason(), "times": self._times}
            self._times, self._told_at = 0, time.monotonic()
        self._on_event("kafka_trouble", facts)

    def forget(self) -> None:
        """An answer came: whatever was heard is over."""
        with self._lock:
            self._last, self._times = None, 0

    @property
    def is_certain(self) -> bool:
        """Whether what was heard cannot get better by waiting."""
        with self._lock:
            return self._last is not None and self._last[0] in _CERTAIN

    def reason(self) -> str:
        with self._lock:
            return self._reason()

    def verdict(self) -> PenstockError:
        """Why a first contact failed, and what to change."""
        with self._lock:
            code, text = self._last or (KafkaError._TRANSPORT, "")
            reason = self._reason()
        fix = _fix(code, text)
        if fix is None and (self._is_vague(code) or _HUNG_UP.search(text)):
            reason, fix = _knock(self._brokers.split(",")[0])
        if fix is not None:
            return ConfigError(f"Kafka at {self._brokers} was not opened ({reason}); {fix}")
        return Unreachable(
            f"cannot reach Kafka at {self._brokers} ({reason}); start one with `penstock broker start` "
            "or correct --stream"
        )

    def _is_vague(self, code: int) -> bool:
        return code == KafkaError._ALL_BROKERS_DOWN or self._last is None

    def _reason(self) -> str:
        if self._last is None:
            return "no answer"
        text = _AFTER.sub("", _WHERE.sub("", self._last[1]))
        return text.removeprefix("Disconnected: ") or "no answer"


def _fix(code: int, text: str) -> str | None:
    """What a person can change; None when the brokers may just be away."""
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        if "mechanism handshake failed" in text or "nsupported" in text:
            return "correct sasl.mechanism, or security.protocol if it wants no password"
        return "correct sasl.username and sasl.password"
    if "PLAINTEXT broker listener" in text:
        return "it does not speak TLS: correct security.protocol"
    if code == KafkaError._SSL and ("verif" in text or "certificate" in text or "unknown ca" in text.lower()):
        return "correct ssl.ca.location, the certificate that signed its own (or the client's ssl.* options)"
    if code == KafkaError._SSL or "SSL" in text:
        return "correct security.protocol, or the ssl.* options"
    if code == KafkaError._BAD_MSG:
        return "what answers there speaks TLS or is no Kafka: correct security.protocol, or stream.url"
    return None


def _knock(address: str) -> tuple[str, str | None]:
    """Why librdkafka heard nothing: it does not say when a broker just hangs up. And what to change."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS) as connection:
            connection.settimeout(KNOCK_SECONDS)
            connection.sendall(_WHICH_VERSIONS)
            answer = connection.recv(64)
    except TimeoutError:
        return "no answer", None
    except ConnectionResetError:
        answer = b""
    except OSError as error:
        return error.strerror or str(error), None
    if answer[4:8] == _WHICH_VERSIONS[8:12]:
        return (
            "it answers, but not to somebody unknown",
            "it wants a password: set security.protocol and sasl.*",
        )
    return "it hangs up at once", "correct security.protocol: it seems to want TLS"


def forbidden(what: str, error: KafkaError) -> ConfigError:
    return ConfigError(
        f"Kafka does not allow this user to use {what} ({error.name()}); "
        "grant it there, correct sasl.username, or have the topics made (penstock topics create) and set "
        "stream.kafka.create=false"
    )


def too_large(topic: str, size: int, limit: int) -> ConfigError:
    return ConfigError(
        f"a record of {size} bytes is over what {topic} takes; raise stream.kafka.max_record_bytes (now {limit}), "
        "and max.message.bytes of the topic where it is not ours to change"
    )


def missing(topic: str) -> ConfigError:
    return ConfigError(
        f"the topic {topic} is not there and stream.kafka.create is false; make it with `penstock topics create`"
    )

"""Real Kafkas for tests: one that the whole session shares, and ones that want a password or TLS."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock.broker import Broker

QUICK = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "1000",
}
"""Retention and compaction within a second or two instead of minutes."""

MORTAL = ("setpriv", "--pdeathsig", "KILL")
"""For `Broker(wrapper=)`: its nodes end with the thread that started them, also when tests are killed."""

USER, PASSWORD = "penstock", "correct horse"


class Secured(NamedTuple):
    """A broker, not yet started, that turns away clients without these librdkafka options."""

    broker: Broker
    options: dict[str, Any]
    ca: Path | None
    """The certificate that clients must trust."""


@contextlib.contextmanager
def shared_broker() -> Iterator[Broker]:
    """A single node with quick retention; ended and removed at the end, also when tests fail."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-broker-", ignore_cleanup_errors=True) as folder,
        running(Broker(Path(folder) / "broker", settings=QUICK, wrapper=MORTAL)) as broker,
    ):
        yield broker


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Start a broker, and remove it with its data at the end, also when tests fail."""
    try:
        broker.start()
        yield broker
    finally:
        broker.delete()


def sasl_broker(folder: Path) -> Secured:
    """One that wants a user and a password: SASL PLAIN without TLS."""
    users = f'user_{USER}="{PASSWORD}" user_node="{PASSWORD}"'
    login = f'PlainLoginModule required username="node" password="{PASSWORD}" {users};'
    settings = {
        **QUICK,
        **_listener("SASL_PLAINTEXT"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.{login}",
    }
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    broker = Broker(folder / "broker", settings=settings, client_options=options, wrapper=MORTAL)
    return Secured(broker, options, None)


def tls_broker(folder: Path) -> Secured:
    """One that speaks TLS, with a certificate that only its own authority has signed."""
    authority, server = make_certificates(folder)
    settings = {
        **QUICK,
        **_listener("SSL"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }
    options = {"security.protocol": "SSL", "ssl.ca.location": str(authority)}
    broker = Broker(folder / "broker", settings=settings, client_options=options, wrapper=MORTAL)
    return Secured(broker, options, authority)


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """A new authority's certificate, and in one file a key and a certificate for 127.0.0.1 signed by it."""
    authority, key = folder / "ca.pem", folder / "ca.key"
    _new_certificate(authority, key, "penstock test authority", "basicConstraints=critical,CA:TRUE")
    server, server_key = folder / "server.crt", folder / "server.key"
    name = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    _new_certificate(server, server_key, "localhost", name, "-CA", str(authority), "-CAkey", str(key))
    both = folder / "server.pem"
    both.write_text(server_key.read_text() + server.read_text())
    return authority, both


def _new_certificate(certificate: Path, key: Path, name: str, extension: str, *signed: str) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
               "-addext", extension, "-keyout", str(key), "-out", str(certificate), *signed]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)


def _listener(protocol: str) -> dict[str, str]:
    """Clients and the broker itself speak this protocol; controllers stay plain, on loopback."""
    return {
        "listeners": f"{protocol}://{{host}}:{{port}},CONTROLLER://127.0.0.1:{{controller_port}}",
        "advertised.listeners": f"{protocol}://{{host}}:{{port}}",
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": protocol,
    }

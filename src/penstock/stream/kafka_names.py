"""The names of librdkafka's options: which are secrets, which are not the user's, which are misspelt."""

import re

from penstock.errors import ConfigError, nearest

CONFIG_VARIABLE = "PENSTOCK_KAFKA_CONFIG"
BROKERS = ("bootstrap.servers", "metadata.broker.list")

_SECRET = re.compile(r"(password|secret|passphrase|token|key\.pem|jaas\.config|oauthbearer\.config)$")
_OURS = {
    "bootstrap.servers": "the brokers stand in stream.url",
    "metadata.broker.list": "the brokers stand in stream.url",
    "enable.idempotence": "writers are always idempotent",
    "acks": "all copies must acknowledge; see stream.kafka.min_insync_replicas",
    "request.required.acks": "all copies must acknowledge; see stream.kafka.min_insync_replicas",
    "message.timeout.ms": "use stream.kafka.write_deadline",
    "delivery.timeout.ms": "use stream.kafka.write_deadline",
    "message.max.bytes": "use stream.kafka.max_record_bytes",
    "compression.type": "use stream.kafka.compression",
    "compression.codec": "use stream.kafka.compression",
    "transactional.id": "nothing here is a transaction",
    "auto.offset.reset": "a lost position is counted, never jumped over",
    "enable.auto.commit": "positions live in checkpoints",
    "enable.auto.offset.store": "positions live in checkpoints",
    "enable.partition.eof": "readers need it",
    "allow.auto.create.topics": "topics are made on purpose; see stream.kafka.create",
    "logger": "logs go where the process's own go",
}
_OF_THE_HOST = ("plugin.library.paths", "ssl.engine.location", "ssl.providers", "sasl.kerberos.kinit.cmd")
"""They load or run code: a spec comes from elsewhere and must not."""
_JAVA = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.password": "ssl.ca.location, a PEM file without password",
    "ssl.truststore.type": "ssl.ca.location, a PEM file",
    "ssl.keystore.type": "ssl.keystore.location, a PKCS#12 file",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
_KNOWN = (
    "client.id",
    "client.rack",
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.crl.location",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "socket.timeout.ms",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "socket.connection.setup.timeout.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "connections.max.idle.ms",
    "broker.address.family",
    "broker.address.ttl",
    "metadata.max.age.ms",
    "topic.metadata.refresh.interval.ms",
    "metadata.recovery.strategy",
    "linger.ms",
    "batch.size",
    "batch.num.messages",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "request.timeout.ms",
    "max.in.flight.requests.per.connection",
    "compression.level",
    "group.id",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "fetch.wait.max.ms",
    "max.partition.fetch.bytes",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "check.crcs",
    "isolation.level",
    "statistics.interval.ms",
    "debug",
    "log_level",
    "api.version.request.timeout.ms",
    "receive.message.max.bytes",
)
"""Not all there are: those that people set, to guess what a misspelt one was meant to be."""


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def check(name: str, place: str, of_the_host: bool) -> None:
    """Raise ConfigError for an option that is ours, that runs code, or that only Java's clients know."""
    if name in _OF_THE_HOST and not of_the_host:
        raise ConfigError(
            f"{place}: {name} runs code, so it belongs into the file named by {CONFIG_VARIABLE}"
        )
    if name in _OURS or name.endswith("_cb"):
        raise ConfigError(
            f"{place}: {name} is not yours to set: {_OURS.get(name, 'it takes code')}; remove it"
        )
    if name in _JAVA:
        raise ConfigError(f"{place}: {name} is for Java's clients; here it is {_JAVA[name]}")


def refused(text: str) -> ConfigError:
    """What librdkafka says about an option, as a sentence with the nearest name."""
    quoted = re.search(r'property:? "([^"]+)"', text)
    if quoted and "No such configuration property" in text:
        return ConfigError(f"librdkafka has no option {quoted[1]!r}{nearest(quoted[1], _KNOWN)}")
    return ConfigError(f"librdkafka refuses the options of stream.kafka: {text}")

"""A real Kafka, started, hurt and stopped."""

from confluent_kafka.admin import AdminClient

from penstock.broker import Broker


def test_the_shared_broker_answers(broker: Broker) -> None:
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=5)
    assert set(metadata.brokers) == {1}

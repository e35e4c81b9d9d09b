"""A topic of Penstock, read with nothing of Penstock: python read_topics.py HOST:PORT TOPIC."""

import json
import struct
import sys

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

COLUMNS = (1, 3, 9)  # rollout, policy, piece; schemas/README.md describes the frame


def read(value: bytes) -> tuple[int, dict, dict[str, np.ndarray]]:
    """A record's schema, its words and its columns."""
    magic, schema, major, _minor, _flags, length, _crc32c = struct.unpack_from("<4sHBBIII", value)
    assert (magic, major, length) == (b"PNST", 1, len(value) - 20), "not a record that this can read"
    if schema not in COLUMNS:
        return schema, json.loads(value[20:]), {}
    (size,) = struct.unpack_from("<I", value, 20)
    header, start = json.loads(value[24 : 24 + size]), -(-(24 + size) // 64) * 64
    columns = {
        name: np.ndarray(shape, dtype, value, start + at) for name, dtype, shape, at in header["columns"]
    }
    return schema, header["facts"], columns


if __name__ == "__main__":
    brokers, topic = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    if not partitions:
        sys.exit(f"there is no topic {topic} at {brokers}")
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    while message := consumer.poll(3):  # None: nothing new for three seconds
        schema, facts, columns = read(message.value())
        print(
            f"{message.partition()}/{message.offset()} key {message.key().decode()} schema {schema} {facts}"[
                :110
            ]
        )
        for name, column in columns.items():
            print(f"  {name:<20} {column.dtype.str} {column.shape} {column.ravel()[:3]}")
    consumer.close()

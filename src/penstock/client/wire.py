"""Protobuf's wire format, as far as large bytes need it: written into a message without being copied on the way.

The interpreter is held while bytes are copied, and the application may be deciding.
"""

from __future__ import annotations

LENGTH_FOLLOWS = 2


def opening(field: int, length: int) -> bytes:
    """What comes before `length` bytes that are the content of `field`."""
    return bytes([field << 3 | LENGTH_FOLLOWS]) + _varint(length)


def map_entry(field: int, key: str, length: int) -> bytes:
    """What comes before `length` bytes that are the value of `key` in the map `field`."""
    name = key.encode()
    inside = opening(1, len(name)) + name + opening(2, length)
    return opening(field, len(inside) + length) + inside


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)

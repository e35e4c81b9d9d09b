"""Deltas between versions, and tensors read without a library."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from penstock.errors import Damaged
from penstock.model import delta
from penstock.model.tensors import Array, read_safetensors, weights_sha256

BITS = st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6)


def tensors(bits: list[int]) -> dict[str, Array]:
    """Any bits at all: subnormal numbers, infinities and NaNs included."""
    numbers = np.array(bits, np.uint32).view(np.float32)
    return {"policy/output/weight": numbers[:4].reshape(2, 2), "policy/output/bias": numbers[4:]}


@given(BITS, BITS)
def test_a_delta_gives_back_every_bit(before: list[int], after: list[int]) -> None:
    base, target = tensors(before), tensors(after)
    result = delta.apply(base, delta.encode(base, target))
    assert weights_sha256(result) == weights_sha256(target)


def test_a_step_to_the_next_number_is_one_bit_whatever_its_sign() -> None:
    base = {"a": np.array([1.0, -1.0, 0.0], np.float32)}
    target = {"a": np.nextafter(base["a"], np.float32(np.inf))}
    planes = np.frombuffer(zlib.decompress(delta.encode(base, target)), np.uint8).reshape(4, 3)
    # by hand: the difference is +1 for each, folded 2; from 0 the next number is the next integer too
    np.testing.assert_array_equal(planes, [[0, 0, 0], [0, 0, 0], [0, 0, 0], [2, 2, 2]])


def test_differences_lie_in_the_order_of_the_exponents_they_change() -> None:
    base = {"a": np.array([4.0, 0.5, 4.5], np.float32), "b": np.array([0.75], np.float32)}
    steps = {"a": [1, 2, 3], "b": [4]}
    target = {
        n: (t.view(np.uint32) + np.array(steps[n], np.uint32)).view(np.float32) for n, t in base.items()
    }
    planes = np.frombuffer(zlib.decompress(delta.encode(base, target)), np.uint8).reshape(4, 4)
    # by hand: 0.5 and 0.75 (exponent 126) come before 4.0 and 4.5 (129); folding doubles
    np.testing.assert_array_equal(planes[3], [2 * 2, 2 * 4, 2 * 1, 2 * 3])


def test_only_tensors_of_one_make_fit() -> None:
    base = tensors([0] * 6)
    assert delta.fits(base, tensors([1] * 6))
    assert not delta.fits(base, {"policy/output/bias": base["policy/output/bias"]})
    assert not delta.fits(base, base | {"policy/output/bias": np.zeros(3, np.float32)})
    assert not delta.fits(base, base | {"policy/output/bias": np.zeros(2, np.float64)})


@pytest.mark.parametrize(
    "broken",
    [b"", b"garbage", zlib.compress(bytes(23)), zlib.compress(bytes(25)), zlib.compress(bytes(24)) + b"x",
     zlib.compress(bytes(24))[:-1], zlib.compress(bytes(1 << 24))],
)  # fmt: skip
def test_a_damaged_delta_is_refused(broken: bytes) -> None:
    with pytest.raises(Damaged):
        delta.apply(tensors([0] * 6), broken)


def test_safetensors_are_read_as_their_library_wrote_them() -> None:
    wrote = tensors([1, 2, 3, 4, 5, 6]) | {
        "n": np.arange(3, dtype=np.int64),
        "empty": np.empty((0, 4), np.float32),
    }
    found = read_safetensors(save(wrote))
    assert weights_sha256(found) == weights_sha256(wrote)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0null",
     b'\x40\0\0\0\0\0\0\0' + b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'.ljust(64),
     b'\x40\0\0\0\0\0\0\0' + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}'.ljust(64),
     b'\x40\0\0\0\0\0\0\0' + b'{"a":{"dtype":"X","shape":[1],"data_offsets":[0,4]}}'.ljust(64) + bytes(4)],
)  # fmt: skip
def test_what_is_not_safetensors_is_refused(content: bytes) -> None:
    with pytest.raises(Damaged):
        read_safetensors(content)

"""Used numbers: in any order, with gaps, bounded; nothing is taken for stored that was not."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.loop.gateway.sources import MOST_INTERVALS, Source


@given(st.lists(st.integers(1, 60), max_size=80))
def test_a_number_is_new_once(numbers: list[int]) -> None:
    source, stored = Source(), set[int]()
    for number in numbers:
        assert source.look(number) == ("duplicate" if number in stored else "new")
        source.take(number)
        stored.add(number)
    assert {n for first, last in source.taken for n in range(first, last + 1)} == stored
    assert source.taken == sorted(source.taken)
    assert all(below[1] + 1 < above[0] for below, above in zip(source.taken, source.taken[1:], strict=False))


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=400))
def test_it_stays_small_and_what_comes_too_late_is_never_called_stored(numbers: list[int]) -> None:
    source, stored = Source(), set[int]()
    for number in numbers:
        answer = source.look(number)
        if answer == "new":
            assert number not in stored
            source.take(number)
            stored.add(number)
        elif answer == "duplicate":
            assert number in stored
        else:
            assert number <= source.floor
        assert len(source.taken) <= MOST_INTERVALS


def test_in_order_it_is_one_interval() -> None:
    source = Source()
    for number in range(1, 1001):
        source.take(number)
    assert source.taken == [(1, 1000)]
    assert source.floor == 0


@given(st.lists(st.integers(1, 40), max_size=60), st.sets(st.integers(1, 40)))
def test_what_is_left_without_some_numbers(numbers: list[int], without: set[int]) -> None:
    source = Source()
    for number in numbers:
        source.take(number)
    left = source.without(without)
    assert {n for first, last in left for n in range(first, last + 1)} == set(numbers) - without
    assert left == sorted(left)
    assert all(below[1] + 1 < above[0] for below, above in pairwise(left))

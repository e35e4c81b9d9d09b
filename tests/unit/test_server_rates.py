"""Token buckets, with a clock of our own."""

from penstock.server.rates import MOST_KEYS, Buckets


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    clock = Clock()
    buckets = Buckets(10, 5, clock)
    assert [buckets.take("a") for _ in range(5)] == [0.0] * 5
    assert buckets.take("a") == 0.1
    clock.now += 0.05
    assert round(buckets.take("a"), 3) == 0.05
    clock.now += 0.06
    assert buckets.take("a") == 0.0


def test_a_refusal_costs_nothing() -> None:
    clock = Clock()
    buckets = Buckets(1, 1, clock)
    buckets.take("a")
    for _ in range(100):
        assert buckets.take("a") > 0
    clock.now += 1
    assert buckets.take("a") == 0


def test_keys_do_not_share() -> None:
    buckets = Buckets(1, 1, Clock())
    assert buckets.take("a") == 0
    assert buckets.take("b") == 0
    assert buckets.wait("a") == 1
    assert buckets.wait("c") == 0


def test_strangers_do_not_fill_the_memory() -> None:
    buckets = Buckets(1, 1, Clock())
    for number in range(3 * MOST_KEYS):
        buckets.take(str(number))
    assert len(buckets._levels) == MOST_KEYS

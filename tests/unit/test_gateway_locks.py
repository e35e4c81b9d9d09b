"""A lock lives as long as somebody wants it, and no longer."""

import threading

from penstock.loop.gateway.locks import Locks


def test_it_is_the_same_while_it_is_wanted_and_gone_afterwards() -> None:
    locks = Locks(threading.Lock)
    with locks.of("a") as first, first:
        for number in range(1000):
            with locks.of(str(number)):
                pass
        with locks.of("a") as second:
            assert second is first
            assert not second.acquire(blocking=False), "others must not forget who holds it"
        assert len(locks) == 1
    assert len(locks) == 0

"""The gate before a fork: nobody comes in, whoever is inside is asked to leave, and nobody waits for ever."""

import threading

from penstock.client.gate import Gate


class Call(threading.Thread):
    """Inside the gate until it is cancelled."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(daemon=True)
        self.gate, self.inside, self.cancelled = gate, threading.Event(), threading.Event()

    def run(self) -> None:
        with self.gate:
            self.inside.set()
            self.cancelled.wait(60)


def test_who_is_inside_is_cancelled_and_waited_for():
    gate = Gate()
    call = Call(gate)
    call.start()
    assert call.inside.wait(60)
    assert gate.shut(call.cancelled.set, 60)
    call.join(60)
    assert not call.is_alive()


def test_who_does_not_leave_is_not_waited_for_for_ever():
    gate = Gate()
    call = Call(gate)
    call.start()
    assert call.inside.wait(60)
    asked: list[int] = []
    assert not gate.shut(lambda: asked.append(1), 0.05)
    assert asked
    call.cancelled.set()


def test_nobody_comes_in_until_it_opens():
    gate = Gate()
    assert gate.shut(lambda: None, 60)
    call = Call(gate)
    call.start()
    assert not call.inside.wait(0.1)
    gate.open()
    assert call.inside.wait(60)
    call.cancelled.set()

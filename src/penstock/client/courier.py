"""Two threads beside the application: one brings policies, one takes experience away.

The application waits for neither. They share one channel and end with the process; `aside` has two smaller ones.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock import proto
from penstock.client import aside
from penstock.client import description as descriptions
from penstock.client.deciding import Decider, output_width
from penstock.client.figures import Counters, Reporter
from penstock.client.layout import Layout, disagreement, of_description
from penstock.client.link import Interrupted, Link
from penstock.client.outbox import BATCH_BYTES, Outbox
from penstock.client.settings import Settings
from penstock.client.trajectory import Trajectory
from penstock.client.versions import Held, NotThisDelta, receive
from penstock.errors import ConfigError, Damaged, NotFound, PenstockError, Unavailable

OPEN_SECONDS = 90.0
"""A new policy is made by a process that the gateway starts for it: that takes seconds."""

TICK = 0.5
ADOPT_SECONDS = 10.0
LONGEST_PAUSE = 10.0
STORE_SECONDS = 1.0
"""After its deadline `close` waits this much longer, so that what was not sent reaches the disk."""

SAY_SECONDS = 0.3
"""And this long for the last words in a log that nobody may be reading."""


class Pause:
    """Longer after every failure, by chance between half and whole, so that many clients do not come at once."""

    def __init__(self, first: float = 0.2, longest: float = LONGEST_PAUSE) -> None:
        self._first, self._longest, self._next = first, longest, first

    def after_success(self) -> None:
        self._next = self._first

    def after_failure(self) -> float:
        seconds, self._next = self._next, min(self._next * 2, self._longest)
        return seconds * random.uniform(0.5, 1.0)


class Courier:
    """Made with the agent; `start` begins, `close` ends within its deadline."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        take: Callable[[Decider], None],
        switch: Callable[[bool], None],
        seed: int | None = None,
    ) -> None:
        self._settings, self._counters, self._take = settings, counters, take
        self.outbox = Outbox(settings, counters)
        self.layout: Layout | None = None
        self.link = Link(settings)
        self._reporter = Reporter(counters)
        self._noise_seed = secrets.randbits(63) if seed is None else seed
        self._held: Held | None = None
        self._fetch_whole = False
        self._run = ""
        self._opened = threading.Event()
        self._answered = threading.Event()
        self._refusal: ConfigError | None = None
        self.failure = ""
        """Why the gateway was last not heard, as a sentence."""
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._ends_at = float("inf")
        self._threads = [
            threading.Thread(target=self._bring, name="penstock-bring", daemon=True),
            threading.Thread(target=self._carry, name="penstock-carry", daemon=True),
            threading.Thread(
                target=aside.look,
                args=(settings.policy, switch, counters, self._stop),
                name="penstock-look",
                daemon=True,
            ),
        ]
        self._silence = threading.Event()
        self._saying = threading.Thread(
            target=aside.say, args=(counters, self._silence), name="penstock-say", daemon=True
        )

    def start(self, layout: Layout | None) -> None:
        self.layout = layout
        self.link.connect()
        for thread in (*self._threads, self._saying):
            thread.start()

    def wait_for_answer(self, seconds: float) -> bool:
        """Whether the gateway opened the policy in time; raise ConfigError where it refused.

        While only the gateway knows the shapes, one that is away is asked again until then.
        """
        answered = self._answered.wait(seconds)
        if self._refusal is not None:
            raise self._refusal
        return answered and self._opened.is_set()

    @property
    def newest(self) -> Held | None:
        return self._held

    def put(self, trajectory: Trajectory) -> None:
        if self.outbox.put(trajectory):
            self._wake.set()

    def close(self, seconds: float) -> None:
        """Send what waits, put the rest into the spool, end the threads; return within about `seconds`."""
        self._ends_at = time.monotonic() + seconds
        self._stop.set()
        self._wake.set()
        self.link.cancel()
        self._join(self._ends_at)
        self.link.close()  # ends a call that hangs; what it carried goes to the spool
        self._join(time.monotonic() + STORE_SECONDS)
        self._silence.set()
        self._counters.noticed.set()
        if self._saying.is_alive():
            self._saying.join(SAY_SECONDS)

    def _join(self, until: float) -> None:
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    # bringing policies

    def _bring(self) -> None:
        pause = Pause()
        while not self._stop.is_set():
            answered = True
            try:
                if not self._opened.is_set():
                    self._open()
                if self._settings.inference == "local":
                    self._fetch()
                else:
                    self._stop.wait(TICK)
                pause.after_success()
                continue
            except Interrupted:
                continue
            except NotThisDelta as error:
                self._counters.trouble("delta", f"{error}; the whole version is asked for")
                self._fetch_whole = True
            except NotFound as error:
                self.failure = str(error)
                self._opened.clear()
            except PenstockError as error:
                self.failure = str(error)
                # without shapes the application cannot begin, so a gateway that is away is not an answer yet
                answered = self.layout is not None or not isinstance(error, Unavailable)
                if not self._stop.is_set():
                    self._counters.trouble(_kind(error), str(error))
                if isinstance(error, ConfigError):
                    self._opened.clear()  # a person may have mended it at the gateway
            except Exception as error:
                self._counters.trouble(
                    "courier", f"bringing policies failed: {type(error).__name__}: {error}"
                )
            finally:
                if answered:
                    self._answered.set()
            self._stop.wait(pause.after_failure())

    def _open(self) -> None:
        try:
            reply = self.link.open(OPEN_SECONDS)
            there = of_description(descriptions.read(reply.description), self._settings.inference == "remote")
            if self.layout is None:
                self.layout = there
            sentence = disagreement(self.layout, there)
            if sentence:
                raise ConfigError(f"{sentence}; correct the configuration or choose another client_id")
        except ConfigError as error:
            self._refusal = error
            raise
        self._refusal = None
        if reply.note:
            self._counters.trouble("otherwise", reply.note)
        if reply.max_message_bytes:
            self.outbox.max_bytes = min(BATCH_BYTES, reply.max_message_bytes * 3 // 4)
        if reply.run != self._run:
            self._run, self._held = reply.run, None  # another run counts its versions anew
            self.outbox.run = reply.run
        self._opened.set()
        self._wake.set()

    def _fetch(self) -> None:
        held = None if self._fetch_whole else self._held
        request = proto.FetchRequest(
            policy=self._settings.policy,
            wait_seconds=0.0 if self._fetch_whole else self._settings.poll_seconds,
            figures=self._reporter.report(self.outbox.waiting()),
        )
        if held is not None:
            request.have.epoch, request.have.step = held.version
            request.have_sha256 = held.sha256
        asked = time.monotonic()
        arrived = receive(self.link.fetch(request, self._settings.poll_seconds + 30.0), held)
        self._fetch_whole = False
        if arrived is not None:
            self._use(arrived)
        elif time.monotonic() - asked < 0.05:
            self._stop.wait(0.2)  # a gateway that does not wait must not be asked without end

    def _use(self, arrived: Held) -> None:
        """Make it ready here, then let the application have it by one assignment."""
        layout = self.layout
        if layout is None:
            raise Damaged("a version arrived before its policy was opened")
        sentence = disagreement(layout, of_description(arrived.description, False))
        if sentence or output_width(arrived.description) != layout.width:
            raise Damaged(f"version {arrived.version} is of another shape and is not used: {sentence}")
        self._noise_seed += 1
        decider = Decider(
            arrived.description, arrived.tensors, arrived.version, arrived.acting, self._noise_seed
        )
        taken = decider.trial(Trajectory(layout, 1))
        self._held = arrived
        if taken > self._settings.deadline:
            self._counters.trouble(
                "slow_version",
                f"version {arrived.version} needs {taken * 1e3:.2f} ms a decision, more than deadline_ms allows; "
                "the version before it stays",
            )
            return
        self._take(decider)

    # carrying experience

    def _carry(self) -> None:
        pause, not_before, adopted_at = Pause(), 0.0, -ADOPT_SECONDS
        self.outbox.check()
        while not self._stop.is_set():
            self._wake.wait(TICK)
            self._wake.clear()
            try:
                if time.monotonic() - adopted_at > ADOPT_SECONDS:
                    self.outbox.adopt()
                    adopted_at = time.monotonic()
                if not self.outbox.due():
                    continue
                self.outbox.pack_all()
                if not self._opened.is_set() or time.monotonic() < not_before:
                    self.outbox.store()
                    continue
                not_before = self._send(pause)
            except Exception as error:
                self._counters.trouble("courier", f"sending failed: {type(error).__name__}: {error}")
                self._stop.wait(pause.after_failure())
        self._finish()

    def _send(self, pause: Pause) -> float:
        """Deliver; return the moment before which not to try again."""
        try:
            wait = self.outbox.send(self._call, self._reporter, time.monotonic() + 60.0)
            pause.after_success()
        except (PenstockError, OSError) as error:  # OSError: the spool's disk
            self._counters.trouble(_kind(error), str(error))
            if isinstance(error, NotFound | ConfigError):
                self._opened.clear()
            wait = pause.after_failure()
        if wait or self.outbox.crowded:
            self.outbox.store()
        return time.monotonic() + wait if wait else 0.0

    def _finish(self) -> None:
        """The last flush: to the gateway while time allows, else to the spool."""
        outbox = self.outbox
        try:
            outbox.pack_all()
            while self._opened.is_set() and any(outbox.waiting()) and time.monotonic() < self._ends_at:
                wait = outbox.send(self._call, self._reporter, self._ends_at)
                if time.monotonic() + wait >= self._ends_at:
                    break
                time.sleep(wait)
        except Exception as error:  # whatever it is, the rest must reach the disk
            self._counters.trouble(_kind(error), f"what waits stays in the spool: {error}")
        finally:
            outbox.store(last=True)
            outbox.spool.close()

    def _call(self, request: bytes, seconds: float) -> Any:
        return self.link.call("Send", request, seconds)


def _kind(error: Exception) -> str:
    if isinstance(error, OSError):
        return "disk"
    return {"ConfigError": "refused_by_gateway", "Damaged": "damaged", "Unavailable": "unreachable"}.get(
        type(error).__name__, "gateway"
    )

"""Which rollouts an update is made of: the roster, who joins and who leaves, what is too old.

Reads from: the intake. Round *s* of each rostered slot makes update *s* + 1.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.loop.intake import Intake
from penstock.loop.registry import FIRST_GUEST
from penstock.model.rollout import Hello, Rollout
from penstock.model.spaces import Spaces
from penstock.model.spec import PaceSpec


@dataclass(slots=True)
class Gathering:
    """The roster of one learner, and the rounds it still waits for."""

    intake: Intake
    pace: PaceSpec
    spaces: Spaces
    tell: Callable[..., None]
    roster: dict[int, int]
    """Slot → the first step that expects a rollout of it."""
    actors: int
    """How many slots the keeper fills."""
    _heard: dict[int, float] = field(default_factory=dict)

    def look(self, step: int) -> list[int] | None:
        """The slots of the update after `step`, in order; None while a round is missing."""
        self._welcome(step)
        self._set_aside_stale(step)
        expected = self._expected(step)
        complete = all(self._answered(slot, step) for slot in expected)
        return expected if complete and (expected or self._newcomers(step)) else None

    def take(self, slots: list[int], step: int) -> list[Rollout]:
        """The rollouts of these slots; one that was set aside has none."""
        now = time.monotonic()
        self._heard.update(dict.fromkeys(slots, now))
        return [self.intake.take(slot, step) for slot in slots if self.intake.has(slot, step)]

    def give_up_silent(self, step: int, since: float) -> None:
        """A slot that stays silent past its deadline leaves the roster; it may say hello again."""
        now = time.monotonic()
        for slot in [slot for slot in self._expected(step) if not self._answered(slot, step)]:
            if now - max(since, self._heard.get(slot, 0.0)) > self.pace.actor_deadline:
                self._leave(slot, f"silent for {self.pace.actor_deadline:g} s")

    def scale(self, actors: int) -> None:
        """Change how many slots the keeper fills; those beyond leave, guests stay."""
        self.actors = actors
        gone = [slot for slot in self.roster if not self._welcome_here(slot)]
        for slot in gone:
            del self.roster[slot]
        self.intake.forget(gone)

    def _expected(self, step: int) -> list[int]:
        return [slot for slot, joined in sorted(self.roster.items()) if joined <= step]

    def _answered(self, slot: int, step: int) -> bool:
        """Whether this slot's part of the update is there, or was set aside."""
        return self.intake.has(slot, step) or self.intake.marks.get(slot, -1) >= step

    def _newcomers(self, step: int) -> bool:
        return any(joined > step for joined in self.roster.values())

    def _welcome_here(self, slot: int) -> bool:
        return slot < self.actors or slot >= FIRST_GUEST

    def _welcome(self, step: int) -> None:
        """Put slots that said hello into the roster, from the next update on."""
        for slot in sorted(self.intake.hellos):
            hello = self.intake.hellos.pop(slot)
            self._heard[slot] = time.monotonic()
            if hello.leaving:
                if slot in self.roster:
                    self._leave(slot, "it said goodbye")
            elif hello.spaces != self.spaces:
                self.tell(
                    "spaces_differ", slot=slot, reason="its environment does not look like the run's; ignored"
                )
            elif slot not in self.roster and self._welcome_here(slot):
                self.roster[slot] = max(step, hello.last_round) + 1
                self.tell("actor_joined", slot=slot, step=self.roster[slot], host=hello.host)
            elif hello.last_round >= step and not self._answered(slot, step):
                self._pass_over_lost(slot, hello, step)

    def _pass_over_lost(self, slot: int, hello: Hello, step: int) -> None:
        """An actor never makes a round again that it has written: where the log lost it, go on behind it."""
        if slot in self.roster:
            pending = [round for round in self.intake.pending.get(slot, {}) if round > step]
            self.roster[slot] = min(pending, default=hello.last_round + 1)
            self.tell("rounds_lost", slot=slot, step=step, goes_on=self.roster[slot])

    def _leave(self, slot: int, reason: str) -> None:
        del self.roster[slot]
        self.intake.forget([slot])
        self.tell("actor_left", slot=slot, reason=reason)

    def _set_aside_stale(self, step: int) -> None:
        for slot, rounds in self.intake.pending.items():
            for round in sorted(rounds):
                lag = step - self.intake.peek(slot, round).facts.version.step
                if slot not in self.roster or round < self.roster[slot]:
                    self.intake.drop(slot, round, "not_rostered")
                elif round <= step and lag > self.pace.max_lag:
                    self.intake.drop(slot, round, "stale")

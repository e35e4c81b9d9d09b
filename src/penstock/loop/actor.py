"""An actor: the newest policy in, rollouts out, at the pace the learner sets.

Reads from: `model_updates.<run>` and, when it starts, its own slot of `experiences.<run>`.
Writes to: `experiences.<run>` and `metrics.actors`.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np

from penstock.envs.base import Group
from penstock.envs.make import make_group
from penstock.logs import Log
from penstock.loop.beat import Beat, Phase
from penstock.loop.journal import open_journal
from penstock.loop.policies import Subscriber
from penstock.loop.registry import RunRecord
from penstock.model import topics
from penstock.model.codec import Array, Schema, encode
from penstock.model.policy import Policy
from penstock.model.rollout import Block, Hello, Rollout, RolloutFacts, decode_experience
from penstock.policy.acting import Acting
from penstock.stream.base import Stream
from penstock.stream.records import backwards

HELLO_AGAIN_SECONDS = 5.0
REPORT_SECONDS = 1.0
GOODBYE_SECONDS = 3.0


class Actor:
    """Fills one slot of a run until it is told to stop.

    A guest belongs to no keeper: it says goodbye when it goes, and goes when the run is done.
    """

    def __init__(
        self, record: RunRecord, slot: int, stream: Stream, beat: Beat, stopping: Callable[[], bool],
        guest: bool = False,
    ) -> None:  # fmt: skip
        self._guest = guest
        self._run, self._spec, self._slot = record.run, record.spec, slot
        self._stream, self._beat, self._stopping = stream, beat, stopping
        self._incarnation = uuid.uuid4().hex[:12]
        self._log = Log(process=f"actor-{slot}", run=record.run)
        self._experiences = stream.writer(topics.experiences(record.run))
        self._reports = stream.writer(topics.METRICS_ACTORS)
        self._policies = Subscriber(stream, record.run)
        self._seconds = dict.fromkeys(("environment", "policy", "stream", "waiting"), 0.0)
        self._journal = open_journal()
        self._loaded: Acting | None = None
        self._said_at = 0.0
        self._reported_at, self._made = time.monotonic(), 0
        self._returns: list[float] = []

    def run(self) -> None:
        """Make rollouts until told to stop."""
        actors, beat = self._spec.actors, self._beat
        beat.enter(Phase.STARTING)
        group = make_group(self._spec.environment, actors.environments, self._spec.seed, self._slot, beat)
        block = Block.allocate(group.spaces, actors.rollout, actors.environments)
        last_round = self._begin(group, block)
        self._say_hello(group, last_round)
        try:
            while (turn := self._wait_for_turn(group, last_round)) is not None:
                policy, last_round = turn
                self._make(policy, last_round, group, block)
        finally:
            if self._guest:
                self._say_goodbye(group, last_round)
            group.close()

    def _begin(self, group: Group, block: Block) -> int:
        """Stand where the last rollout of this slot in the log ended; return its round, or -1."""
        mine = self._written()
        newest = next(mine, None)
        if newest is None:
            group.start(block)
            return -1
        rebuilt = group.rebuild(_chain(newest, mine), block)
        if rebuilt.mismatches and group.spaces.exact:
            self._event("resume_not_exact", environments=rebuilt.mismatches, reason=" ".join(rebuilt.reasons))
        return newest.facts.round

    def _written(self) -> Iterator[Rollout]:
        found = backwards(self._stream, topics.experiences(self._run), str(self._slot), decode_experience)
        for record in found:
            self._beat()
            if isinstance(record, Rollout):
                yield record

    def _say_hello(self, group: Group, last_round: int, leaving: bool = False) -> None:
        hello = Hello(
            self._run,
            self._slot,
            self._incarnation,
            group.spaces,
            os.getpid(),
            socket.gethostname(),
            last_round,
            leaving,
        )
        self._experiences.write(str(self._slot), encode(Schema.HELLO, hello))
        self._said_at = time.monotonic()

    def _say_goodbye(self, group: Group, last_round: int) -> None:
        """So that nobody waits for this slot; brokers that are away are not waited for long."""
        word = threading.Thread(target=self._say_hello, args=(group, last_round, True), daemon=True)
        word.start()
        word.join(GOODBYE_SECONDS)

    def _wait_for_turn(self, group: Group, last_round: int) -> tuple[Policy, int] | None:
        """The policy and round to go on with, once the pace allows it; None to end."""
        self._beat.enter(Phase.WAITING)
        began = time.monotonic()
        self._policies.poll(0)
        while not self._stopping():
            policy = self._policies.newest
            # a final version gives no turn; the run may be resumed, so only the keeper ends its actors
            if self._guest and policy is not None and policy.facts.final:
                return None
            if policy is not None and self._slot in policy.facts.roster and not policy.facts.final:
                step = policy.facts.version.step
                # a rostered slot is never behind the newest step, unless it lost its part of the log
                round = max(last_round + 1, policy.facts.roster[self._slot], step)
                if step >= round - self._spec.pace.lead:
                    self._seconds["waiting"] += time.monotonic() - began
                    return policy, round
            self._say_hello_again(group, last_round)
            self._policies.poll(0.25)
        return None

    def _say_hello_again(self, group: Group, last_round: int) -> None:
        """A sign of life, while this actor waits or its rollout takes long."""
        if time.monotonic() - self._said_at > HELLO_AGAIN_SECONDS:
            self._say_hello(group, last_round)

    def _make(self, policy: Policy, round: int, group: Group, block: Block) -> None:
        """One rollout: act, step, write."""
        self._beat.enter(Phase.STEPPING)
        acting = self._acting(policy)
        starts = group.starts()
        seconds, clock = self._seconds, time.perf_counter
        outputs = self._play(acting, round, group, block)
        began = clock()
        block.log_probs[:] = acting.log_probs(outputs, block.actions, _masks(block))
        group.check(block)
        written = clock()
        seconds["policy"] += written - began
        self._beat.enter(Phase.WAITING)  # a full log makes writers wait; that is no fault of the environment
        facts = RolloutFacts(
            self._run, self._slot, round, self._incarnation, policy.facts.version, block.steps,
            block.environments, starts, tuple(block.episodes), dict(seconds), time.time(),
        )  # fmt: skip
        self._experiences.write(str(self._slot), Rollout(facts, block.columns()).encode())
        self._journal(self._slot, round)
        for name in seconds:
            seconds[name] = 0.0
        seconds["stream"] += clock() - written
        self._report(facts)
        block.next_round()

    def _play(self, acting: Acting, round: int, group: Group, block: Block) -> Array:
        """The hot path: decide and step, row by row, into the block."""
        noise = acting.noise((self._spec.seed, self._slot, round), block.steps, block.environments)
        outputs = np.empty((block.steps, block.environments, acting.width), np.float32)
        actions, masks, observations = block.actions, block.masks, block.observations
        decide, step, clock = acting.decide, group.step, time.perf_counter
        deciding = stepping = 0.0
        began = before = clock()
        for t in range(block.steps):
            row = {name: rows[t] for name, rows in observations.items()}
            actions[t], outputs[t] = decide(row, None if masks is None else masks[t], noise[t])
            between = clock()
            step(t, actions[t], block)
            after = clock()
            deciding += between - before
            stepping += after - between
            before = after
            if self._stopping():
                raise Stopped
            if after - began > HELLO_AGAIN_SECONDS:
                began = after
                self._say_hello(group, round - 1)
        self._seconds["policy"] += deciding
        self._seconds["environment"] += stepping
        return outputs

    def _acting(self, policy: Policy) -> Acting:
        if self._loaded is None:
            self._loaded = Acting(policy.facts.description)
        self._loaded.load(policy.tensors)
        self._loaded.epsilon = _epsilon(policy, self._slot)
        return self._loaded

    def _report(self, facts: RolloutFacts) -> None:
        """Tell, at most once a second, what this actor made since it last told."""
        self._returns.extend(episode.total_reward for episode in facts.episodes)
        self._made += facts.steps * facts.environments
        elapsed = time.monotonic() - self._reported_at
        if elapsed < REPORT_SECONDS:
            return
        report = {
            "run": self._run,
            "slot": self._slot,
            "round": facts.round,
            "incarnation": self._incarnation,
            "version": facts.version,
            "lag": facts.round - facts.version.step,
            "episodes": len(self._returns),
            "mean_return": float(np.mean(self._returns)) if self._returns else None,
            "steps_per_second": self._made / elapsed,
            "loaded_after": self._policies.loaded_after,
            "host": socket.gethostname(),
            "stream": asdict(self._stream.flow),
            "time": time.time(),
        }
        self._reports.offer(self._run, encode(Schema.REPORT, report))
        self._reported_at, self._made = time.monotonic(), 0
        self._returns.clear()

    def _event(self, event: str, **fields: object) -> None:
        self._log.warning(event, **fields)
        process = f"actor-{self._slot}"
        report = {"run": self._run, "time": time.time(), "process": process, "event": event, "fields": fields}
        self._reports.write(self._run, encode(Schema.REPORT, report))


class Stopped(Exception):
    """Told to stop in the middle of a rollout; what was not written was never promised."""


def _epsilon(policy: Policy, slot: int) -> float:
    """The share of random actions of this slot: actors of one run may explore differently."""
    acting, others = policy.facts.acting, max(1, len(policy.facts.roster) - 1)
    place = sorted(policy.facts.roster).index(slot)
    return float(acting.get("epsilon", 0.0) ** (1.0 + acting.get("epsilon_spread", 0.0) * place / others))


def _chain(first: Rollout, rest: Iterator[Rollout]) -> Iterator[Rollout]:
    yield first
    yield from rest


def _masks(block: Block) -> Array | None:
    return None if block.masks is None else block.masks[: block.steps]

"""How a fork begins: its first checkpoint, version (0, N), made from what its origin recorded.

With the origin's algorithm that is the origin's own state at step N: the nearest checkpoint, and the
updates behind it made again, to the same hash. With another algorithm fresh weights learn all that the
origin's did, from step 1 on. From there the fork's learner goes on like any other.
"""

from contextlib import closing

from penstock.errors import ConfigError, Damaged, NotFound, PenstockError
from penstock.loop.checkpoint import Checkpoint
from penstock.loop.origin import Descendant, overrides_for
from penstock.loop.recorded import missing_steps
from penstock.loop.rehearsal import NotAgain, RecordedRollouts, difference, recorded_overrides, rehearse
from penstock.loop.trainer import Trainer
from penstock.model import topics
from penstock.model.policy import Policy
from penstock.model.version import Version
from penstock.stream.base import Position


def make_fork(child: Descendant) -> bool:
    """Write the fork's first checkpoint unless it has one; False when told to stop before."""
    if child.store.versions():
        return True
    same = child.spec.algorithm == child.origin.spec.algorithm
    trainer = Trainer(child.run, child.origin.spec if same else child.spec)
    try:
        if same:
            position = _restore(child, trainer)
        else:
            position = None
            _begin_anew(child, trainer)
        if not _catch_up(child, trainer, position, exact=same):
            return False
        policy = _landed(child, trainer, exact=same)
    except NotAgain as error:
        raise _cannot(child, str(error), error.step) from error
    _write(child, trainer, policy)
    return True


def _restore(child: Descendant, trainer: Trainer) -> Position | None:
    """Stand at the nearest sound checkpoint at or before the version; returns where its log goes on."""
    for start in child.origin.past.starts(child.until.step):
        try:
            return child.origin.restore(trainer, start)
        except Damaged as error:
            child.tell("checkpoint_refused", version=str(start), reason=str(error))
    raise _cannot(child, "no checkpoint at or before it is kept")


def _begin_anew(child: Descendant, trainer: Trainer) -> None:
    """Stand at step 0 with another algorithm; every recorded update up to the version must be there."""
    origin, step = child.origin, child.until.step
    updates = origin.past.between(0, step)
    gone = missing_steps(origin.stream, origin.run, updates, None)
    if missing := step - len(updates) + len(gone):
        raise NotFound(
            f"{child.spec.algorithm} must learn all that {origin.run} recorded up to {child.until}, and {missing} "
            f"of {step} updates are gone; learn from the rest without going on from it: "
            f"penstock replay {origin.run} --algorithm {child.spec.algorithm}"
        )
    origin.begin(trainer)
    child.become_foreign(trainer)


def _catch_up(child: Descendant, trainer: Trainer, position: Position | None, exact: bool) -> bool:
    """Make the updates between here and the version again; False when told to stop."""
    origin = child.origin
    updates = origin.past.between(trainer.version.step, child.until.step)
    overrides = recorded_overrides if exact else overrides_for(child.spec, origin.spec)
    with closing(RecordedRollouts(origin.stream, origin.run, updates, position)) as rollouts:
        for made in rehearse(rollouts, updates, trainer, overrides, exact):
            child.follow(made, trainer)
            if child.stopping():
                return False
    return True


def _landed(child: Descendant, trainer: Trainer, exact: bool) -> Policy:
    """The policy of the version, under the fork's own number; with `exact` it is the one recorded."""
    trainer.version = Version(0, child.until.step)
    roster = dict.fromkeys(range(child.spec.actors.count), child.until.step)
    policy = trainer.policy(roster, final=False)
    recorded = child.origin.past.update(child.until.step)
    if exact and recorded is not None and recorded.weights_sha256 != policy.facts.weights_sha256:
        raise NotAgain(recorded, difference(recorded, policy))
    return policy


def _write(child: Descendant, trainer: Trainer, policy: Policy) -> None:
    """The first checkpoint: what the origin knew, an empty log, and the settings of the fork."""
    settings, trainer.overrides = trainer.settings(), {}  # the fork's own spec says what was changed
    head = trainer.head(policy.facts.roster)
    probe = Trainer(child.run, child.spec)
    if probe.settings() != settings:
        _check_settings(child, trainer, policy, head, probe)
    topic = topics.experiences(child.run)
    # until there is a second checkpoint
    child.stream.protect(topic, dict.fromkeys(child.stream.end(topic), 0))
    path = child.save(trainer, policy, head)
    same = child.spec.algorithm == child.origin.spec.algorithm
    child.tell(
        "forked", origin=child.origin.run, version=str(child.until),
        weights="as recorded" if same else f"{child.spec.algorithm} learned the log, nothing to compare with",
        weights_sha256=policy.facts.weights_sha256,
    )  # fmt: skip
    child.conclude(trainer, policy, path, f"forked from {child.origin.run} at {child.until}")


def _check_settings(
    child: Descendant, trainer: Trainer, policy: Policy, head: Checkpoint, probe: Trainer
) -> None:
    """Refuse settings that the state cannot go on with."""
    probe.begin(trainer.description.spaces)
    reason = "they change the network"
    if probe.description == trainer.description:
        try:
            return probe.restore(head, trainer.learner.save(), policy)
        except (PenstockError, KeyError, ValueError) as error:
            reason = str(error)
    origin = child.origin.spec.settings
    changed = [name for name, value in child.spec.settings.items() if origin.get(name) != value]
    raise ConfigError(
        f"version {child.until} of {child.origin.run} cannot go on with other settings of {', '.join(changed)}: "
        f"{reason}; leave them as they are, or begin anew: penstock train"
    )


def _cannot(child: Descendant, reason: str, *broken: int) -> NotFound:
    there = child.origin.can_be_had(frozenset(broken))
    return NotFound(f"version {child.until} of {child.origin.run} cannot be had: {reason}; {there}")

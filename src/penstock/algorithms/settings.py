"""Hyperparameters of the algorithms. No JAX here: the command line reads these.

Each number may be a schedule: `lin_3e-4` falls linearly from 3e-4 to 0 over `schedule_steps`
environment steps. Fields listed in `live` may change while a run goes on, without recompiling.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from penstock.errors import ConfigError

Rate = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Schedule = Annotated[str, Meta(pattern=r"^lin_[0-9.]+(e-?[0-9]+)?$")]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all algorithms share."""

    live: ClassVar[frozenset[str]] = frozenset({"learning_rate"})
    """Names that are traced arguments of the compiled update."""

    actions: ClassVar[tuple[str, ...]] = ("discrete", "multi_discrete", "box")
    """Kinds of `ActionLayout` that the algorithm can choose."""

    learning_rate: Annotated[float, Meta(gt=0)] | Schedule = 3e-4
    """Step size of Adam; `lin_X` falls linearly from X to 0."""

    gamma: Rate = 0.99
    """Discount of future rewards."""

    max_grad_norm: Positive = 0.5
    """Gradients are scaled down to this norm."""

    schedule_steps: Count = 1_000_000
    """Environment steps over which `lin_X` schedules fall."""

    normalize_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return."""


class PPOSettings(Settings, frozen=True, kw_only=True):
    """Proximal policy optimisation (Schulman et al., 2017)."""

    live: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "value_learning_rate", "gamma", "gae_lambda", "clip_range", "entropy",
         "value_coefficient", "max_grad_norm", "target_kl"}
    )  # fmt: skip

    gae_lambda: Rate = 0.95
    """Trace of the generalised advantage estimate."""

    epochs: Count = 10
    """Passes over each batch."""

    minibatch: Count = 256
    """Samples of one gradient step."""

    gradient_steps: Count | None = None
    """Gradient steps of one update, instead of `epochs`: then it costs the same however long the rollout is."""

    clip_range: Annotated[float, Meta(gt=0)] | Schedule = 0.2
    """How far the probability ratio may move before its gradient stops."""

    entropy: NonNegative | Schedule = 0.0
    """Weight of the entropy bonus."""

    value_coefficient: NonNegative = 0.5
    """Weight of the value loss where policy and value are optimised together."""

    normalize_advantages: bool = True
    """Scale the advantages of each minibatch to mean 0 and deviation 1."""

    target_kl: Positive | None = None
    """Stop the epochs of an update once the policy has moved this far (times 1.5)."""

    separate: bool = False
    """Optimise policy and value separately, each with its own rate and passes."""

    value_learning_rate: Annotated[float, Meta(gt=0)] | Schedule = 1e-3
    """Step size of the value network, where separate."""

    value_epochs: Count = 10
    """Passes of the value network, where separate."""

    value_gradient_steps: Count | None = None
    """Gradient steps of the value network, instead of `value_epochs`, where separate."""


class IMPALASettings(Settings, frozen=True, kw_only=True):
    """Importance-weighted actor-learner (Espeholt et al., 2018)."""

    live: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "gamma", "entropy", "value_coefficient", "max_grad_norm", "rho_clip", "trace_clip",
         "vtrace_lambda"}
    )  # fmt: skip

    entropy: NonNegative | Schedule = 0.01
    """Weight of the entropy bonus."""

    value_coefficient: NonNegative = 0.5
    """Weight of the value loss."""

    rho_clip: Positive = 1.0
    """Cap of the importance weight in the temporal difference."""

    trace_clip: Positive = 1.0
    """Cap of the importance weight in the trace."""

    vtrace_lambda: Rate = 1.0
    """Trace of the V-trace target."""

    epochs: Count = 1
    """Passes over each batch."""

    minibatches: Count = 1
    """Pieces, along the environments, a batch is split into."""


class REINFORCESettings(Settings, frozen=True, kw_only=True):
    """Monte-Carlo policy gradient with a learned baseline (Williams, 1992)."""

    live: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "gamma", "entropy", "value_coefficient", "max_grad_norm"}
    )

    entropy: NonNegative | Schedule = 0.0
    """Weight of the entropy bonus."""

    value_coefficient: NonNegative = 0.5
    """Weight of the baseline's loss."""

    normalize_advantages: bool = True
    """Scale the advantages of a batch to mean 0 and deviation 1."""


class DQNSettings(Settings, frozen=True, kw_only=True):
    """Deep Q-learning: double, duelling, n-step, prioritised (Hessel et al., 2018)."""

    actions: ClassVar[tuple[str, ...]] = ("discrete",)
    live: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "gamma", "max_grad_norm", "target_rate", "epsilon_start", "epsilon_end",
         "epsilon_steps", "priority_beta"}
    )  # fmt: skip

    buffer: Count = 100_000
    """Transitions kept in replay memory; each holds two observations, before and after."""

    batch: Count = 128
    """Transitions of one gradient step."""

    gradient_steps: Count = 64
    """Gradient steps of one update."""

    learning_starts: Annotated[int, Meta(ge=0)] = 1_000
    """Transitions collected before the first gradient step."""

    n_step: Annotated[int, Meta(ge=1, le=64)] = 3
    """Rewards summed before the bootstrap; fewer where an episode or a rollout ends first."""

    double: bool = True
    """Choose the next action with the online network, judge it with the target."""

    duelling: bool = True
    """Split the Q-values into state value and advantage."""

    prioritised: bool = True
    """Sample transitions by their last error."""

    priority_alpha: Rate = 0.6
    """How much errors matter for sampling."""

    priority_beta: Rate = 0.4
    """How much the sampling is corrected."""

    target_rate: Rate = 0.01
    """How far the target network moves towards the online one at each gradient step."""

    epsilon_start: Rate = 1.0
    """Share of random actions at the beginning."""

    epsilon_end: Rate = 0.05
    """Share of random actions after `epsilon_steps`."""

    epsilon_steps: Count = 10_000
    """Environment steps over which epsilon falls."""

    epsilon_spread: NonNegative = 0.0
    """Per-actor exploration: slot i of n acts with epsilon^(1 + spread·i/(n−1)) (Horgan et al., 2018)."""


class SACSettings(Settings, frozen=True, kw_only=True):
    """Soft actor-critic with automatic temperature (Haarnoja et al., 2018)."""

    actions: ClassVar[tuple[str, ...]] = ("box",)
    live: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "gamma", "max_grad_norm", "target_rate", "target_entropy_scale"}
    )

    learning_rate: Annotated[float, Meta(gt=0)] | Schedule = 1e-3
    """Step size of Adam, for policy, critics and temperature; `lin_X` falls linearly from X to 0."""

    max_grad_norm: Positive = 10.0
    """Gradients are scaled down to this norm."""

    buffer: Count = 200_000
    """Transitions kept in replay memory; each holds two observations, before and after."""

    batch: Count = 256
    """Transitions of one gradient step."""

    gradient_steps: Count = 64
    """Gradient steps of one update."""

    learning_starts: Annotated[int, Meta(ge=0)] = 1_000
    """Transitions collected before the first gradient step; a fresh policy acts almost uniformly."""

    target_rate: Rate = 0.005
    """How far the target critics move at each gradient step."""

    initial_temperature: Positive = 1.0
    """Weight of the entropy at the beginning."""

    automatic_temperature: bool = True
    """Tune that weight towards a target entropy."""

    target_entropy_scale: Positive = 1.0
    """The target entropy is minus this times the number of action dimensions (scaled to [−1, 1])."""


def read(kind: type[Settings], values: Mapping[str, Any], place: str) -> Settings:
    """Check `values` against `kind`; raise ConfigError that names `place` and the nearest right key."""
    from penstock.errors import nearest

    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    for key in values:
        if key not in known:
            raise ConfigError(f"{place} has no setting {key!r}{nearest(key, known)}")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}") from error


def at(value: float | str | None, steps: int, total: int) -> float:
    """The number a setting has after `steps` environment steps; None is infinity (no limit)."""
    if value is None:
        return float("inf")
    if isinstance(value, str):
        return float(value.removeprefix("lin_")) * max(0.0, 1.0 - steps / total)
    return float(value)


def live_values(settings: Settings, steps: int) -> dict[str, float]:
    """All live settings as numbers at `steps`: the traced arguments of an update."""
    return {
        name: at(getattr(settings, name), steps, settings.schedule_steps) for name in sorted(settings.live)
    }

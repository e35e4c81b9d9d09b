"""Deciding here, for clients whose policy is too large for them."""

import secrets
import threading
from typing import Any

import numpy as np

from penstock.errors import ConfigError, Unavailable
from penstock.loop.gateway.receiving import Expected
from penstock.model.policy import Policy
from penstock.model.version import NONE, Version
from penstock.policy.acting import Acting

WAIT_SECONDS = 5.0


class RemoteActing:
    """One policy that decides for many, one decision at a time: it works in buffers of its own."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._lock = threading.Lock()
        self._acting: Acting | None = None
        self._version: Version = NONE
        self._seed, self._count = secrets.randbits(63), 0

    def decide(self, policy: Policy, request: Any, patience: float) -> tuple[bytes, float, Version]:
        """Action (before clipping, counted from 0), its log-probability, and the version that decided."""
        columns = self._expected.observation(request.observations, "observations", 1)
        masks = self._expected.mask(request.mask, "mask", 1)
        if not self._lock.acquire(timeout=max(0.0, min(patience, WAIT_SECONDS))):
            raise Unavailable("too many ask for decisions at once; decide locally, or ask again")
        try:
            acting = self._loaded(policy)
            self._count += 1
            noise = acting.noise((self._seed, 0, self._count), 1, 1)[0]
            if request.greedy:
                outputs = acting.outputs(columns)
                action = acting.greedy(columns, masks)
            else:
                action, outputs = acting.decide(columns, masks, noise)
            layout = policy.facts.description.spaces.action.column
            action = np.asarray(action).astype(layout.dtype)
            told = 0.0
            if policy.facts.description.head != "q":
                told = float(acting.log_probs(outputs, action, masks)[0])
            return action[0].tobytes(), told, self._version
        finally:
            self._lock.release()

    def _loaded(self, policy: Policy) -> Acting:
        if self._acting is None:
            self._acting = Acting(policy.facts.description)
        if policy.facts.version != self._version:
            self._acting.load(policy.tensors)
            self._acting.epsilon = policy.facts.acting.get("epsilon", 0.0)
            self._version = policy.facts.version
        return self._acting


def check_remote(policy: Policy | None) -> Policy:
    """The policy that can decide; raise where there is none yet."""
    if policy is None:
        raise Unavailable("the policy has no version yet; ask again in a moment")
    if not policy.tensors:
        raise ConfigError("the policy has no tensors")
    return policy

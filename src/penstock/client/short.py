"""The short form: act, reward, end.

with Agent("localhost:50051", policy="pump", observation=8, actions=4) as agent:
    action = agent.act(observation)
    agent.reward(1.0)
    agent.end()
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from penstock.client.agent import CLOSE_SECONDS, RL4SysAgent
from penstock.client.deciding import Heuristic
from penstock.client.trajectory import Action, Trajectory
from penstock.errors import Conflict
from penstock.model.version import Version


class Agent:
    """One episode after the other, in one thread.

    `observation` and `actions` say what the policy sees and does; they may be left out where it exists already.
    Further keywords are keys of the configuration, such as `deadline_ms=2` or `mode="shadow"`.
    """

    def __init__(
        self,
        address: str,
        *,
        policy: str,
        observation: int | tuple[int, ...] | None = None,
        actions: int | None = None,
        algorithm: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        heuristic: Heuristic | None = None,
        seed: int | None = None,
        **keys: Any,
    ) -> None:
        chosen: dict[str, Any] = dict(parameters or {})
        if actions is not None:
            chosen["act_dim"] = _plain(actions)
        if isinstance(observation, tuple | list):
            keys["observation_shape"] = [_plain(size) for size in observation]
        elif observation is not None:
            chosen["input_size"] = _plain(observation)
        if algorithm is None and chosen:
            algorithm = "PPO"
        configuration = {"client_id": policy, "train_server_address": address, **keys}
        if algorithm is not None:
            configuration |= {"algorithm_name": algorithm, "algorithm_parameters": chosen}
        self.agent = RL4SysAgent(configuration, heuristic=heuristic, seed=seed)
        self._trajectory: Trajectory | None = None
        self._action: Action | None = None

    def act(self, observation: Any, mask: Any = None) -> Any:
        """What to do now."""
        self._trajectory, self._action = self.agent.request_for_action(self._trajectory, observation, mask)
        if self._action.told:
            self.agent.add_to_trajectory(self._trajectory, self._action)
        return self._action.act

    def did(self, action: Any) -> None:
        """Say what was really done, where that is not what `act` said; a must in shadow mode."""
        newest = self._newest("did")
        told = newest.told
        newest.did(action)
        if not told and self._trajectory is not None:
            self.agent.add_to_trajectory(self._trajectory, newest)

    def reward(self, reward: float) -> None:
        """What came of the last action; several rewards for one action add up."""
        newest = self._newest("reward")
        newest.update_reward((newest.reward or 0.0) + reward)

    def end(self, truncated: bool = False, final_observation: Any = None) -> None:
        """The episode is over; see `RL4SysAgent.mark_end_of_trajectory`."""
        self._newest("end")
        assert self._trajectory is not None
        self.agent.mark_end_of_trajectory(self._trajectory, self._action, truncated, final_observation)

    def off(self) -> None:
        self.agent.off()

    def on(self) -> None:
        self.agent.on()

    @property
    def version(self) -> Version | None:
        return self.agent.version

    def figures(self) -> dict[str, Any]:
        return self.agent.figures()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        self.agent.close(seconds)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _newest(self, verb: str) -> Action:
        if self._action is None:
            raise Conflict(f"{verb} comes after act; nothing was decided yet")
        return self._action


def _plain(size: Any) -> Any:
    """NumPy's whole numbers as Python's; what is none is refused by name later."""
    return int(size) if isinstance(size, Integral) and not isinstance(size, bool) else size

"""TorchRL's local sampler: its collector over one environment, a 64×64 policy, no learning.

Prints one line of JSON: environment steps per second.
"""

import json
import sys
import time

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import MLP, ProbabilisticActor


def main(name: str, seconds: float) -> None:
    torch.set_num_threads(1)
    environment = GymWrapper(gymnasium.make(name), categorical_action_encoding=True)
    inputs = environment.observation_spec["observation"].shape[-1]
    outputs = int(environment.action_spec.space.n)
    net = MLP(in_features=inputs, out_features=outputs, num_cells=[64, 64], activation_class=torch.nn.Tanh)
    actor = ProbabilisticActor(
        TensorDictModule(net, ["observation"], ["logits"]),
        in_keys=["logits"],
        out_keys=["action"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    steps, started = 0, 0.0
    for index, data in enumerate(Collector(environment, actor, frames_per_batch=500, total_frames=-1)):
        if index == 0:
            started = time.perf_counter()
            continue
        steps += data.numel()
        if time.perf_counter() - started > seconds:
            break
    print(json.dumps({"steps_per_second": steps / (time.perf_counter() - started)}), flush=True)


main(sys.argv[1], float(sys.argv[2]))

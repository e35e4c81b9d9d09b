"""RLlib's local sampler: one environment runner in this process, one environment, a 64×64 policy, no learning.

Prints one line of JSON: environment steps per second.
"""

import json
import sys
import time

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner


def main(environment: str, seconds: float) -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    config = (
        PPOConfig()
        .environment(environment)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=1)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh"))
    )
    runner = SingleAgentEnvRunner(config=config)
    runner.sample(num_timesteps=1000, random_actions=False)
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        steps += sum(len(episode) for episode in runner.sample(num_timesteps=500, random_actions=False))
    print(json.dumps({"steps_per_second": steps / (time.perf_counter() - started)}), flush=True)


main(sys.argv[1], float(sys.argv[2]))

"""RLlib APPO with its tuned CartPole example; on LunarLander the same, as RLlib publishes none for it."""

from episodes import Counted, Race

race = Race()

import gymnasium  # noqa: E402
import ray  # noqa: E402
from ray.rllib.algorithms.appo import APPOConfig  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.tune.registry import register_env  # noqa: E402


def main() -> None:
    race.watch(ray.shutdown)
    name, path = race.environment, race.path
    # a processor is only a word in Ray: fewer of them than processes asked for, and it would wait for ever
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, logging_level="error")
    register_env("race", lambda _: Counted(gymnasium.make(name), path))
    config = (
        APPOConfig()
        .environment("race")
        .training(vf_loss_coeff=0.05, entropy_coeff=0.0)
        .rl_module(model_config=DefaultModelConfig(vf_share_layers=True))
        .debugging(seed=race.seed)
    )
    algorithm = config.build_algo()
    while True:
        algorithm.train()


main()

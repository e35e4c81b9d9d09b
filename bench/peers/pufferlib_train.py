"""PufferLib's own PPO with the settings it ships (`config/default.ini`), 64 environments as for its CartPole.

One thing differs: its minibatch of 8,192 is larger than the batch that 64 environments make (64 × 64), so the
whole batch is one minibatch. Its Gymnasium is 0.29, so LunarLander is v2 there: the same physics and rewards.
"""

import ast
import configparser
import os

from episodes import Race

race = Race()

import pufferlib.emulation  # noqa: E402
import pufferlib.models  # noqa: E402
import pufferlib.pufferl  # noqa: E402
import pufferlib.vector  # noqa: E402
import torch  # noqa: E402

ENVIRONMENTS = 64
TOTAL_STEPS = {"CartPole-v1": 500_000, "LunarLander-v3": 10_000_000}
"""From `classic_control.ini` and `default.ini`; the learning rate is annealed over them."""


def shipped() -> dict:
    """The [train] section of the settings inside the package."""
    parser = configparser.ConfigParser()
    parser.read(os.path.join(os.path.dirname(pufferlib.__file__), "config", "default.ini"))
    return {name: _literal(value) for name, value in parser["train"].items()}


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def make(buf: object = None, seed: int = 0) -> pufferlib.emulation.GymnasiumPufferEnv:
    return pufferlib.emulation.GymnasiumPufferEnv(env=race.make(), buf=buf, seed=seed)


def main() -> None:
    race.watch()
    race_environment = race.environment
    race.environment = race_environment.replace("Lander-v3", "Lander-v2")
    config = shipped() | {
        "env": race_environment,
        "device": "cpu",
        "seed": race.seed,
        "use_rnn": False,
        "total_timesteps": TOTAL_STEPS[race_environment],
        "minibatch_size": ENVIRONMENTS * 64,
        "data_dir": race.folder,
    }
    torch.manual_seed(race.seed)
    environments = pufferlib.vector.make(make, backend="Serial", num_envs=ENVIRONMENTS, seed=race.seed)
    policy = pufferlib.models.Default(environments.driver_env)
    trainer = pufferlib.pufferl.PuffeRL(config, environments, policy)
    while trainer.global_step < config["total_timesteps"]:
        trainer.evaluate()
        trainer.train()
    race.end()


main()

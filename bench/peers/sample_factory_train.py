"""Sample Factory APPO with the settings of its own Gym example (`sf_examples/train_gym_env.py`).

Its Gymnasium is 0.29, so LunarLander is v2 there: the same physics and rewards.
"""

from episodes import Counted, Race

race = Race()

import gymnasium  # noqa: E402
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args  # noqa: E402
from sample_factory.envs.env_utils import register_env  # noqa: E402
from sample_factory.train import run_rl  # noqa: E402

EXAMPLE = [
    "--algo=APPO",
    "--use_rnn=False",
    "--num_envs_per_worker=20",
    "--policy_workers_per_policy=2",
    "--recurrence=1",
    "--with_vtrace=False",
    "--batch_size=512",
    "--reward_scale=0.1",
    "--save_every_sec=10",
    "--experiment_summaries_interval=10",
]


def make(name: str, cfg: object = None, env_config: object = None, render_mode: str | None = None) -> Counted:
    return Counted(gymnasium.make(name.replace("Lander-v3", "Lander-v2"), render_mode=render_mode), race.path)


def main() -> None:
    race.watch()
    register_env(race.environment, make)
    own = [f"--env={race.environment}", "--device=cpu", "--experiment=race", f"--train_dir={race.folder}"]
    arguments = [*EXAMPLE, *own, f"--seed={race.seed}", "--train_for_env_steps=10000000"]
    parser, _ = parse_sf_args(argv=arguments)
    cfg = parse_full_cfg(parser, arguments)
    run_rl(cfg)
    race.end()


if __name__ == "__main__":
    main()

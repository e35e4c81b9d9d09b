"""Stable-Baselines3 PPO with RL Zoo settings, run as the Zoo does: DummyVecEnv, default torch threads."""

from episodes import Race, linear

race = Race()

from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402

ZOO = {
    "CartPole-v1": {
        "environments": 8,
        "total_steps": 100_000,
        "n_steps": 32,
        "batch_size": 256,
        "n_epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "ent_coef": 0.0,
        "learning_rate": linear(1e-3),
        "clip_range": linear(0.2),
    },
    "LunarLander-v3": {
        "environments": 16,
        "total_steps": 100_000_000,  # nothing is scheduled here, so it may go on past the Zoo's million
        "n_steps": 1024,
        "batch_size": 64,
        "n_epochs": 4,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "ent_coef": 0.01,
    },
}


def train(algorithm: type, settings: dict) -> None:
    """Train one Zoo setting until the race is over; shared with SBX, whose face is the same."""
    race.watch()
    settings = dict(settings)
    environments = DummyVecEnv([race.make] * settings.pop("environments"))
    total_steps = settings.pop("total_steps")
    model = algorithm("MlpPolicy", environments, seed=race.seed, device="cpu", **settings)
    model.learn(total_steps)
    race.end()


if __name__ == "__main__":
    train(PPO, ZOO[race.environment])

"""SBX PPO (SB3 on JAX) with the same RL Zoo settings."""

from sb3_train import ZOO, race, train
from sbx import PPO

train(PPO, ZOO[race.environment])

"""Train, look, act: the Python face in a few lines. Runs the same in a notebook."""

import gymnasium as gym

import penstock


def main() -> None:
    run = penstock.train("CartPole-v1", algorithm="ppo", actors=2)
    returns = run.metrics("charts/episodic_return")["charts/episodic_return"]
    print(f"{run.id}: mean return {returns[-1]:.1f} after {len(returns)} reports")

    policy, env = run.policy(), gym.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, over = total + float(reward), terminated or truncated
    print(f"one episode of version {policy.version}: {total:.0f}")


if __name__ == "__main__":
    main()

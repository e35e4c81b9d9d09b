"""TorchRL PPO with the RL Zoo's settings: its collector, GAE and clipped loss, as in its example."""

from episodes import Race

race = Race()

import torch  # noqa: E402
from tensordict.nn import TensorDictModule  # noqa: E402
from torchrl.collectors import Collector  # noqa: E402
from torchrl.envs import GymWrapper, SerialEnv, StepCounter, TransformedEnv  # noqa: E402
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator  # noqa: E402
from torchrl.objectives import ClipPPOLoss  # noqa: E402
from torchrl.objectives.value import GAE  # noqa: E402

ZOO = {
    "CartPole-v1": {
        "environments": 8,
        "steps": 32,
        "minibatch": 256,
        "epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "entropy": 0.0,
        "rate": 1e-3,
        "linear_over": 100_000,
    },
    "LunarLander-v3": {
        "environments": 16,
        "steps": 1024,
        "minibatch": 64,
        "epochs": 4,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "entropy": 0.01,
        "rate": 3e-4,
        "linear_over": None,
    },
}


def network(inputs: int, outputs: int, last_gain: float) -> MLP:
    net = MLP(in_features=inputs, out_features=outputs, num_cells=[64, 64], activation_class=torch.nn.Tanh)
    linears = [layer for layer in net.modules() if isinstance(layer, torch.nn.Linear)]
    for layer in linears:
        torch.nn.init.orthogonal_(layer.weight, last_gain if layer is linears[-1] else 2**0.5)
        torch.nn.init.zeros_(layer.bias)
    return net


def one_environment() -> TransformedEnv:
    return TransformedEnv(GymWrapper(race.make(), categorical_action_encoding=True), StepCounter())


def main(settings: dict) -> None:
    race.watch()
    torch.manual_seed(race.seed)
    environment = SerialEnv(settings["environments"], one_environment)
    environment.set_seed(race.seed)
    inputs = environment.observation_spec["observation"].shape[-1]
    outputs = int(environment.action_spec.space.n)
    actor = ProbabilisticActor(
        TensorDictModule(network(inputs, outputs, 0.01), ["observation"], ["logits"]),
        in_keys=["logits"],
        out_keys=["action"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(network(inputs, 1, 1.0), in_keys=["observation"])
    advantage = GAE(gamma=settings["gamma"], lmbda=settings["gae_lambda"], value_network=critic)
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=0.2,
        entropy_coeff=settings["entropy"],
        critic_coeff=0.5,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    optimizer = torch.optim.Adam(loss.parameters(), lr=settings["rate"], eps=1e-5)
    batch = settings["environments"] * settings["steps"]
    collector = Collector(environment, actor, frames_per_batch=batch, total_frames=-1)
    for index, data in enumerate(collector):
        if settings["linear_over"]:
            remaining = 1 - index * batch / settings["linear_over"]
            if remaining <= 0:
                race.end()
            optimizer.param_groups[0]["lr"] = settings["rate"] * remaining
            loss.clip_epsilon.fill_(0.2 * remaining)
        update(data, advantage, loss, optimizer, settings)
    race.end()


def update(data, advantage: GAE, loss: ClipPPOLoss, optimizer: torch.optim.Optimizer, settings: dict) -> None:
    with torch.no_grad():
        advantage(data)
    flat = data.reshape(-1)
    for _ in range(settings["epochs"]):
        for rows in torch.randperm(len(flat)).split(settings["minibatch"]):
            values = loss(flat[rows])
            total = values["loss_objective"] + values["loss_critic"] + values.get("loss_entropy", 0.0)
            optimizer.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
            optimizer.step()


main(ZOO[race.environment])

"""The names of the topics. A name that ends in a run id belongs to that run alone."""

RUNS = "runs"
COMMANDS = "commands.control"
METRICS_TRAINING = "metrics.training"
METRICS_ACTORS = "metrics.actors"
DEAD_LETTERS = "dead_letters"
CLAIMS = "claims"
"""Kafka only: who took which epoch."""
OF_A_RUN = ("experiences", "model_updates", "history", "trajectories", "sources")
"""Kinds of topics whose names end in a run's id."""
SHARED = (RUNS, COMMANDS, METRICS_TRAINING, METRICS_ACTORS, DEAD_LETTERS, CLAIMS)


def experiences(run: str) -> str:
    return f"experiences.{run}"


def model_updates(run: str) -> str:
    return f"model_updates.{run}"


def history(run: str) -> str:
    """What each update used and what came out; the run's proof (docs/adr/0003)."""
    return f"history.{run}"


def trajectories(run: str) -> str:
    """What clients sent and the gateway acknowledged; it becomes rollouts."""
    return f"trajectories.{run}"


def sources(run: str) -> str:
    """Which numbers each source of trajectories has used up."""
    return f"sources.{run}"


def run_of(topic: str) -> str | None:
    """The run a topic belongs to; None where it belongs to all, or is none of ours."""
    kind, _, run = topic.partition(".")
    return run if kind in OF_A_RUN and run else None


def is_ours(topic: str) -> bool:
    return topic in SHARED or run_of(topic) is not None

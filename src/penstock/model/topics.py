"""The names of the topics. A name that ends in a run id belongs to that run alone."""

RUNS = "runs"
COMMANDS = "commands.control"
METRICS_TRAINING = "metrics.training"
METRICS_ACTORS = "metrics.actors"
DEAD_LETTERS = "dead_letters"


def experiences(run: str) -> str:
    return f"experiences.{run}"


def model_updates(run: str) -> str:
    return f"model_updates.{run}"


def history(run: str) -> str:
    """What each update used and what came out; the run's proof (docs/adr/0003)."""
    return f"history.{run}"

"""A policy as a folder to share, in the shape the Hugging Face Hub knows. Data only, never code."""

from pathlib import Path
from typing import Any

import msgspec

from penstock import config
from penstock.config.files import dump
from penstock.errors import ConfigError, Conflict, PenstockError
from penstock.loop.checkpoint import load_policy
from penstock.loop.evaluate import Evaluation, evaluate
from penstock.loop.files import write_atomically
from penstock.loop.media import record
from penstock.loop.runs import RunFolder
from penstock.model.policy import Policy
from penstock.model.version import Version

FORMAT = 1
FILES = ("policy.safetensors", "config.json", "README.md", "replay.gif")


class Export(msgspec.Struct, frozen=True):
    """What was written."""

    run: str
    checkpoint: str
    folder: str
    files: tuple[str, ...]
    mean: float
    std: float
    note: str | None = None

    def text(self) -> str:
        """For people."""
        note = f"\nnote: {self.note}" if self.note else ""
        return (
            f"{self.folder}: {', '.join(self.files)} (mean return {self.mean:,.2f} ± {self.std:,.2f}){note}"
        )


def export(folder: RunFolder, checkpoint: Version, to: Path, episodes: int = 10, seed: int = 0) -> Export:
    """Evaluate a checkpoint and write the folder; files of an earlier export are replaced, others refused."""
    _prepare(to)
    policy = load_policy(folder.checkpoint_path(checkpoint))
    result = evaluate(folder, checkpoint, episodes, seed)
    weights = (folder.checkpoint_path(checkpoint) / "policy.safetensors").read_bytes()
    write_atomically(to / "policy.safetensors", weights)
    write_atomically(to / "config.json", _pretty(description(folder, policy, result)))
    note = None
    try:
        record(folder, checkpoint, to / "replay.gif", seed)
    except PenstockError as error:  # a policy without a picture is still a policy
        note = f"no replay.gif: {error}"
    card = model_card(folder, policy, result, has_replay=note is None)
    write_atomically(to / "README.md", card.encode())
    files = tuple(name for name in FILES if (to / name).is_file())
    return Export(folder.run, str(checkpoint), str(to), files, result.mean, result.std, note)


def description(folder: RunFolder, policy: Policy, result: Evaluation) -> dict[str, Any]:
    """`config.json`: all that is needed, beside the tensors, to act, and how it was made."""
    return {
        "library": "penstock",
        "format": FORMAT,
        "run": folder.run,
        "policy": msgspec.to_builtins(policy.facts),
        "spec": _portable(config.to_mapping(folder.spec())),
        "evaluation": msgspec.to_builtins(
            msgspec.structs.replace(result, environment=_portable_id(result.environment))
        ),
    }


def model_card(folder: RunFolder, policy: Policy, result: Evaluation, has_replay: bool) -> str:
    """`README.md`: front matter the Hub reads, then words for people."""
    spec, facts = folder.spec(), policy.facts
    environment, algorithm = _portable_id(spec.environment.id), spec.algorithm
    score = f"{result.mean:.2f} +/- {result.std:.2f}"
    front = {
        "library_name": "penstock",
        "pipeline_tag": "reinforcement-learning",
        "tags": [environment, algorithm, "reinforcement-learning", "deep-reinforcement-learning", "penstock"],
        "model-index": [
            {
                "name": algorithm.upper(),
                "results": [
                    {
                        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                        "dataset": {"name": environment, "type": environment},
                        "metrics": [
                            {"type": "mean_reward", "value": score, "name": "mean_reward", "verified": False}
                        ],
                    }
                ],
            }
        ],
    }
    replay = "![replay](replay.gif)\n\n" if has_replay else ""
    return f"""---
{dump(front)}---

# {algorithm.upper()} on {environment}

{replay}Mean return **{result.mean:.2f} ± {result.std:.2f}** over {len(result.returns)} episodes without \
exploration (seed {result.seed}), after {facts.environment_steps:,} environment steps.

Trained with [Penstock](https://github.com/penstock/penstock). The weights are safetensors
(`weights_sha256` {facts.weights_sha256}), and `config.json` describes the policy and the whole spec
of the run:

```yaml
{dump(_portable(config.to_mapping(spec))).rstrip()}
```
"""


def _prepare(to: Path) -> None:
    try:
        to.mkdir(parents=True, exist_ok=True)
        strangers = sorted(
            path.name for path in to.iterdir() if path.name not in (*FILES, ".gitattributes", ".git")
        )
    except OSError as error:
        raise ConfigError(f"the folder {to} cannot be made: {error.strerror or error}") from error
    if strangers:
        raise Conflict(f"{to} holds other files ({strangers[0]}); name an empty folder")


def _portable(values: dict[str, Any]) -> dict[str, Any]:
    """Without the paths of this machine, which help nobody and may tell who trained it."""
    environment = values["environment"]
    environment["id"] = _portable_id(environment["id"])
    environment["wrappers"] = [_portable_id(wrapper) for wrapper in environment["wrappers"]]
    return values


def _portable_id(name: str) -> str:
    return Path(name).name if ".py:" in name else name


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"

"""The Python face: start a run, look at it, use its policy. Works the same in a script and a notebook.

    run = penstock.train("CartPole-v1", algorithm="ppo", actors=2)
    run.metrics()["charts/episodic_return"]
    run.policy().act(observation)

Training runs in processes of its own, under a keeper; nothing here blocks an event loop for it.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from random import SystemRandom
from typing import Any

import msgspec

from penstock import config, launching
from penstock.control import verbs
from penstock.envs.load import environment_id, importing_environment
from penstock.errors import ConfigError, Damaged, PenstockError
from penstock.loop.checkpoint import load_policy
from penstock.loop.metrics import read_metrics
from penstock.loop.runs import RunFolder, statuses
from penstock.model.codec import Array
from penstock.model.policy import PolicyDescription
from penstock.model.run import LIVE, RunState, RunStatus, run_id
from penstock.model.spec import Spec
from penstock.model.version import Version
from penstock.policy.acting import Acting
from penstock.wiring import open_stream

PROGRESS_SECONDS = 2.0


class TrainedPolicy:
    """One version of a policy, ready to act; NumPy only."""

    def __init__(self, checkpoint: Path) -> None:
        policy = load_policy(checkpoint)
        self.version: Version = policy.facts.version
        self.description: PolicyDescription = policy.facts.description
        self._acting = Acting(self.description)
        self._acting.load(policy.tensors)

    def act(self, observation: Any, mask: Array | None = None) -> Any:
        """The best action for one observation as the environment gives it, ready for `step`."""
        return self._acting.act_one(observation, mask)


class Run:
    """A handle on one run; holds nothing but its name, so it can be made anew at any time."""

    def __init__(self, folder: RunFolder, keeper: launching.Launched | None = None) -> None:
        self._folder, self._keeper = folder, keeper

    def __repr__(self) -> str:
        status = self.status()
        mean = "none yet" if status.mean_return is None else f"{status.mean_return:.1f}"
        return f"<Run {self.id}: {status.state}, {status.steps:,} steps, mean return {mean}>"

    @property
    def id(self) -> str:
        return self._folder.run

    @property
    def path(self) -> Path:
        """Where its files lie."""
        return self._folder.path

    @property
    def spec(self) -> Spec:
        return self._folder.spec()

    def status(self) -> RunStatus:
        """What is known of it now."""
        return self._folder.status()

    def metrics(self, *names: str) -> dict[str, list[float | None]]:
        """Columns by name, against `steps`: all of them, or the axes and those named."""
        return read_metrics(self.path, names or None)

    def checkpoints(self) -> list[Version]:
        """What is kept, newest first."""
        return self._folder.checkpoints()

    def policy(self, checkpoint: str = "best") -> TrainedPolicy:
        """The policy of a checkpoint: `best`, `newest` or EPOCH.STEP."""
        return TrainedPolicy(self._folder.checkpoint_path(self._folder.choose(checkpoint)))

    def evaluate(self, episodes: int = 20, checkpoint: str = "best", seed: int = 0) -> Any:
        """Play episodes without exploration; returns their returns and lengths, mean and deviation."""
        from penstock.loop.evaluate import evaluate

        return evaluate(self._folder, self._folder.choose(checkpoint), episodes, seed)

    def wait(self, progress: bool = True) -> "Run":
        """Return once it has ended; raise where it failed. Interrupted, it lets the run save its work and end."""
        shown = 0.0
        try:
            while self._lives():
                time.sleep(launching.POLL_SECONDS)
                if progress and time.monotonic() - shown > PROGRESS_SECONDS:
                    shown = time.monotonic()
                    print(f"\r{self!r}", end="", flush=True)
        except KeyboardInterrupt:
            self.stop()
        if progress:
            print(f"\r{self!r}")
        status = self.status()
        if status.state is RunState.FAILED:
            raise PenstockError(f"run {self.id} failed: {status.reason}")
        return self

    def stop(self) -> RunStatus:
        """Let it save its work and end."""
        with closing(open_stream(self._folder.home, self._folder.spec().stream)) as stream:
            return verbs.stop(self._folder.home, self.id, stream)

    def scale(self, actors: int) -> RunStatus:
        """Change the number of its actors."""
        with closing(open_stream(self._folder.home, self._folder.spec().stream)) as stream:
            return verbs.ask(self._folder.home, self.id, stream, "scale", verbs.scaled(actors=actors))

    def set(self, **changes: Any) -> RunStatus:
        """Change hyperparameters from its next update on, as in `run.set(learning_rate=1e-4)`."""
        with closing(open_stream(self._folder.home, self._folder.spec().stream)) as stream:
            return verbs.ask(self._folder.home, self.id, stream, "set", changes)

    def resume(self, wait: bool = True, progress: bool = True, **stop: Any) -> "Run":
        """Go on where it ended; stop conditions may change, as in `run.resume(steps=1_000_000)`."""
        words = {name: "null" if value is None else value for name, value in stop.items()}
        flags = [flag for name, word in words.items() for flag in ("--set", f"stop.{name}={word}")]
        self._keeper = launching.launch(self._folder.home, ["resume", self.id, *flags])
        launching.await_start(self._keeper, self._folder)
        return self.wait(progress) if wait else self

    def fork(
        self, at: str | int = "newest", *, algorithm: str | None = None,
        settings: Mapping[str, Any] | None = None, wait: bool = True, progress: bool = True,
    ) -> "Run":  # fmt: skip
        """A new run that begins where this one stood at a version: EPOCH.STEP, a step, `best` or `newest`.

        `settings` hold from there on. With another algorithm fresh weights learn the log up to it first.
        """
        return self._descend(["fork", self.id, "--at", str(at)], algorithm, settings, wait, progress)

    def replay(
        self, until: str | int = "newest", *, algorithm: str | None = None,
        settings: Mapping[str, Any] | None = None, wait: bool = True, progress: bool = True,
    ) -> "Run":  # fmt: skip
        """A new run that learns this one's log, without environments.

        With the same algorithm and settings it ends with the same weights, or raises.
        """
        return self._descend(["replay", self.id, "--until", str(until)], algorithm, settings, wait, progress)

    def _descend(
        self, arguments: list[str], algorithm: str | None, settings: Mapping[str, Any] | None, wait: bool,
        progress: bool,
    ) -> "Run":  # fmt: skip
        changes = dict(settings or {}) | ({} if algorithm is None else {"algorithm": algorithm})
        words = [f"{path}={msgspec.json.encode(value).decode()}" for path, value in changes.items()]
        home, name = self._folder.home, run_id(self.spec.environment.id, SystemRandom())
        flags = ["--name", name, *(flag for word in words for flag in ("--set", word))]
        keeper, folder = launching.launch(home, [*arguments, *flags]), RunFolder(home, name)
        launching.await_start(keeper, folder)
        run = Run(folder, keeper)
        try:
            return run.wait(progress) if wait else run
        except Damaged:
            if not folder.path.exists():  # what cannot be had leaves nothing behind
                raise ConfigError(keeper.last_words()) from None
            raise

    def _lives(self) -> bool:
        if self._keeper is not None:
            return self._keeper.process.poll() is None
        return self.status().state in LIVE


def train(
    environment: Any,
    *,
    algorithm: str | None = None,
    actors: int | None = None,
    steps: int | None = None,
    target: float | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    wait: bool = True,
    progress: bool = True,
) -> Run:
    """Train a policy and return its run.

    `environment` is a Gymnasium id, `./file.py:Class`, a class from an importable module, or a spec
    (file or mapping). `settings` are dotted paths: `{"ppo.learning_rate": 1e-3, "pace.lead": 0}`.
    """
    if importing_environment():
        raise ConfigError(
            "penstock.train was called while an actor imports this file; put it under if __name__ == '__main__':"
        )
    source = _source(environment)
    overrides = {
        "algorithm": algorithm, "actors.count": actors, "stop.steps": steps, "stop.target": target, "seed": seed,
    }  # fmt: skip
    said = {name: value for name, value in overrides.items() if value is not None}
    spec = config.resolve(source, said | dict(settings or {}))
    run = Run(*launching.train(config.home(), spec))
    if wait:
        run.wait(progress)
    return run


def runs() -> list[Run]:
    """All runs of this machine, newest last."""
    home = config.home()
    known, _ = statuses(home)
    return [Run(RunFolder(home, status.run)) for status in reversed(known)]


def load(run: str) -> Run:
    """The run of that name."""
    return Run(RunFolder.open(config.home(), run))


def _source(environment: Any) -> Any:
    if isinstance(environment, str | Path | Mapping):
        return environment
    return environment_id(environment)

"""What an environment looks like, told by a process of its own: `python -m penstock.control.describe ID`.

Making an environment runs its code; the server never does that itself. Prints one JSON object.
"""

import os
import subprocess
import sys
from typing import Any

import msgspec

from penstock.errors import ConfigError, PenstockError, Unavailable

LIMIT_SECONDS = 20.0
MOST_BYTES = 1 << 20


def describe(id: str) -> dict[str, Any]:
    """Spaces and limits of an environment, made and closed in a child; raise ConfigError where it cannot be made."""
    command = [sys.executable, "-m", "penstock.control.describe", id]
    quiet = {
        **os.environ,
        "PYGAME_HIDE_SUPPORT_PROMPT": "1",
        "SDL_VIDEODRIVER": "dummy",
        "OMP_NUM_THREADS": "1",
    }
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            env=quiet,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"the environment {id!r} could not be made within {LIMIT_SECONDS:.0f} s") from error
    lines = ended.stdout[-MOST_BYTES:].splitlines()
    try:
        found = msgspec.json.decode(lines[-1], type=dict[str, Any])
    except (IndexError, msgspec.DecodeError) as error:
        raise ConfigError(f"the environment {id!r} ended its process with code {ended.returncode}") from error
    if "error" in found:
        raise ConfigError(str(found["error"]))
    return found


def main(id: str) -> None:
    """In the child."""
    from penstock.envs.make import make
    from penstock.model.spec import EnvironmentSpec

    try:
        environment = make(EnvironmentSpec(id=id))
        registered = environment.spec
        told: dict[str, Any] = {
            "observation": _space(environment.observation_space),
            "action": _space(environment.action_space),
            "max_episode_steps": None if registered is None else registered.max_episode_steps,
            "reward_threshold": None if registered is None else registered.reward_threshold,
        }
        environment.close()
    except PenstockError as error:
        told = {"error": str(error)}
    sys.stdout.write("\n" + msgspec.json.encode(told).decode() + "\n")


def _space(space: Any) -> dict[str, Any]:
    """A Gymnasium space as plain words and numbers."""
    import numpy as np

    kind = type(space).__name__
    told: dict[str, Any] = {"kind": kind, "text": str(space)[:2000]}
    if getattr(space, "shape", None) is not None:
        told["shape"] = [int(size) for size in space.shape]
    if getattr(space, "dtype", None) is not None:
        told["dtype"] = str(np.dtype(space.dtype))
    if kind == "Discrete":
        told |= {"n": int(space.n), "start": int(space.start)}
    elif kind == "Box" and space.low.size <= 256:
        told |= {"low": space.low.ravel().tolist(), "high": space.high.ravel().tolist()}
    elif kind == "MultiDiscrete":
        told["sizes"] = np.asarray(space.nvec).ravel().tolist()
    elif kind in ("Dict", "Tuple"):
        parts = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
        told["spaces"] = {str(name): _space(part) for name, part in parts}
    return told


if __name__ == "__main__":
    main(sys.argv[1])

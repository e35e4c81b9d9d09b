"""A virtual environment for each peer, under `.venvs/`; uv's cache shares one download between them.

Torch: only the CUDA build is on PyPI for x86-64 Linux, and it does not import without its CUDA libraries
(they are linked, not loaded on demand), so they are installed too, once, as hard links into uv's cache.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from bench.processes import BIN, ROOT

PEERS = ("sb3", "sbx", "torchrl", "sample_factory", "rllib", "pufferlib")
DEFAULT_PEERS = ("sb3", "sbx")
SCRIPTS = Path(__file__).parent / "peers"
BUILD = {"pufferlib": {"NO_OCEAN": "1", "PYTHONPATH": str(SCRIPTS / "pufferlib_build")}}
"""PufferLib's build downloads from GitHub unless told not to."""


def ensure(peer: str) -> Path:
    """Make the peer's environment unless it is there with the very same pins; return its interpreter."""
    pins = SCRIPTS / f"{peer}.txt"
    if not pins.exists():
        raise SystemExit(f"no peer named {peer!r}; there are: {', '.join(PEERS)}")
    folder = ROOT / ".venvs" / peer
    python, mark = folder / "bin" / "python", folder / "pins.sha256"
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == digest:
        return python
    print(f"installing {peer} into {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", **BUILD.get(peer, {})}
    for arguments in (
        ["venv", "--quiet", "--clear", "--python", str(BIN / "python"), str(folder)],
        [
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--compile-bytecode",
            "--python",
            str(python),
            "-r",
            str(pins),
        ],
    ):
        subprocess.run([str(BIN / "uv"), *arguments], env=environ, check=True)
    mark.write_text(digest)
    return python


def command(peer: str, environment: str, seed: int, target: float, seconds: float) -> list[str]:
    """How the peer is started."""
    script = str(SCRIPTS / f"{peer}_train.py")
    limits = ["--target", str(target), "--seconds", str(seconds)]
    return [str(ensure(peer)), script, environment, "--seed", str(seed), *limits]

"""One episode as a moving picture."""

from pathlib import Path

import msgspec
import numpy as np

from penstock.errors import ConfigError
from penstock.loop.evaluate import Player
from penstock.loop.pictures import MAX_WIDTH, image_module
from penstock.loop.runs import RunFolder
from penstock.model.codec import Array
from penstock.model.version import Version

MAX_FRAMES = 600
MOST_BYTES = 32 << 20
"""Of one picture; a larger one loses every second frame until it is not."""
FRAMES_PER_SECOND = 25
"""A GIF counts in hundredths of a second; browsers slow down what is faster."""


class Recording(msgspec.Struct, frozen=True):
    """What was recorded."""

    run: str
    checkpoint: str
    file: str
    total_reward: float
    length: int
    frames: int
    bytes: int

    def text(self) -> str:
        """For people."""
        return (
            f"{self.file}: return {self.total_reward:,.1f} in {self.length:,} steps "
            f"({self.frames} frames, {self.bytes / 1024:,.0f} KiB, checkpoint {self.checkpoint})"
        )


def record(folder: RunFolder, checkpoint: Version, file: Path, seed: int = 0) -> Recording:
    """Play one episode without exploration into a GIF; raise ConfigError where it cannot be drawn."""
    image_module()  # say what is missing before playing
    with Player.of(folder, checkpoint, seed, render=True) as player:
        keep = Frames(player.frames_per_second)
        outcome = player.play(0, lambda _: keep.add(player.picture()))
    if not keep.frames:
        raise ConfigError(
            f"{folder.spec().environment.id} shows no pictures; it has no render_mode rgb_array"
        )
    frames, pace = keep.frames, keep.frames_per_second
    write_gif(frames, pace, file)
    while file.stat().st_size > MOST_BYTES and len(frames) > 1:
        frames, pace = frames[::2], pace / 2
        write_gif(frames, pace, file)
    return Recording(
        folder.run,
        str(checkpoint),
        str(file),
        outcome.total_reward,
        outcome.length,
        len(frames),
        file.stat().st_size,
    )


class Frames:
    """Keeps enough frames for a fluent picture and no more, however long the episode."""

    def __init__(self, frames_per_second: float) -> None:
        self._every = max(1, round(frames_per_second / FRAMES_PER_SECOND))
        self._native, self._seen = frames_per_second, 0
        self.frames: list[Array] = []

    @property
    def frames_per_second(self) -> float:
        """At which the kept frames show the episode at its own pace, or faster where it is long."""
        return min(self._native / self._every, FRAMES_PER_SECOND)

    def add(self, frame: Array) -> None:
        if self._seen % self._every == 0:
            self.frames.append(_smaller(frame))
        self._seen += 1
        if len(self.frames) > MAX_FRAMES:  # too long: keep every second one, from here on too
            self.frames = self.frames[::2]
            self._every *= 2


def write_gif(frames: list[Array], frames_per_second: float, file: Path) -> None:
    """Write frames [H, W, 3] as an endless GIF; the last one stays for a second."""
    image = image_module()
    pictures = [image.fromarray(frame).quantize(128, method=image.Quantize.FASTOCTREE) for frame in frames]
    duration = round(1000 / frames_per_second)
    durations = [duration] * (len(pictures) - 1) + [1000]
    try:
        pictures[0].save(
            file, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0, disposal=1
        )
    except OSError as error:
        raise ConfigError(f"the picture {file} cannot be written: {error.strerror or error}") from error


def _smaller(frame: Array) -> Array:
    """A copy no wider than MAX_WIDTH; an environment may draw into the array it gave."""
    step = -(-frame.shape[1] // MAX_WIDTH)
    return np.ascontiguousarray(frame[::step, ::step, :3], dtype=np.uint8).copy()

"""Recorded episodes of a run, and those that wait to be recorded.

PENSTOCK_HOME/recordings/<id>.json         a wish: somebody asked for it, it is not made yet
runs/<run>/recordings/<id>.{gif,json}      the picture and what is to be said of it; only the JSON where it failed
"""

import contextlib
import os
import time
from pathlib import Path

import msgspec

from penstock.errors import Damaged, NotFound, PenstockError
from penstock.loop.evaluate import pinned
from penstock.loop.files import read_json, sync_folder, write_atomically
from penstock.loop.media import record
from penstock.loop.runs import RunFolder
from penstock.model.version import Version

KEPT = 20
"""Recordings of one run, and as many that failed; of more the oldest is let go."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asked for."""

    id: str
    run: str
    checkpoint: str
    seed: int
    at: float


class Recorded(Wish, frozen=True, kw_only=True):
    """What became of it."""

    made_at: float
    total_reward: float | None = None
    length: int = 0
    frames: int = 0
    bytes: int = 0
    reason: str | None = None
    """Why there is no picture."""


class Wishes:
    """Those of all runs that wait; a file each, whole or absent."""

    def __init__(self, home: Path) -> None:
        self._path = home / "recordings"

    def add(self, wish: Wish) -> None:
        """Wish for it; again changes nothing."""
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._path / f"{wish.id}.json", msgspec.json.encode(wish))

    def all(self) -> list[Wish]:
        """Oldest first; one that cannot be read is let go."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._path):
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    with contextlib.suppress(Damaged):
                        found.append(read_json(Path(entry.path), Wish))
        return sorted(found, key=lambda wish: wish.at)

    def read(self, id: str) -> Wish:
        """Raise Damaged where it is not there."""
        return read_json(self._path / f"{id}.json", Wish)

    def remove(self, id: str) -> None:
        (self._path / f"{id}.json").unlink(missing_ok=True)


def recordings_path(folder: RunFolder) -> Path:
    return folder.path / "recordings"


def recorded(folder: RunFolder) -> list[Recorded]:
    """Newest first."""
    found = []
    for path in recordings_path(folder).glob("[!.]*.json"):
        with contextlib.suppress(PenstockError):
            found.append(read_json(path, Recorded))
    return sorted(found, key=lambda one: one.at, reverse=True)


def picture_of(folder: RunFolder, id: str) -> Path:
    """The GIF; raise NotFound."""
    known = [one.id for one in recorded(folder) if one.reason is None]
    path = recordings_path(folder) / f"{id}.gif"
    if id not in known or not path.is_file():
        raise NotFound(
            f"run {folder.run} has no recording {id!r}; list them: penstock recordings {folder.run}"
        )
    return path


def record_wish(folder: RunFolder, wish: Wish) -> Recorded:
    """Play the episode and keep it: the picture first, then what says that it is there."""
    place = _made(folder)
    draft = place / f".{wish.id}.gif"
    version = Version.parse(wish.checkpoint)
    try:
        with pinned(folder, version, wish.id):
            made = record(folder, version, draft, wish.seed)
        draft.replace(place / f"{wish.id}.gif")
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(place)
    told = Recorded(
        **msgspec.structs.asdict(wish), made_at=time.time(), total_reward=made.total_reward, length=made.length,
        frames=made.frames, bytes=made.bytes,
    )  # fmt: skip
    _keep(folder, told)
    return told


def record_failure(folder: RunFolder, wish: Wish, reason: str) -> None:
    _made(folder)
    _keep(folder, Recorded(**msgspec.structs.asdict(wish), made_at=time.time(), reason=reason))


def _made(folder: RunFolder) -> Path:
    place = recordings_path(folder)
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def _keep(folder: RunFolder, told: Recorded) -> None:
    place = recordings_path(folder)
    write_atomically(place / f"{told.id}.json", msgspec.json.encode(told))
    known = recorded(folder)
    good, failed = ([one for one in known if (one.reason is None) is made] for made in (True, False))
    for old in [*good[KEPT:], *failed[KEPT:]]:  # a failure takes no picture's place
        (place / f"{old.id}.json").unlink(missing_ok=True)  # first: what is not told of is not there
        (place / f"{old.id}.gif").unlink(missing_ok=True)

"""What a process that plays tells the server, and the server the browser: facts, and a picture with most of them.

A message is the length of the facts, the length of the picture (4 bytes each, big endian), the facts as JSON and the
picture as JPEG. Sizes are looked at before anything is kept: the process runs code of others.
"""

import math
import struct
from collections.abc import Iterator
from typing import Literal

import msgspec

from penstock.errors import Damaged

HEADER = struct.Struct(">II")
MOST_FACTS = 16 << 10
MOST_PICTURE = 1 << 20
KEPT_RETURNS = 20
MOST_WORDS = 2_000

State = Literal["waiting", "playing", "failed"]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How the play stands."""

    state: State
    words: str = ""
    """What it waits for, or why it failed."""
    version: str = ""
    """Of the policy that plays."""
    environment_steps: int = 0
    """Steps of training behind that policy."""
    episode: int = 0
    """Counts from 1."""
    step: int = 0
    total_reward: float | None = 0.0
    """The return so far; None where it is no number."""
    ended: bool = False
    returns: tuple[float | None, ...] = ()
    """Of the last episodes with this source, oldest first."""
    width: int = 0
    height: int = 0


def number(value: float) -> float | None:
    """As JSON can say it."""
    return value if math.isfinite(value) else None


def encode(shown: Shown, picture: bytes = b"") -> bytes:
    """One message; a picture that is too large is left out, with the reason."""
    if len(picture) > MOST_PICTURE:
        size = f"{len(picture):,} bytes; {MOST_PICTURE:,} can be shown"
        shown, picture = msgspec.structs.replace(shown, words=f"a picture has {size}"), b""
    if len(shown.words) > MOST_WORDS:
        shown = msgspec.structs.replace(shown, words=shown.words[:MOST_WORDS] + "…")
    facts = msgspec.json.encode(shown)
    return HEADER.pack(len(facts), len(picture)) + facts + picture


class Messages:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, content: bytes) -> Iterator[tuple[Shown, bytes]]:
        """Each whole message: its facts, and all of its bytes; raise Damaged for what is none."""
        self._rest += content
        while len(self._rest) >= HEADER.size:
            facts, picture = HEADER.unpack_from(self._rest)
            if facts > MOST_FACTS or picture > MOST_PICTURE:
                raise Damaged(f"a picture claims {facts:,} + {picture:,} bytes, more than there may be")
            size = HEADER.size + facts + picture
            if len(self._rest) < size:
                return
            whole = bytes(self._rest[:size])
            del self._rest[:size]
            yield _facts(whole[HEADER.size : HEADER.size + facts]), whole


def _facts(content: bytes) -> Shown:
    try:
        return msgspec.json.decode(content, type=Shown)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"what came with a picture is damaged: {error}") from error

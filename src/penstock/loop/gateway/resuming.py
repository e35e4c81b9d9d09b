"""What a gateway takes up by itself when it starts: acknowledged data that nobody packed, learners that nobody parks.

Reads from: `runs`, `experiences.<run>`, the end of `trajectories.<run>`.
"""

from collections.abc import Callable, Iterable

from penstock.errors import PenstockError, Unavailable
from penstock.logs import Log
from penstock.loop.gateway.rounds import last_rollout
from penstock.model import topics
from penstock.stream.base import Stream

RETRY_SECONDS = 5.0


def has_unpacked(stream: Stream, run: str) -> bool:
    """Whether trajectories lie behind what the newest rollout packed."""
    end = stream.end(topics.trajectories(run))
    if not any(end.values()):
        return False
    newest = last_rollout(stream, run)
    packed = {} if newest is None or newest.packed is None else newest.packed.position
    return any(offset > packed.get(partition, 0) for partition, offset in end.items())


def take_up(
    find: Callable[[], Iterable[str]], attach: Callable[[str], None], ended: Callable[[float], bool]
) -> None:
    """Attach all that are found; while the log is away or every place is taken, try again until `ended`."""
    left = _tried(find, ended)
    while left:
        left = [policy for policy in left if not _attached(policy, attach)]
        if left and ended(RETRY_SECONDS):
            return


def _tried(find: Callable[[], Iterable[str]], ended: Callable[[float], bool]) -> list[str]:
    while True:
        try:
            return list(find())
        except Unavailable:
            if ended(RETRY_SECONDS):
                return []


def _attached(policy: str, attach: Callable[[str], None]) -> bool:
    """Whether it need not be tried again."""
    try:
        attach(policy)
    except Unavailable:
        return False
    except PenstockError as error:  # another gateway's, or damaged: whoever calls is told
        Log(process="gateway").warning("policy_not_taken_up", policy=policy, reason=str(error))
    return True

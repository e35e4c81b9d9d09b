"""Playing for whoever watches: episodes without exploration, at their own speed, as pictures with facts.

Reads from: `model_updates.<run>` or a checkpoint. Writes to: a pipe, until nobody reads it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Protocol

import msgspec

from penstock.errors import ConfigError, PenstockError
from penstock.loop.checkpoint import load_policy
from penstock.loop.evaluate import Moment, Player
from penstock.loop.pacing import Pace
from penstock.loop.pictures import image_module, jpeg
from penstock.loop.policies import Subscriber
from penstock.loop.runs import RunFolder
from penstock.loop.watch_frames import KEPT_RETURNS, Shown, encode, number
from penstock.model.policy import Policy
from penstock.model.version import Version
from penstock.stream.base import Stream

LIVE = "live"
"""The source that follows what the run learns; others are versions of checkpoints."""
SIGN_SECONDS = 1.0
"""A play that shows nothing for so long gives a sign of life: steps between pictures may be slow."""
REST_SECONDS = 0.7
"""How long the end of an episode stays."""
FIRST_SECONDS = 1.0
"""How long the log is asked for a policy before a checkpoint will do."""

Send = Callable[[bytes], None]


class Source(Protocol):
    """Where policies come from."""

    def first(self, wait: Callable[[str], None]) -> Policy:
        """The policy to begin with; calls `wait` with what it waits for, again and again."""

    def newer(self) -> Policy | None:
        """A newer one, if there is any now."""


class Checkpointed:
    """Always the same."""

    def __init__(self, folder: RunFolder, version: Version) -> None:
        self._policy = load_policy(folder.checkpoint_path(version))

    def first(self, wait: Callable[[str], None]) -> Policy:
        return self._policy

    def newer(self) -> Policy | None:
        return None


class Newest:
    """What the run has learned last: from its log, or of its newest checkpoint where the log has none any more."""

    def __init__(self, folder: RunFolder, stream: Stream) -> None:
        self._folder, self._subscriber = folder, Subscriber(stream, folder.run)

    def first(self, wait: Callable[[str], None]) -> Policy:
        until = time.monotonic() + FIRST_SECONDS
        while True:
            self._subscriber.poll(0.25)
            while self._subscriber.poll(0.0):
                pass  # the newest of many
            if self._subscriber.newest is not None:
                return self._subscriber.newest
            if time.monotonic() > until and (kept := self._folder.checkpoints()):
                return load_policy(self._folder.checkpoint_path(kept[0]))
            wait(f"{self._folder.run} has no policy yet; its first update makes one")

    def newer(self) -> Policy | None:
        newest = None
        while self._subscriber.poll(0.0):
            newest = self._subscriber.newest
        return newest

    def close(self) -> None:
        self._subscriber.close()


@contextmanager
def source_of(folder: RunFolder, which: str, open_stream: Callable[[], Stream]) -> Iterator[Source]:
    """`live` or EPOCH.STEP; raise NotFound where there is no such checkpoint."""
    if which != LIVE:
        yield Checkpointed(folder, folder.choose(which))
        return
    stream = open_stream()
    try:
        with closing(Newest(folder, stream)) as source:
            yield source
    finally:
        stream.close()


def watch(folder: RunFolder, which: str, open_stream: Callable[[], Stream], send: Send) -> None:
    """Play until `send` raises BrokenPipeError; what goes wrong is sent too, then raised."""
    try:
        image_module()  # say what is missing before playing
        with source_of(folder, which, open_stream) as source:
            Show(folder, source, send).run()
    except BrokenPipeError:
        return
    except PenstockError as error:
        send(encode(Shown(state="failed", words=str(error))))
        raise


class Show:
    """Episode after episode."""

    def __init__(self, folder: RunFolder, source: Source, send: Send) -> None:
        self._environment, self._seed = folder.spec().environment, folder.spec().seed
        self._source, self._send = source, send
        self._returns: deque[float | None] = deque(maxlen=KEPT_RETURNS)
        self._sent_at = float("-inf")
        self._told = Shown(state="waiting")

    def run(self) -> None:
        policy = self._source.first(self._wait)
        self._wait("the environment is being made")
        with Player(policy, self._environment, self._seed, render=True) as player:
            self._pace = Pace(player.frames_per_second)
            for episode in self._episodes():
                if (newer := self._source.newer()) is not None:
                    player.load(newer)
                self._play(player, episode)

    def _episodes(self) -> Iterator[int]:
        episode = 0
        while True:
            yield episode
            episode += 1

    def _play(self, player: Player, episode: int) -> None:
        facts = player.facts
        base = Shown(
            state="playing",
            version=str(facts.version),
            environment_steps=facts.environment_steps,
            episode=episode + 1,
        )

        def show(moment: Moment) -> None:
            if moment.ended:
                self._returns.append(number(moment.total_reward))
            told = msgspec.structs.replace(
                base,
                step=moment.step,
                total_reward=number(moment.total_reward),
                ended=moment.ended,
                returns=tuple(self._returns),
            )
            if self._pace.shows(moment.step, moment.ended):
                self._picture(player, told)
            elif time.monotonic() - self._sent_at > SIGN_SECONDS:
                self._say(told)

        player.play(episode, show)
        time.sleep(REST_SECONDS)

    def _picture(self, player: Player, told: Shown) -> None:
        try:
            picture, width, height = jpeg(player.picture())
        except (ValueError, OSError) as error:
            raise ConfigError(f"{self._environment.id} drew what is no picture: {error}") from error
        self._pace.wait(told.step)
        self._say(msgspec.structs.replace(told, width=width, height=height), picture)

    def _wait(self, words: str) -> None:
        """Say what is waited for, at most once a second."""
        if time.monotonic() - self._sent_at > SIGN_SECONDS or words != self._told.words:
            self._say(Shown(state="waiting", words=words))

    def _say(self, told: Shown, picture: bytes = b"") -> None:
        self._send(encode(told, picture))
        self._told, self._sent_at = told, time.monotonic()

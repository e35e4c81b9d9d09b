"""What can be had again: versions of the line, where to begin, and what is gone."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError, NotFound
from penstock.loop.recorded import Past, missing_steps, past_of, told
from penstock.model import topics
from penstock.model.codec import Schema, encode
from penstock.model.history import Claim, Entry, Update, Used
from penstock.model.rollout import Block, Hello, Rollout, RolloutFacts
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.version import Version
from penstock.stream.embedded import EmbeddedStream

SPACES = Spaces(
    ObservationLayout({"observations": Column((4,), "<f4")}, (Leaf((), "box", "observations", size=4),)),
    ActionLayout("discrete", (2,), (0,)),
)


def update(epoch: int, step: int, slots: int = 1) -> Update:
    used = tuple(Used(slot, step - 1, Version(epoch, step - 1)) for slot in range(slots))
    return Update(Version(epoch, step), used, (), {0: 0}, {}, f"hash-{step}", step * 10, {0: 0}, 0.0)


def run_of(epochs: dict[int, tuple[int, int]]) -> list[Entry]:
    """A history: epoch → the step it went on from and the last it made."""
    entries: list[Entry] = []
    for epoch, (base, last) in epochs.items():
        entries += [Claim(epoch, base, 0.0), *(update(epoch, step) for step in range(base + 1, last + 1))]
    return entries


def versions(*names: str) -> list[Version]:
    return [Version.parse(name) for name in names]


def past(epochs: dict[int, tuple[int, int]], *checkpoints: str, begins: bool = True) -> Past:
    return past_of("r", run_of(epochs), versions(*checkpoints), begins)


RESUMED = past({1: (0, 12), 2: (8, 20)}, "1.4", "1.8", "1.12", "2.16", "2.20")
"""A learner that was killed at 1.12 and went on from 1.8."""


def test_a_step_is_enough_to_name_a_version():
    assert RESUMED.find("5") == (1, 5)
    assert RESUMED.find("12") == (2, 12)
    assert RESUMED.find("2.12") == (2, 12)
    assert RESUMED.find("newest") == (2, 20)


def test_the_version_a_learner_went_on_from_has_its_epochs_name_too():
    assert RESUMED.find("2.8") == (1, 8)


def test_step_0_is_a_version():
    assert RESUMED.find("0") == (1, 0)
    assert RESUMED.find("1.0") == (1, 0)
    assert RESUMED.find("0.0") == (1, 0)


def test_best_is_the_newest_where_none_is_known():
    assert RESUMED.find("best") == (2, 20)
    assert RESUMED.find("best", Version(1, 4)) == (1, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.12", "off the line of r, which has 2.12 at that step"),
        ("3.12", "off the line"),
        ("21", "has learned up to version 2.20, not yet to 21"),
        ("2.21", "not yet to 2.21"),
    ],
)
def test_versions_that_never_were_or_were_replaced_are_refused(text: str, words: str):
    with pytest.raises(NotFound, match=words):
        RESUMED.find(text)


@pytest.mark.parametrize("text", ["", "x", "1.", ".5", "1.2.3", "-1", "1e3", "٣", "9" * 30])
def test_what_is_no_version_is_refused_with_an_example(text: str):
    with pytest.raises(ConfigError, match=r"write EPOCH.STEP, as in 2.20, or just the step, as in 20"):
        RESUMED.find(text)


def test_a_run_without_updates_has_nothing_to_go_back_to():
    with pytest.raises(NotFound, match="no update yet"):
        past({1: (0, 0)}).find("0")


def test_one_begins_at_the_nearest_checkpoint_of_the_line_and_at_last_at_the_beginning():
    assert RESUMED.starts(18) == [*versions("2.16", "1.8", "1.4"), None]
    assert RESUMED.starts(16) == [*versions("2.16", "1.8", "1.4"), None]
    assert RESUMED.starts(3) == [None]
    assert RESUMED.starts(0) == [None]


def test_a_history_that_lost_its_beginning_is_of_use_from_its_first_update_on():
    late = past_of("r", [update(1, step) for step in range(7, 11)], versions("1.3", "1.6", "1.9"), True)
    assert late.starts(8) == versions("1.6")
    assert late.starts(3) == versions("1.3")
    assert late.starts(5) == []
    assert late.at(5) is None
    with pytest.raises(NotFound, match="no longer holds version 5"):
        late.find("5")


def test_a_fork_begins_with_its_first_checkpoint_and_not_with_its_seed():
    fork = past({1: (6, 9)}, "0.6", begins=False)
    assert fork.starts(8) == versions("0.6")
    assert fork.find("6") == (0, 6)
    with pytest.raises(NotFound, match=r"r is a fork and begins at 0\.6; 5 is its origin's"):
        fork.find("5")
    assert fork.find("1.6") == (0, 6)
    assert fork.had(set()) == [(Version(0, 6), Version(1, 9))]
    at_once = past({1: (0, 3)}, "0.0", begins=False)
    assert at_once.starts(2) == versions("0.0")


def test_all_of_a_whole_log_can_be_had():
    assert told(RESUMED.had(set())) == "versions 1.0 to 2.20 can be had"


def test_a_gap_is_bridged_by_the_next_checkpoint():
    # what is gone in front of a checkpoint that is kept does no harm behind it
    assert told(RESUMED.had({1, 2, 3})) == "versions 1.0 and 1.4 to 2.20 can be had"
    assert told(RESUMED.had({6})) == "versions 1.0 to 1.5 and 1.8 to 2.20 can be had"
    assert told(RESUMED.had({6, 18})) == "versions 1.0 to 1.5, 1.8 to 2.17 and 2.20 can be had"


def test_an_eaten_log_leaves_the_checkpoints():
    only = past({1: (0, 9)}, "1.9", begins=False)
    assert told(only.had(set(range(1, 10)))) == "version 1.9 can be had"
    assert told(past({1: (0, 9)}, begins=False).had(set())) == "no version of it can be had any more"


def test_updates_between_two_steps():
    assert [item.version for item in RESUMED.between(7, 10)] == versions("1.8", "2.9", "2.10")
    assert RESUMED.update(9) is not None
    assert RESUMED.update(0) is None


def rollout(slot: int, round: int, version: Version) -> bytearray:
    block = Block.allocate(SPACES, 2, 1)
    facts = RolloutFacts("r", slot, round, "i", version, 2, 1, (), (), {}, 0.0)
    return Rollout(facts, block.columns()).encode()


def test_an_update_is_missing_where_one_of_its_rollouts_is(tmp_path: Path):
    stream = EmbeddedStream(tmp_path)
    writer = stream.writer(topics.experiences("r"))
    writer.write("0", encode(Schema.HELLO, Hello("r", 0, "i", SPACES, 1, "here")))
    for slot, round, version in [(0, 0, 0), (1, 0, 0), (0, 1, 1), (0, 2, 1), (1, 2, 2), (0, 3, 3), (1, 3, 3)]:
        writer.write(str(slot), rollout(slot, round, Version(1, version)))
    updates = [update(1, step, slots=2) for step in range(1, 5)]
    # of update 2 slot 1 is missing; of update 3 slot 0 is there, but another version made it
    assert missing_steps(stream, "r", updates, None) == {2, 3}
    assert missing_steps(stream, "r", updates, {0: 2}) == {1, 2, 3}
    assert missing_steps(stream, "r", [], None) == set()
    stream.close()

"""Who counts: the line of updates that led to the newest version."""

from penstock.model.codec import open_frame
from penstock.model.history import Claim, Entry, Update, Used, decode_entry, encode_entry, lineage
from penstock.model.version import Version


def update(epoch: int, step: int) -> Update:
    used = (Used(0, step - 1, Version(epoch, step - 1)),)
    return Update(Version(epoch, step), used, (), {0: 0}, {}, f"hash-{epoch}.{step}", step * 10, {0: 0}, 0.0)


def versions(entries: list[Entry]) -> list[str]:
    return [str(item.version) for item in lineage(entries).updates]


def test_updates_of_one_learner_are_the_line():
    assert versions([Claim(1, 0, 0.0), update(1, 1), update(1, 2)]) == ["1.1", "1.2"]


def test_a_new_learner_replaces_what_came_after_its_base():
    entries: list[Entry] = [Claim(1, 0, 0.0), update(1, 1), update(1, 2), Claim(2, 1, 0.0), update(2, 2)]
    assert versions(entries) == ["1.1", "2.2"]


def test_what_a_replaced_learner_still_writes_changes_nothing():
    entries: list[Entry] = [
        Claim(1, 0, 0.0),
        update(1, 1),
        Claim(2, 1, 0.0),
        update(1, 2),
        update(2, 2),
        update(1, 3),
    ]
    assert versions(entries) == ["1.1", "2.2"]


def test_checkpoints_off_the_line_are_recognised():
    line = lineage([Claim(1, 0, 0.0), update(1, 1), update(1, 2), Claim(2, 1, 0.0), update(2, 2)])
    assert line.holds(Version(1, 1))
    assert line.holds(Version(2, 2))
    assert not line.holds(Version(1, 2))


def test_a_base_that_lies_below_an_older_epoch_cuts_that_too():
    entries: list[Entry] = [
        Claim(1, 0, 0.0), update(1, 1), update(1, 2), Claim(2, 2, 0.0), update(2, 3), Claim(3, 1, 0.0), update(3, 2)
    ]  # fmt: skip
    line = lineage(entries)
    assert [str(item.version) for item in line.updates] == ["1.1", "3.2"]
    assert not line.holds(Version(2, 3))
    assert not line.holds(Version(1, 2))


def test_updates_to_make_again_are_those_behind_the_checkpoint():
    line = lineage([Claim(1, 0, 0.0), update(1, 1), update(1, 2), update(1, 3)])
    assert [item.version.step for item in line.after(1)] == [2, 3]


def test_a_history_whose_beginning_was_let_go_is_still_read():
    assert versions([update(3, 70), update(3, 71), Claim(4, 71, 0.0), update(4, 72)]) == [
        "3.70",
        "3.71",
        "4.72",
    ]


def test_entries_survive_the_wire():
    for entry in (Claim(3, 7, 1.5), update(3, 8)):
        assert decode_entry(open_frame(encode_entry(entry))) == entry

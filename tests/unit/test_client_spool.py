"""The spool: whole or absent, bounded, in order, and one owner for every source."""

import os
from pathlib import Path

import pytest

from penstock.client.spool import Spool
from penstock.errors import Damaged


def drained(spool: Spool) -> list[tuple[str, int, bytes]]:
    out = []
    while batch := spool.oldest():
        out += [(batch.source, sequence, content) for sequence, content in spool.read(batch)]
        spool.keep(batch, [])
    return out


def test_what_goes_in_comes_out_in_order_and_leaves_nothing(tmp_path: Path):
    spool = Spool(tmp_path / "spool", 1 << 20)
    spool.put([(1, b"one"), (2, b"")])
    spool.put([(3, b"three")])
    assert spool.trajectories == 3
    assert drained(spool) == [(spool.source, 1, b"one"), (spool.source, 2, b""), (spool.source, 3, b"three")]
    spool.close()
    assert list((tmp_path / "spool").iterdir()) == []


def test_nothing_touches_the_disk_until_something_waits(tmp_path: Path):
    spool = Spool(tmp_path / "spool", 1 << 20)
    assert spool.adopt() == 0
    spool.close()
    assert not (tmp_path / "spool").exists()


def test_a_full_spool_drops_the_oldest_and_says_how_many(tmp_path: Path):
    spool = Spool(tmp_path, 8192)  # two blocks of the disk
    assert spool.put([(1, b"a" * 400), (2, b"b")]) == 0
    assert spool.put([(3, b"c" * 400)]) == 0
    assert spool.put([(4, b"d" * 400)]) == 2
    assert (spool.bytes, spool.trajectories) == (8192, 2)
    assert [sequence for _, sequence, _ in drained(spool)] == [3, 4]


def test_what_is_delivered_in_part_waits_in_part(tmp_path: Path):
    spool = Spool(tmp_path, 1 << 20)
    spool.put([(1, b"one"), (2, b"two")])
    batch = spool.oldest()
    assert batch is not None
    spool.keep(batch, [(2, b"two")])
    assert spool.trajectories == 1
    assert [sequence for _, sequence, _ in drained(spool)] == [2]


def test_a_dead_process_leaves_its_source_to_the_next(tmp_path: Path):
    pid = os.fork()
    if pid == 0:
        spool = Spool(tmp_path, 1 << 20)
        spool.put([(7, b"left")])
        os._exit(0)
    os.waitpid(pid, 0)
    heir = Spool(tmp_path, 1 << 20)
    heir.put([(1, b"own")])
    heir.adopt()
    got = drained(heir)
    assert [(sequence, content) for _, sequence, content in got] == [(7, b"left"), (1, b"own")]
    assert (heir.trajectories, heir.bytes) == (0, 0)
    assert got[0][0] != heir.source == got[1][0]
    heir.close()
    assert list(tmp_path.iterdir()) == []


def test_a_living_process_keeps_its_source(tmp_path: Path):
    owner, other = Spool(tmp_path, 1 << 20), Spool(tmp_path, 1 << 20)
    owner.put([(1, b"mine")])
    other.adopt()
    assert other.oldest() is None
    owner.close()
    other.adopt()
    assert [content for _, _, content in drained(other)] == [b"mine"]


def test_adopting_stays_within_bounds(tmp_path: Path):
    for _ in range(3):
        dead = Spool(tmp_path, 4096)
        dead.put([(1, b"x" * 500)])
        dead.close()
    heir = Spool(tmp_path, 4096)
    assert heir.adopt() == 2
    assert heir.trajectories == 1
    heir.close()
    assert len(list(tmp_path.rglob("*.batch"))) == 1


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"PSB1" + bytes(4) + b[8:], lambda b: b""])
def test_a_damaged_batch_is_seen(damage: object, tmp_path: Path):
    spool = Spool(tmp_path, 1 << 20)
    spool.put([(1, b"content")])
    batch = spool.oldest()
    assert batch is not None
    batch.path.write_bytes(damage(batch.path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(Damaged):
        spool.read(batch)


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(NotADirectoryError):
        Spool(tmp_path / "file", 1 << 20).put([(1, b"x")])


def test_foreign_files_are_left_alone(tmp_path: Path):
    (tmp_path / ("a" * 32)).mkdir()
    (tmp_path / ("a" * 32) / "notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    spool = Spool(tmp_path, 1 << 20)
    spool.adopt()
    assert spool.oldest() is None
    assert (tmp_path / ("a" * 32) / "notes.txt").read_text() == "mine"


def test_a_check_leaves_nothing_and_lets_others_be(tmp_path: Path):
    spool = Spool(tmp_path / "spool", 1 << 20)
    spool.check()
    assert list((tmp_path / "spool").iterdir()) == []
    spool.put([(1, b"x")])
    spool.check()
    assert spool.trajectories == 1
    other = Spool(tmp_path / "spool", 1 << 20)
    other.adopt()
    assert other.oldest() is None, "the owner still holds its lock"


def test_after_the_end_the_totals_still_say_what_is_left(tmp_path: Path):
    spool = Spool(tmp_path, 1 << 20)
    spool.put([(1, b"x"), (2, b"y")])
    spool.close()
    assert (spool.trajectories, spool.bytes, spool.oldest()) == (2, 4096, None)

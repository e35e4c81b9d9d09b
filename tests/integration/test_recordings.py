"""Recorded episodes: asked for once, made in a child, listed, downloaded, bounded, and whole or absent."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest
from PIL import Image

from penstock.control import commander
from penstock.loop import recordings
from penstock.loop.recordings import Recorded, Wish, Wishes, recorded
from penstock.loop.runs import RunFolder
from tests.integration.serving import Served, served, wait_for
from tests.saved import checkpoint, saved_run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    pole = saved_run(home, "pole", "CartPole-v1")
    checkpoint(pole, 1, -5.0)
    checkpoint(pole, 2, 5.0)
    checkpoint(saved_run(home, "blind", "penstock.testing.environments:Blind"), 1)
    saved_run(home, "empty", "CartPole-v1")
    Wishes(home).add(
        Wish(id="ab12", run="pole", checkpoint="1.1", seed=3, at=1.0)
    )  # of a server that was killed
    with served(home) as running:
        wait_for(lambda: len(running.control.reads.runs(_all()).items) == 3, "the runs")
        yield running


@pytest.fixture
def client(server: Served) -> Iterator[httpx2.Client]:
    with server.client() as asked:
        yield asked


def made(client: httpx2.Client, run: str, id: str) -> Any:
    """What became of a recording."""

    def look() -> Any:
        return next(
            (
                one
                for one in client.get(f"/runs/{run}/recordings").json()
                if one["id"] == id and one["state"] != "queued"
            ),
            None,
        )

    return wait_for(look, "the recording", 120)


def test_an_episode_is_recorded_listed_and_downloaded(client: httpx2.Client) -> None:
    asked = client.post("/runs/pole/recordings", json={"checkpoint": "1.1", "seed": 7})
    assert asked.status_code == 202
    assert asked.headers["location"] == "/api/v1/runs/pole/recordings"
    id = asked.json()["command"]["id"]
    found = made(client, "pole", id)
    assert (found["state"], found["checkpoint"], found["seed"]) == ("done", "1.1", 7)
    assert found["total_reward"] == found["length"] > 5
    picture = client.get(f"/runs/pole/recordings/{id}/download")
    assert picture.headers["content-type"] == "image/gif"
    assert "attachment" in picture.headers["content-disposition"]
    assert len(picture.content) == found["bytes"]
    with Image.open(io.BytesIO(picture.content)) as gif:
        assert gif.n_frames == found["frames"] > 3  # type: ignore[attr-defined]
    trail = client.get("/commands", params={"run": "pole", "verb": "record"}).json()["items"]
    assert trail[0]["who"] == "owner"


def test_the_same_key_is_one_recording(client: httpx2.Client) -> None:
    key = {"Idempotency-Key": "one-and-the-same"}
    ids = {
        client.post("/runs/pole/recordings", json={"checkpoint": "1.1"}, headers=key).json()["command"]["id"]
        for _ in range(3)
    }
    (id,) = ids
    made(client, "pole", id)
    again = client.post("/runs/pole/recordings", json={"checkpoint": "1.1"}, headers=key)
    assert again.json()["command"]["id"] == id
    assert sum(one["id"] == id for one in client.get("/runs/pole/recordings").json()) == 1
    other = client.post("/runs/pole/recordings", json={"checkpoint": "1.2"}, headers=key)
    assert other.status_code == 409


def test_a_wish_that_a_killed_server_left_is_fulfilled(client: httpx2.Client) -> None:
    assert made(client, "pole", "ab12")["state"] == "done"


def test_an_environment_without_pictures_fails_with_a_sentence(client: httpx2.Client) -> None:
    id = client.post("/runs/blind/recordings").json()["command"]["id"]
    found = made(client, "blind", id)
    assert found["state"] == "failed"
    assert "cannot draw itself" in found["reason"]
    assert client.get(f"/runs/blind/recordings/{id}/download").status_code == 404


@pytest.mark.parametrize(
    ("run", "body", "status", "words"),
    [
        ("nowhere", {}, 404, "there is no run"),
        ("empty", {}, 404, "has no checkpoint yet"),
        ("pole", {"checkpoint": "9.9"}, 404, "has no checkpoint 9.9"),
        ("pole", {"checkpoint": "../.."}, 422, "is not a version"),
        ("pole", {"seed": -1}, 422, "seed"),
        ("pole", {"sead": 1}, 422, "sead"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    client: httpx2.Client, run: str, body: Any, status: int, words: str
) -> None:
    refused = client.post(f"/runs/{run}/recordings", json=body)
    assert refused.status_code == status
    assert words in refused.text


def test_only_so_many_wait(server: Served, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commander, "MOST_WAITING", 0)
    refused = client.post("/runs/pole/recordings", json={"checkpoint": "1.1"})
    assert refused.status_code == 503
    assert "recordings wait" in refused.json()["detail"]


@pytest.mark.parametrize("id", ["../../spec", "..%2f..%2fspec", "ffff", "g", "a" * 100])
def test_no_other_file_can_be_had(client: httpx2.Client, id: str) -> None:
    assert client.get(f"/runs/pole/recordings/{id}/download").status_code in (404, 422)


def test_the_oldest_make_room(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "KEPT", 2)
    folder = saved_run(server.control.home, "many", "CartPole-v1")
    for number in range(4):
        wish = Wish(id=f"{number:04}", run="many", checkpoint="1.1", seed=0, at=float(number))
        (folder.path / "recordings").mkdir(exist_ok=True)
        (folder.path / "recordings" / f"{wish.id}.gif").write_bytes(b"GIF89a")
        recordings.record_failure(folder, wish, "made for a test")
    assert [one.id for one in recorded(folder)] == ["0003", "0002"]
    assert sorted(path.name for path in (folder.path / "recordings").glob("*.gif")) == [
        "0002.gif",
        "0003.gif",
    ]


def test_failures_take_no_pictures_place(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "KEPT", 2)
    folder = saved_run(server.control.home, "unlucky", "CartPole-v1")
    (folder.path / "recordings").mkdir(exist_ok=True)
    good = Recorded(id="good", run="unlucky", checkpoint="1.1", seed=0, at=0.0, made_at=0.0)
    (folder.path / "recordings/good.json").write_bytes(msgspec.json.encode(good))
    for number in range(4):
        wish = Wish(id=f"{number:04}", run="unlucky", checkpoint="1.1", seed=0, at=1.0 + number)
        recordings.record_failure(folder, wish, "made for a test")
    assert [one.id for one in recorded(folder)] == ["0003", "0002", "good"]


def test_a_recording_that_breaks_off_leaves_nothing(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.open(server.control.home, "pole")
    before = set((folder.path / "recordings").iterdir()) if (folder.path / "recordings").exists() else set()

    def breaks(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("penstock.loop.media.write_gif", breaks)
    with pytest.raises(OSError, match="no space"):
        recordings.record_wish(folder, Wish(id="dead", run="pole", checkpoint="1.1", seed=0, at=1.0))
    assert set((folder.path / "recordings").iterdir()) == before
    assert not list(folder.checkpoints_path.glob("pinned*"))


def test_the_command_line_has_it_played_by_the_server(server: Served, tmp_path: Any) -> None:
    import os

    environment = {
        **os.environ, "PENSTOCK_SERVER": server.address, "PENSTOCK_TOKEN": server.token,
        "PENSTOCK_HOME": str(server.control.home),
    }  # fmt: skip
    words = [
        sys.executable,
        "-m",
        "penstock",
        "play",
        "pole",
        "--gif",
        str(tmp_path / "a.gif"),
        "--checkpoint",
        "1.1",
    ]
    done = subprocess.run([*words, "--json"], env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (tmp_path / "a.gif").read_bytes()[:6] == b"GIF89a"
    words = [sys.executable, "-m", "penstock", "recordings", "pole"]
    listed = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert told["id"][:12] in listed.stdout


def _all() -> Any:
    from penstock.lineage.rows import RunQuery

    return RunQuery(limit=50)

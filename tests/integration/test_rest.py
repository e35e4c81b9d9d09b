"""REST against a real server: a run from its start to its deletion, and every kind of bad request."""

import io
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.server.rates import Limits
from tests.integration.serving import GENEROUS, QUICK, Served, served, wait_for

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that accepts runs and starts none."""
    with served(tmp_path_factory.mktemp("idle")) as running:
        yield running


@pytest.fixture(scope="module")
def client(idle: Served) -> Iterator[httpx2.Client]:
    with idle.client() as made:
        yield made


@pytest.fixture(scope="module")
def run(client: httpx2.Client) -> str:
    started = client.post("/runs", json=QUICK | {"name": "waiting", "tags": ["first"], "note": "a note"})
    assert started.status_code == 201, started.text
    return str(started.json()["run"])


def problem(answer: httpx2.Response, status: int, kind: str) -> dict[str, Any]:
    """A whole problem, as RFC 9457 has it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["type"] == f"/problems/{kind}"
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    assert found["instance"] == answer.request.url.path
    assert found["request"] == answer.headers["x-request-id"]
    return found


# -- starting -------------------------------------------------------------------------------------


def test_a_start_answers_with_the_run_and_where_it_is(client: httpx2.Client) -> None:
    started = client.post("/runs", json={"environment": "CartPole-v1"})
    assert started.status_code == 201
    body = started.json()
    assert body["environment"] == "CartPole-v1"
    assert body["state"] == "pending"
    assert started.headers["location"] == f"/api/v1/runs/{body['run']}"
    assert client.get(f"/runs/{body['run']}").json()["run"] == body["run"]


def test_several_seeds_are_a_group(client: httpx2.Client) -> None:
    started = client.post("/runs", json=QUICK | {"seeds": 3, "name": "swarm"})
    assert started.status_code == 201
    body = started.json()
    assert len({run["seed"] for run in body["runs"]}) == 3
    group = client.get(started.headers["location"].removeprefix("/api/v1")).json()
    assert {run["run"] for run in group["items"]} == {run["run"] for run in body["runs"]}


def test_the_same_key_has_one_effect_and_one_answer(client: httpx2.Client) -> None:
    first = client.post("/runs", json=QUICK, headers={"Idempotency-Key": "start-1"})
    again = client.post("/runs", json=QUICK, headers={"Idempotency-Key": "start-1"})
    assert first.json()["run"] == again.json()["run"]
    assert first.headers["location"] == again.headers["location"]
    other = client.post("/runs", json=QUICK | {"seed": 7}, headers={"Idempotency-Key": "start-1"})
    assert "Idempotency-Key" in problem(other, 409, "conflict")["detail"]


def test_a_key_holds_for_every_verb(client: httpx2.Client, run: str) -> None:
    key = {"Idempotency-Key": "labels-1"}
    first = client.patch(f"/runs/{run}", json={"note": "again"}, headers=key)
    again = client.patch(f"/runs/{run}", json={"note": "again"}, headers=key)
    assert first.status_code == again.status_code == 202
    assert first.json()["command"] == again.json()["command"]
    assert first.headers["location"] == f"/api/v1/runs/{run}"


def test_many_at_once_with_one_key_start_one_run(idle: Served) -> None:
    found: list[str] = []

    def ask() -> None:
        with idle.client() as client:
            answer = client.post("/runs", json=QUICK, headers={"Idempotency-Key": "race"})
            assert answer.status_code == 201, answer.text
            found.append(answer.json()["run"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


# -- reading --------------------------------------------------------------------------------------


def test_a_run_that_has_not_changed_is_not_sent_again(client: httpx2.Client, run: str) -> None:
    first = client.get(f"/runs/{run}")
    tag = first.headers["etag"]
    assert tag == f'"{first.json()["revision"]}"'
    unchanged = client.get(f"/runs/{run}", headers={"If-None-Match": f'"x", W/{tag}'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["etag"] == tag
    client.patch(f"/runs/{run}", json={"note": f"changed at {time.time()}"})
    changed = client.get(f"/runs/{run}", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_a_change_of_something_that_changed_meanwhile_is_refused(client: httpx2.Client, run: str) -> None:
    tag = client.get(f"/runs/{run}").headers["etag"]
    assert client.patch(f"/runs/{run}", json={"note": "one"}, headers={"If-Match": tag}).status_code == 202
    stale = client.patch(f"/runs/{run}", json={"note": "two"}, headers={"If-Match": tag})
    assert "look again" in problem(stale, 412, "changed")["detail"]
    problem(client.delete(f"/runs/{run}", headers={"If-Match": '"0"'}), 412, "changed")
    assert client.patch(f"/runs/{run}", json={"note": "three"}, headers={"If-Match": "*"}).status_code == 202


def test_pages_hold_every_run_once(client: httpx2.Client, run: str) -> None:
    for number in range(5):
        client.post("/runs", json=QUICK | {"name": f"page-{number}", "project": "paged"})
    seen, cursor = [], None
    while True:
        page = client.get(
            "/runs",
            params={"project": "paged", "limit": 2, "sort": "run"} | ({"cursor": cursor} if cursor else {}),
        ).json()
        seen += [item["run"] for item in page["items"]]
        if (cursor := page["next"]) is None:
            break
        assert len(page["items"]) == 2
    assert sorted(seen) == [f"page-{number}" for number in range(5)]


@pytest.mark.parametrize(
    "path",
    ["/server", "/ready", "/runs", "/runs/waiting", "/runs/waiting/spec", "/runs/waiting/metrics",
     "/runs/waiting/actors",
     "/runs/waiting/checkpoints", "/runs/waiting/logs", "/runs/waiting/events", "/runs/waiting/states",
     "/runs/waiting/evaluations", "/compare?run=waiting", "/commands", "/environments", "/environments/CartPole-v1",
     "/algorithms", "/algorithms/ppo", "/specs/schema", "/projects", "/groups", "/tokens", "/openapi.json"],
)  # fmt: skip
def test_everything_can_be_read(client: httpx2.Client, run: str, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    json.loads(answer.content, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert answer.headers["cache-control"] in ("no-store", "private, no-cache")


def test_a_spec_is_resolved_without_being_started(client: httpx2.Client) -> None:
    before = len(client.get("/commands").json()["items"])
    spec = client.post("/specs/resolve", json={"environment": "CartPole-v1"}).json()
    assert spec["environment"]["id"] == "CartPole-v1"
    assert "learning_rate" in spec[spec["algorithm"]]
    assert len(client.get("/commands").json()["items"]) == before


def test_prometheus_can_read_it(client: httpx2.Client, run: str) -> None:
    answer = client.get("/prometheus")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    states = {sample.labels["state"]: sample.value for sample in families["penstock_runs"].samples}
    assert states["pending"] >= 1
    assert states["running"] == 0
    assert families["penstock_commands"].samples[0].value >= 1
    operations = {sample.labels["operation"] for sample in families["penstock_http_requests"].samples}
    assert {"get_status", "start_training"} <= operations


# -- bad input ------------------------------------------------------------------------------------


def test_an_unknown_run_is_named_with_its_neighbour(client: httpx2.Client, run: str) -> None:
    assert "'waiting'" in problem(client.get("/runs/waitin"), 404, "not-found")["detail"]
    problem(client.post("/runs/nothing-here/stop"), 404, "not-found")


@pytest.mark.parametrize("name", ["UPPER", "a b", "..", "%2e%2e", "x" * 64, "%00", "a%2Fb", "-a", "é"])
def test_what_can_be_no_run_is_not_looked_for(client: httpx2.Client, name: str) -> None:
    assert client.get(f"/runs/{name}/spec").status_code in (400, 404)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "truncated"),
        (b"{'environment': 1}", "malformed"),
        (b'{"environment": NaN}', "malformed"),
        (b'{"environment": "CartPole-v1", "seed": Infinity}', "malformed"),
        (b'{"environment": "CartPole-v1", "seed": 1e999}', "range"),
        (b'{"environment": "\xff"}', "utf-8"),
        (b'{"environment": "\\ud800"}', "not JSON"),
        (b'{"environment": ' + b"[" * 2000 + b"]" * 2000 + b"}", "depth"),
    ],
)
def test_a_body_that_cannot_be_read_says_why(client: httpx2.Client, body: bytes, reason: str) -> None:
    assert reason in problem(client.post("/runs", content=body, headers=JSON), 400, "malformed")["detail"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body"),
        (b'{"environment": "Cart\\u0000Pole"}', "zero character"),
        (b'{"environment": "CartPole-v1", "seed": 99999999999999999999999}', "64 bits"),
        (b'{"environment": "x", "a": ' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
    ],
)
def test_a_body_that_nobody_could_keep_says_why(client: httpx2.Client, body: bytes, reason: str) -> None:
    assert reason in problem(client.post("/runs", content=body, headers=JSON), 422, "invalid")["detail"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "body.environment"),
        ([], "body"),
        ("text", "body"),
        (None, "body"),
        ({"environment": 5}, "body.environment"),
        ({"environment": ""}, "body.environment"),
        ({"environment": "CartPole-v1", "seeds": 0}, "body.seeds"),
        ({"environment": "CartPole-v1", "seeds": 1000}, "body.seeds"),
        ({"environment": "CartPole-v1", "name": "No Such Name"}, "body.name"),
        ({"environment": "CartPole-v1", "tags": ["x"] * 100}, "body.tags"),
    ],
)
def test_a_body_of_the_wrong_shape_names_the_place(client: httpx2.Client, body: Any, where: str) -> None:
    found = problem(client.post("/runs", json=body), 422, "invalid")
    assert any(item["where"].startswith(where) for item in found["errors"])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"algorithm": "nonsense"}, "nonsense"),
        ({"ppo": {"learning_rat": 1}}, "learning_rat"),
        ({"ppo": {"learning_rate": -1}}, "learning_rate"),
        ({"actors": {"count": 99}}, "actors"),
        ({"nonsense": 1}, "nonsense"),
        ({"stream": {"url": "carrier-pigeon://"}}, "carrier-pigeon"),
    ],
)
def test_a_spec_that_makes_no_sense_starts_nothing(
    client: httpx2.Client, changes: dict[str, Any], word: str
) -> None:
    before = client.get("/commands").json()["items"][0]["sequence"]
    assert word in problem(client.post("/runs", json=QUICK | changes), 422, "invalid")["detail"]
    assert client.get("/commands").json()["items"][0]["sequence"] == before


def test_a_name_that_is_taken_is_a_conflict(client: httpx2.Client, run: str) -> None:
    problem(client.post("/runs", json=QUICK | {"name": run}), 409, "conflict")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("actors", {"actors": 17}, 422),
        ("actors", {"actors": -1}, 422),
        ("actors", {"actors": 1.5}, 422),
        ("actors", {"actors": "many"}, 422),
        ("actors", {"actor": 1}, 422),
        ("learner", {"learner": 2}, 422),
        ("settings", {"settings": {}}, 422),
        ("settings", {"settings": {"nonsense": 1}}, 422),
        ("settings", {"settings": {"learning_rate": "fast"}}, 422),
        ("settings", {"settings": {"minibatch": 32}}, 422),
        ("settings/rollback", {"command": "nothing"}, 404),
        ("evaluations", {"episodes": 0}, 422),
        ("evaluations", {"checkpoint": "newest"}, 404),
        ("forks", {"at": "newest"}, 404),
        ("resume", {"stop": {"nonsense": 1}}, 422),
    ],
)
def test_a_verb_that_cannot_be_done_says_why_and_does_nothing(
    client: httpx2.Client, run: str, path: str, body: dict[str, Any], status: int
) -> None:
    before = client.get("/commands").json()["items"][0]["sequence"]
    answer = client.post(f"/runs/{run}/{path}", json=body)
    problem(answer, status, {404: "not-found", 409: "conflict", 422: "invalid"}[status])
    assert client.get("/commands").json()["items"][0]["sequence"] == before


@pytest.mark.parametrize(
    "query",
    ["/runs?limit=0", "/runs?limit=501", "/runs?limit=x", "/runs?state=flying", "/runs?sort=colour",
     "/runs?cursor=nonsense",
     "/commands?cursor=%F0%9F", "/runs/waiting/metrics?points=1", "/runs/waiting/metrics?since=nan",
     "/runs/waiting/metrics?since=1e999", "/runs/waiting/logs?lines=-1",
     "/runs/waiting/events?limit=99999999999999999999",
     "/runs/waiting/logs?after=nonsense", "/compare", "/compare?run=UPPER"],
)  # fmt: skip
def test_a_wrong_parameter_is_named(client: httpx2.Client, run: str, query: str) -> None:
    problem(client.get(query), 422, "invalid")


@pytest.mark.parametrize("key", ["", "x" * 256, "two words", "ümlaut"])
def test_a_key_is_one_printable_word(idle: Served, run: str, key: str) -> None:
    line = (
        f"POST /api/v1/runs/{run}/stop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {idle.token}\r\n"
    )
    answer = idle.raw(f"{line}Idempotency-Key: {key}\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
    assert b" 422 " in answer.split(b"\r\n")[0]


def test_a_wrong_method_names_the_right_ones(client: httpx2.Client, run: str) -> None:
    answer = client.put(f"/runs/{run}")
    problem(answer, 405, "method")
    assert answer.headers["allow"] == "DELETE, GET, PATCH"
    assert client.put("/runs").headers["allow"] == "GET, POST"


def test_an_unknown_path_is_a_problem(client: httpx2.Client) -> None:
    problem(client.get("/nothing"), 404, "not-found")
    problem(client.get("/runs/"), 404, "not-found")


def test_oversize_is_refused_also_when_it_is_not_announced(client: httpx2.Client) -> None:
    problem(client.post("/runs", content=b"x" * (2 << 20), headers=JSON), 413, "too-large")

    def drops() -> Iterator[bytes]:
        yield b'{"environment": "'
        for _ in range(40):
            yield b"x" * 65536

    problem(client.post("/runs", content=drops(), headers=JSON), 413, "too-large")


def test_a_body_that_is_no_json_is_refused_before_it_is_read(client: httpx2.Client) -> None:
    problem(client.post("/runs", data={"environment": "CartPole-v1"}), 415, "media-type")


def test_too_many_requests_of_one_token_have_to_wait_and_others_do_not(tmp_path: Path) -> None:
    limits = replace(
        Limits(), reads_per_second=5, writes_per_second=2, burst_seconds=1, failures_per_minute=3
    )
    with (
        served(tmp_path, limits=limits) as server,
        server.client() as client,
        server.client(server.token_of("viewer")) as other,
    ):
        answers = [client.get("/projects") for _ in range(12)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) >= 3
        problem(refused[0], 429, "too-many")
        assert int(refused[0].headers["retry-after"]) >= 1
        assert other.get("/projects").status_code == 200
        with server.client("pst_wrong") as stranger:
            assert [stranger.get("/projects").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
        with server.client(server.token_of("admin")) as newcomer:  # from the same address, never seen before
            assert newcomer.get("/projects").status_code == 429
        time.sleep(1.1)
        assert client.get("/projects").status_code == 200  # a token that was right before is not locked out


def test_only_so_many_follow_logs_at_once(tmp_path: Path) -> None:
    with served(tmp_path, limits=replace(GENEROUS, followers=1)) as server, server.client() as client:
        name = client.post("/runs", json=QUICK).json()["run"]
        wait_for(lambda: client.get(f"/runs/{name}/logs").status_code == 200, "its folder")
        with client.stream("GET", f"/runs/{name}/logs?follow=true") as first:
            assert first.status_code == 200
            second = server.client().get(f"/runs/{name}/logs?follow=true")
            problem(second, 503, "unavailable")
            assert second.headers["retry-after"]

        def followed() -> bool:
            with client.stream("GET", f"/runs/{name}/logs?follow=true") as third:
                return third.status_code == 200

        wait_for(followed, "the place of one who went away", 10)


# -- a run from its start to its end --------------------------------------------------------------


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("working"), most_runs=3) as running:
        yield running


def test_a_run_is_started_steered_stopped_looked_at_forked_and_deleted(working: Served) -> None:
    with working.client() as client:
        name = client.post("/runs", json=QUICK | {"name": "steered"}).json()["run"]
        place = f"/runs/{name}"

        def status() -> dict[str, Any]:
            found: dict[str, Any] = client.get(place).json()
            return found

        wait_for(lambda: status()["steps"] > 0, "the first update", 120)
        assert client.post(f"{place}/actors", json={"actors": 2}).status_code == 202
        changed = client.post(f"{place}/settings", json={"settings": {"learning_rate": 1e-5}})
        assert changed.status_code == 202
        assert changed.json()["command"]["new"]["learning_rate"] == 1e-5
        wait_for(lambda: status()["settings"].get("learning_rate") == 1e-5, "the new learning rate")
        assert client.post(f"{place}/settings/rollback").status_code == 202
        wait_for(lambda: status()["settings"].get("learning_rate") != 1e-5, "the old learning rate")
        wait_for(lambda: len(client.get(f"{place}/actors").json()) == 2, "the second actor")
        assert client.post(f"{place}/checkpoints").status_code == 202
        wait_for(lambda: client.get(f"{place}/checkpoints").json(), "a checkpoint")

        followed: list[bytes] = []

        def follow() -> None:
            with working.client() as listener, listener.stream("GET", f"{place}/logs?follow=true") as stream:
                assert stream.headers["content-type"] == "application/x-ndjson"
                followed.extend(stream.iter_lines())

        thread = threading.Thread(target=follow)
        thread.start()
        assert client.post(f"{place}/pause").status_code == 202
        wait_for(lambda: status()["state"] == "paused", "the pause")
        thread.join(timeout=20)
        assert not thread.is_alive(), "following ends when the run does not go on"
        assert all({"process", "text"} <= json.loads(line).keys() for line in followed)
        assert client.post(f"{place}/resume").status_code == 202
        wait_for(lambda: status()["state"] == "running", "the resumption", 120)
        assert client.post(f"{place}/stop").status_code == 202
        wait_for(lambda: status()["state"] == "stopped", "the end")
        problem(client.post(f"{place}/stop"), 409, "conflict")

        _is_measured(client, place)
        _downloads_equal(working, client, name)
        _is_evaluated(client, place)
        fork = client.post(f"{place}/forks", json={"name": "forked", "changes": {"ppo.learning_rate": 1e-4}})
        assert fork.status_code == 201, fork.text
        assert fork.headers["location"] == "/api/v1/runs/forked"
        wait_for(
            lambda: client.get("/runs/forked").json()["steps"] > status()["steps"], "the fork's learning", 120
        )
        problem(client.delete("/runs/forked"), 409, "conflict")
        compared = client.get("/compare", params={"run": [name, "forked"], "metric": "mean_return"}).json()
        assert "ppo.learning_rate" in [difference["path"] for difference in compared["differences"]]

        assert client.delete(place).status_code == 202
        wait_for(lambda: client.get(place).status_code == 404, "the deletion")
        verbs = [item["verb"] for item in client.get("/commands", params={"run": name}).json()["items"]]
        assert verbs[0] == "delete"
        assert verbs[-1] == "start"


def _is_measured(client: httpx2.Client, place: str) -> None:
    found = client.get(f"{place}/metrics", params={"points": 10}).json()
    assert 2 <= len(found["columns"]["steps"]) <= 10
    name = found["names"][0]
    one = client.get(f"{place}/metrics", params={"names": name}).json()
    assert name in one["columns"]
    assert client.get(f"{place}/metrics", params={"since": found["last_step"]}).json()["total"] == 0
    assert client.get(f"{place}/states").json()
    assert client.get(f"{place}/events").json()
    assert client.get(f"{place}/logs").json()["processes"]


def _downloads_equal(server: Served, client: httpx2.Client, name: str) -> None:
    """What is downloaded is what lies there, byte for byte."""
    version = client.get(f"/runs/{name}/checkpoints").json()[0]["version"]
    answer = client.get(f"/runs/{name}/checkpoints/{version}/download")
    assert answer.headers["content-type"] == "application/x-tar"
    assert int(answer.headers["content-length"]) == len(answer.content)
    folder = server.control.reads.checkpoint_file(name, version)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        held = {Path(entry.name).name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
    assert held == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    problem(client.get(f"/runs/{name}/checkpoints/9.99999/download"), 404, "not-found")


def _is_evaluated(client: httpx2.Client, place: str) -> None:
    asked = client.post(f"{place}/evaluations", json={"episodes": 2})
    assert asked.status_code == 202, asked.text
    where = asked.headers["location"].removeprefix("/api/v1")
    wait_for(lambda: client.get(where).json().get("state") == "done", "the evaluation", 120)
    assert len(client.get(where).json()["returns"]) == 2
    assert client.get(f"{place}/evaluations").json()[0]["id"] == asked.json()["command"]["id"]

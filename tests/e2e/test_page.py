"""The page in a real browser: a person signs in, starts a run, steers it and compares it."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browser import AXE, Tab, browser, needs_page
from tests.servers import QUICK, Server

pytestmark = needs_page

ENDLESS = """environment: CartPole-v1
stop: {target: null, steps: null}
evaluation: {every_seconds: 0}
tensorboard: false
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def tab(server: Server) -> Iterator[Tab]:
    with browser(server.address) as opened:
        yield opened
        assert opened.complaints == []


def test_from_sign_in_to_a_solved_cartpole(server: Server, tab: Tab) -> None:
    page = tab.page
    tab.go("/new")
    page.get_by_label("Token").fill("pst_wrong")
    page.get_by_role("button", name="Sign in").click()
    tab.sees("not known here")
    tab.sign_in(server.token)

    page.get_by_label("Spec as YAML").fill(ENDLESS)
    command = page.get_by_test_id("command")
    assert "--set stop.target=null" in command.inner_text()
    page.get_by_label("Gamma").fill("3")
    tab.sees("Gamma must be at most 1")
    assert page.get_by_role("button", name="Start training").is_disabled()
    page.get_by_label("Gamma").fill("0.98")
    page.get_by_label("Name").fill("story")
    page.get_by_role("button", name="Start training").click()

    page.wait_for_url("**/runs/story")
    chart = page.get_by_role("figure", name="Return", exact=True)
    chart.wait_for(timeout=90_000)
    until = time.monotonic() + 240
    while not (number := tab.fact("Return")).replace(".", "").isdigit() or float(number) < 475:
        assert time.monotonic() < until, f"the return is {number}"
        time.sleep(0.5)

    slider = page.get_by_role("slider", name="Number of actors")
    slider.press("ArrowRight")
    tab.sees("Scale to 3 actors: in effect", 60)

    page.get_by_role("tab", name="Hyperparameters").click()
    page.get_by_label("Learning rate", exact=True).fill("-1")
    tab.sees("Learning rate must be more than 0")
    page.get_by_label("Learning rate", exact=True).fill("0.0001")
    page.get_by_role("button", name="Apply 1").click()
    tab.sees("Set Learning rate to 0.0001: in effect", 60)
    assert server.get("/runs/story")["desired"]["settings"] == {"learning_rate": 0.0001}

    page.get_by_role("tab", name="History").click()
    page.get_by_role("button", name=re.compile("Undo learning_rate")).click()
    tab.sees("Undo: in effect", 60)
    page.get_by_role("button", name="Checkpoint now").click()
    tab.sees("Checkpoint: in effect", 60)

    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    tab.sees("stopped by", 60)
    page.get_by_role("tab", name="Checkpoints").click()
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download").first.click()
    assert Path(kept.value.path()).stat().st_size > 1000

    page.get_by_role("button", name="More actions").click()
    page.get_by_role("menuitem", name="Compare").click()
    page.get_by_role("figure", name="charts/episodic_return").wait_for(timeout=20_000)


def test_numbers_are_on_the_screen_within_a_second_and_leak_nothing(server: Server, tab: Tab) -> None:
    run = server.post("/runs", QUICK | {"name": "timed"})["run"]
    server.wait_for(run, lambda status: status["updates"] > 5, 90)
    reports: list[tuple[float, float]] = []

    def heard(text: Any) -> None:
        message = json.loads(text) if isinstance(text, str) else {}
        told = [news["columns"] for news in message.get("messages", []) if news["kind"] == "metrics"]
        reports.extend((columns["steps"][-1], columns["time"][-1]) for columns in told)

    tab.page.on("websocket", lambda socket: socket.on("framereceived", heard))
    tab.go(f"/runs/{run}")
    tab.sign_in(server.token)
    tab.page.get_by_role("figure", name="Return", exact=True).wait_for(timeout=60_000)
    delays = []
    session = tab.page.context.new_cdp_session(tab.page)

    def heap() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"])

    tab.page.wait_for_timeout(5000)
    before = heap()
    for _ in range(12):
        tab.page.wait_for_timeout(1000)
        steps, at = reports[-1]
        tab.page.wait_for_function(
            "steps => Number(document.querySelector('figure[aria-label=Return]').dataset.last) >= steps",
            arg=steps,
        )
        delays.append(time.time() - at)
    assert heap() - before < 8e6
    assert sorted(delays)[len(delays) // 2] < 1.0, delays
    server.post(f"/runs/{run}/stop")


def test_a_server_that_restarts_is_waited_for(server: Server, tab: Tab) -> None:
    run = server.post("/runs", QUICK | {"name": "outlives"})["run"]
    server.wait_for(run, lambda status: status["updates"] > 0, 90)
    tab.go(f"/runs/{run}")
    tab.sign_in(server.token)
    tab.page.get_by_role("figure", name="Return", exact=True).wait_for(timeout=30_000)
    server.kill()
    tab.sees("The server cannot be reached", 20)
    seen = tab.page.get_by_role("figure", name="Return", exact=True).get_attribute("data-last")
    server.start()
    tab.page.get_by_text("The server cannot be reached").wait_for(state="detached", timeout=30_000)
    tab.page.wait_for_function(
        "steps => Number(document.querySelector('figure[aria-label=Return]').dataset.last) > steps",
        arg=float(seen or 0),
        timeout=30_000,
    )
    server.post(f"/runs/{run}/stop")
    server.wait_for_state(run, "stopped")
    tab.sees("stopped by", 20)
    server.ask("DELETE", f"/runs/{run}")
    tab.sees("was deleted", 30)


def test_two_thousand_runs_scroll(server: Server, tab: Tab) -> None:
    run = server.get("/runs", limit=1)["items"][0]
    rows = [run | {"run": f"many-{i:04}", "state": "done", "updates": 0} for i in range(2000)]

    def pages(route: Any) -> None:
        cursor = re.search(r"cursor=(\d+)", route.request.url)
        begin = int(cursor[1]) if cursor else 0
        following = str(begin + 500) if begin + 500 < len(rows) else None
        route.fulfill(json={"items": rows[begin : begin + 500], "next": following})

    tab.page.route(re.compile(r"/api/v1/runs\?"), pages)
    tab.go("/runs")
    tab.sign_in(server.token)
    tab.sees("many-0000")
    table = tab.page.get_by_role("table", name="Runs")
    for _ in range(40):
        table.evaluate("element => element.scrollBy(0, 4000)")
        tab.page.wait_for_timeout(50)
        if tab.page.get_by_text("many-1999").count():
            break
    tab.sees("many-1999", 5)
    assert tab.page.get_by_role("row").count() < 100


def test_an_expired_token_asks_again_and_comes_back_to_the_same_place(server: Server, tab: Tab) -> None:
    made = server.post("/tokens", {"name": "visitor", "role": "viewer"})
    tab.go("/audit")
    tab.sign_in(made["token"])
    tab.page.get_by_role("heading", name="Audit").wait_for()
    server.ask("DELETE", f"/tokens/{made['id']}")
    tab.sees("no longer valid", 30)
    tab.sign_in(server.token)
    tab.page.get_by_role("heading", name="Audit").wait_for()


def test_the_first_load_is_small(server: Server, tab: Tab) -> None:
    bodies: dict[str, int] = {}

    def finished(request: Any) -> None:
        if "/api/" not in request.url:
            bodies[request.url] = request.sizes()["responseBodySize"]

    tab.page.on("requestfinished", finished)
    tab.go("/runs")
    tab.sign_in(server.token)
    tab.page.get_by_role("heading", name="Runs").wait_for()
    assert len(bodies) > 3
    assert sum(bodies.values()) <= 350_000, bodies


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_narrow_screen_and_has_no_serious_fault(server: Server, scheme: str) -> None:
    places = [
        "/runs",
        "/new",
        "/compare",
        "/environments",
        "/audit",
        "/settings",
        "/nowhere",
        "/runs/no-such-run",
    ]
    with browser(server.address, 400, 800, color_scheme=scheme, bypass_csp=True) as tab:
        tab.go("/runs")
        assert not AXE.exists() or tab.serious_faults() == []
        tab.sign_in(server.token)
        for place in places:
            tab.go(place)
            tab.page.wait_for_timeout(800)
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 400, place
            assert not AXE.exists() or tab.serious_faults() == [], place
        assert tab.complaints == []

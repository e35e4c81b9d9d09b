"""Every place of the page: thousands of runs, narrow screens, both colours, and what goes wrong."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser

from penstock import config
from penstock.loop.runs import RunFolder
from penstock.model.run import RunState
from tests.e2e.browser import Tab, open_tab
from tests.servers import QUICK, Server

MANY = 2000
TABS = ["charts", "actors", "logs", "checkpoints", "settings", "spec", "history"]
PLACES = [
    "/runs",
    "/runs?search=no-such-thing",
    "/new",
    "/compare",
    "/compare?run=many-0001&run=many-0002",
    "/environments",
    "/audit",
    "/settings",
    "/nowhere",
    "/runs/no-such-run",
    *(f"/runs/many-0001?tab={tab}" for tab in TABS),
]


def write_runs(home: Path, count: int) -> None:
    """Folders of runs that have ended, as a keeper leaves them; one is made, the others are its copies."""
    first = RunFolder.create(home, config.resolve(QUICK), "many-0000")
    done = first.stored_status().to(RunState.RUNNING).to(RunState.DONE, "the test said so")
    first.save_status(
        msgspec.structs.replace(done, keeper=None, steps=4000, updates=20, mean_return=100.0, version="1.20")
    )
    shutil.rmtree(first.path / "checkpoints", ignore_errors=True)
    with first.metrics_file.open("w") as file:
        for i in range(1, 21):
            row = {
                "steps": i * 200,
                "seconds": i / 10,
                "time": time.time(),
                "charts/episodic_return": i * 5.0,
            }
            file.write(json.dumps(row) + "\n")
    texts = {path.name: path.read_text() for path in first.path.iterdir() if path.is_file()}
    for number in range(1, count):
        name = f"many-{number:04}"
        folder = first.path.parent / name
        folder.mkdir()
        for file_name, text in texts.items():
            (folder / file_name).write_text(text.replace("many-0000", name))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    write_runs(home, MANY)
    running = Server(home)
    try:
        running.start(seconds=200)  # it reads them all first
        yield running
    finally:
        running.end()


def test_two_thousand_runs_scroll_and_are_searched(server: Server, tab: Tab) -> None:
    tab.go("/runs?sort=run")
    tab.sign_in(server.token)
    tab.sees("many-0000")
    table = tab.page.get_by_role("table", name="Runs")
    for _ in range(200):
        table.evaluate("element => element.scrollTo(0, element.scrollHeight)")
        tab.page.wait_for_timeout(100)
        if tab.page.get_by_text(f"many-{MANY - 1}").count():
            break
    tab.sees(f"many-{MANY - 1}", 5)
    assert tab.page.get_by_role("row").count() < 100, "only the rows on the screen may exist"
    tab.page.get_by_role("row", name=f"many-{MANY - 1}").get_by_role("img").wait_for()
    tab.page.get_by_label("Search runs").fill("many-1234")
    tab.page.wait_for_url("**search=many-1234*")
    tab.page.get_by_role("status").get_by_text("1 found").wait_for()
    assert tab.page.get_by_role("row").count() == 2, "its head and one run"
    tab.page.get_by_role("link", name="many-1234").press("Enter")
    tab.page.get_by_role("heading", name="many-1234").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (400, "dark"), (1280, "light")])
def test_every_place_fits_the_screen_and_has_no_serious_fault(
    server: Server, shared_browser: Browser, width: int, scheme: str
) -> None:
    with open_tab(shared_browser, server.address, width, 800, color_scheme=scheme, bypass_csp=True) as tab:
        tab.go("/runs")
        tab.page.get_by_label("Token").wait_for()
        assert tab.serious_faults() == []
        tab.sign_in(server.token)
        for place in PLACES:
            tab.go(place)
            tab.settle()
            assert not tab.is_too_wide(), place
            assert tab.serious_faults() == [], place
        assert tab.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_open_dialogs_fit_the_screen_and_have_no_serious_fault(
    server: Server, shared_browser: Browser, width: int, scheme: str
) -> None:
    with open_tab(shared_browser, server.address, width, 800, color_scheme=scheme, bypass_csp=True) as tab:
        tab.go("/runs/many-0001")
        tab.sign_in(server.token)
        for name in ("Delete", "Tags and note"):
            tab.choose(name)
            tab.check_dialog(name)
        tab.press("Resume")
        tab.check_dialog("Resume")
        tab.press("More actions")
        tab.page.get_by_role("menu").wait_for()
        tab.settle()
        assert tab.serious_faults() == [], "the menu"
        tab.go("/environments?id=CartPole-v1")
        tab.page.get_by_role("dialog").get_by_text("Algorithms that fit").wait_for(timeout=60_000)
        tab.check_dialog("an environment")
        tab.go("/settings")
        tab.page.get_by_label("For whom or what").fill(f"axe-{width}")
        tab.press("Create token")
        tab.sees("shown this once")
        tab.settle()
        assert tab.serious_faults() == [], "a new token"
        tab.press("I have it")
        tab.press(f"Revoke the token of axe-{width}")
        tab.check_dialog("Revoke")
        assert tab.complaints == []


def test_an_algorithm_that_cannot_choose_the_actions_is_refused_while_one_types(
    server: Server, tab: Tab
) -> None:
    tab.go("/new?environment=CartPole-v1&algorithm=sac")
    tab.sign_in(server.token)
    tab.sees("sac needs Box actions; CartPole-v1 has Discrete: use", 60)
    start = tab.page.get_by_role("button", name="Start training")
    assert start.is_disabled()
    tab.page.get_by_role("combobox", name="Environment").fill("Pendulum-v1")
    tab.page.get_by_text("sac needs Box actions").first.wait_for(state="detached", timeout=60_000)
    tab.page.wait_for_function("() => !document.querySelector('button[type=submit]').disabled")


def test_an_unknown_address_and_an_unknown_run_say_so(server: Server, tab: Tab) -> None:
    tab.go("/nowhere")
    tab.sign_in(server.token)
    tab.sees("There is no such page")
    tab.go("/runs/no-such-run")
    tab.sees("There is no run no-such-run")
    tab.page.get_by_role("link", name="All runs", exact=True).click()
    tab.page.get_by_role("heading", name="Runs").wait_for()


def test_tokens_are_made_shown_once_and_revoked(server: Server, tab: Tab) -> None:
    tab.go("/settings")
    tab.sign_in(server.token)
    tab.sees("local: processes of")
    tab.page.get_by_label("For whom or what").fill("visitor")
    tab.press("Create token")
    secret = tab.page.get_by_role("alert").locator("code").inner_text()
    assert secret.startswith("pst_")
    tab.press("I have it")
    tab.page.get_by_text(secret).wait_for(state="detached")
    assert secret not in tab.page.content()
    tab.press("Revoke the token of visitor")
    tab.answer("Revoke")
    tab.page.get_by_role("row", name="visitor").get_by_text("revoked").wait_for()
    tab.press("Sign out")
    tab.page.get_by_label("Token").fill(secret)
    tab.press("Sign in")
    tab.sees("not known here")


def test_an_expired_token_asks_again_and_comes_back_to_the_same_place(server: Server, tab: Tab) -> None:
    made = server.post("/tokens", {"name": "guest", "role": "viewer"})
    tab.go("/audit")
    tab.sign_in(made["token"])
    tab.page.get_by_role("heading", name="Audit").wait_for()
    server.ask("DELETE", f"/tokens/{made['id']}")
    tab.sees("no longer valid", 30)
    tab.sign_in(server.token)
    tab.page.get_by_role("heading", name="Audit").wait_for()


def test_an_expired_token_takes_nothing_that_was_typed(server: Server, tab: Tab) -> None:
    first = server.post("/tokens", {"name": "writer", "role": "operator"})
    second = server.post("/tokens", {"name": "writer", "role": "operator"})
    tab.go("/new")
    tab.sign_in(first["token"])
    note = tab.page.get_by_label("Note")
    note.fill("half a thought")
    tab.page.get_by_label("Spec as YAML").fill("environment: [")
    server.ask("DELETE", f"/tokens/{first['id']}")
    tab.sees("no longer valid", 30)
    assert not note.is_visible()
    tab.sign_in(second["token"])
    note.wait_for()
    assert note.input_value() == "half a thought"
    assert tab.page.get_by_label("Spec as YAML").input_value() == "environment: ["
    assert tab.page.get_by_role("button", name="Start training").is_disabled()
    tab.press("Sign out")
    tab.page.get_by_label("Token").wait_for()
    assert not tab.page.get_by_text("no longer valid").count()
    tab.sign_in(second["token"])
    note.wait_for()
    assert note.input_value() == ""


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


def test_without_the_server_the_page_says_so_and_keeps_what_it_has(server: Server, tab: Tab) -> None:
    tab.go("/runs")
    tab.sign_in(server.token)
    tab.sees("many-")
    tab.page.wait_for_timeout(4000)  # the parts of other pages are fetched meanwhile
    server.kill()
    try:
        tab.sees("The server cannot be reached", 20)
        assert tab.page.get_by_role("row").count() > 5
        tab.page.get_by_role("link", name="New run").first.click()
        tab.sees("The server does not answer", 30)
    finally:
        server.start(seconds=200)
    tab.page.get_by_text("The server cannot be reached").wait_for(state="detached", timeout=40_000)
    tab.page.get_by_label("Spec as YAML").wait_for(timeout=40_000)

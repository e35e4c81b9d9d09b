"""Every verb of a run's page: asked for, refused in place, and seen when it has taken effect."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.e2e.browser import Tab, open_tab
from tests.servers import QUICK, Server

RUN = "steered"


@pytest.fixture(scope="module")
def steered(server: Server) -> str:
    """A run that has ended and can be resumed, and has checkpoints."""
    server.post("/runs", QUICK | {"name": RUN, "stop": {"steps": 3000, "target": None}})
    server.wait_for_state(RUN, "done", 150)
    return RUN


@pytest.fixture
def at_run(server: Server, steered: str, tab: Tab) -> Tab:
    tab.go(f"/runs/{steered}")
    tab.sign_in(server.token)
    tab.page.get_by_role("heading", name=steered).wait_for()
    return tab


def test_labels_are_written_on_the_run(server: Server, at_run: Tab) -> None:
    page = at_run.page
    at_run.choose("Tags and note")
    page.get_by_role("textbox", name="Project").fill("rates")
    page.get_by_label("Tags").first.fill("keep")
    page.keyboard.press("Enter")
    page.get_by_label("Note").fill("the good one")
    at_run.answer("Save")
    at_run.sees("Label: in effect")
    at_run.sees("the good one")
    known = server.get(f"/runs/{RUN}")
    assert (known["project"], known["tags"], known["note"]) == ("rates", ["keep"], "the good one")


def test_a_refusal_is_said_where_it_was_asked_for_and_nothing_typed_is_lost(at_run: Tab) -> None:
    page = at_run.page
    dialog = page.get_by_role("dialog")
    at_run.choose("Tags and note")
    page.get_by_role("textbox", name="Project").fill("x" * 500)
    at_run.answer("Save")
    dialog.get_by_role("alert").wait_for()
    assert page.get_by_role("textbox", name="Project").input_value() == "x" * 500
    at_run.answer("Cancel")
    at_run.sees("Label: refused")
    page.get_by_role("tab", name="Checkpoints").click()
    at_run.press("Fork", exact=True)
    page.get_by_role("textbox", name="Name").fill(RUN)
    at_run.answer("Fork")
    dialog.get_by_role("alert").wait_for()
    assert page.get_by_role("textbox", name="Name").input_value() == RUN


def test_an_evaluation_is_in_effect_when_its_result_is_there(server: Server, at_run: Tab) -> None:
    at_run.choose("Evaluate the best checkpoint")
    at_run.sees("Evaluate the best checkpoint: in effect", 90)
    assert server.get(f"/runs/{RUN}/evaluations")[0]["state"] == "done"
    at_run.page.get_by_role("tab", name="Checkpoints").click()
    at_run.page.get_by_role("region", name="Evaluations").get_by_role("cell", name="done").wait_for()


def test_a_run_goes_on_rests_and_loses_its_learner(server: Server, at_run: Tab) -> None:
    page = at_run.page
    at_run.press("Resume")
    page.get_by_label("Steps in all").fill("")
    at_run.answer("Resume")
    at_run.sees("Resume: in effect", 90)
    at_run.press("Pause")
    at_run.sees("Pause: in effect", 60)
    at_run.press("Resume")
    at_run.sees("Resume: in effect", 60)
    learner = page.get_by_role("switch", name="Learner")
    server.wait_for(RUN, lambda status: status["updates"] > 30, 90)
    learner.click()
    at_run.answer("End the learner")
    at_run.sees("End the learner: in effect", 60)
    assert not learner.is_checked()
    learner.click()
    at_run.sees("Start the learner: in effect", 90)
    server.post(f"/runs/{RUN}/stop")
    at_run.sees("stopped by", 60)


def test_a_fork_goes_on_from_its_checkpoint(server: Server, at_run: Tab) -> None:
    page = at_run.page
    page.get_by_role("tab", name="Checkpoints").click()
    at_run.press("Fork", exact=True)
    page.get_by_role("textbox", name="Name").fill("fork")
    at_run.answer("Fork")
    page.wait_for_url("**/runs/fork", timeout=60_000)
    page.get_by_role("heading", name="fork").wait_for()
    assert server.get("/runs/fork")["spec"]["origin"]["run"] == RUN


def test_a_viewer_sees_all_and_steers_nothing(server: Server, steered: str, tab: Tab) -> None:
    made = server.post("/tokens", {"name": "guest", "role": "viewer"})
    tab.go(f"/runs/{steered}")
    tab.sign_in(made["token"])
    tab.page.get_by_role("figure", name="Return", exact=True).wait_for(timeout=30_000)
    assert tab.page.get_by_role("button", name="Resume").is_disabled()
    tab.go("/settings")
    tab.sees("Tokens are an admin's business")


def test_a_run_is_deleted_after_asking_and_whoever_has_it_open_is_told(
    server: Server, at_run: Tab, other_tab: Tab
) -> None:
    server.wait_for(RUN, lambda status: status["state"] in ("stopped", "done"), 60)
    other_tab.go(f"/runs/{RUN}")
    other_tab.sign_in(server.token)
    other_tab.page.get_by_role("heading", name=RUN).wait_for()
    at_run.choose("Delete")
    at_run.answer("Cancel")
    assert server.get(f"/runs/{RUN}")["run"] == RUN
    at_run.choose("Delete")
    at_run.answer("Delete for good")
    at_run.page.wait_for_url("**/runs")
    other_tab.sees(f"{RUN} was deleted")
    at_run.page.get_by_role("link", name=RUN, exact=True).wait_for(state="detached")


@pytest.fixture
def other_tab(server: Server, shared_browser: Browser) -> Iterator[Tab]:
    with open_tab(shared_browser, server.address) as opened:
        yield opened

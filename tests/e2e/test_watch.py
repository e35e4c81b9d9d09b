"""Watching in a real browser: pictures move, the slider chooses a checkpoint, an episode is recorded and kept."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser

from tests.e2e.browser import Tab, open_tab
from tests.integration.serving import wait_for
from tests.saved import checkpoint, saved_run
from tests.servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    pole = saved_run(home, "pole", "CartPole-v1")
    checkpoint(pole, 10, -5.0)
    checkpoint(pole, 200, 5.0)
    checkpoint(saved_run(home, "blind", "penstock.testing.environments:Blind"), 1)
    with Server(home) as running:
        wait_for(lambda: len(running.get("/runs")["items"]) == 2, "the runs")
        yield running


def players(server: Server) -> int:
    """How many processes play."""
    assert server.process is not None
    found = 0
    for child in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.Error):
            found += "watch" in child.cmdline()
    return found


def test_from_live_to_a_checkpoint_to_a_recording(server: Server, tab: Tab) -> None:
    page = tab.page
    tab.go("/runs/pole?tab=watch")
    tab.sign_in(server.token)
    tab.sees_player("CartPole-v1", "1.200")
    tab.sees_motion()
    number = page.get_by_test_id("return")
    first = number.inner_text()
    page.wait_for_function(
        "before => document.querySelector('[data-testid=return]').textContent !== before",
        arg=first,
        timeout=30_000,
    )
    slider = page.get_by_role("slider", name="Which policy plays")
    assert slider.get_attribute("aria-valuetext") == "Live"
    slider.press("Home")
    assert (slider.get_attribute("aria-valuetext") or "").startswith("Checkpoint 1.10,")
    tab.sees_player("CartPole-v1", "1.10")
    tab.sees_motion()
    tab.page.get_by_role("img", name="Returns of the last").wait_for(timeout=60_000)

    page.get_by_role("button", name="Pause the play").click()
    tab.sees("Paused")
    wait_for(lambda: players(server) == 0, "the end of the play", 30)
    page.get_by_role("button", name="Play on").click()
    tab.sees_motion()

    page.get_by_role("button", name="Record this").click()
    keep = page.get_by_role("button", name="Download the recording of 1.10")
    keep.wait_for(timeout=120_000)
    with page.expect_download() as kept:
        keep.click()
    assert Path(kept.value.path()).read_bytes()[:6] == b"GIF89a"
    assert kept.value.suggested_filename == "pole-1.10.gif"

    page.get_by_role("tab", name="Charts").click()
    wait_for(lambda: players(server) == 0, "the end of the play", 30)


def test_a_viewer_watches_and_may_not_record(server: Server, tab: Tab) -> None:
    made = server.post("/tokens", {"name": "visitor", "role": "viewer"})
    tab.go("/runs/pole?tab=watch")
    tab.sign_in(made["token"])
    tab.sees_player("CartPole-v1", "1.200")
    assert tab.page.get_by_role("button", name="Record this").is_disabled()


def test_an_environment_without_pictures_says_so(server: Server, tab: Tab) -> None:
    tab.go("/runs/blind?tab=watch")
    tab.sign_in(server.token)
    tab.page.get_by_role("alert").get_by_text("cannot draw itself").wait_for(timeout=90_000)
    tab.page.get_by_role("button", name="Try again").wait_for()


def test_a_server_that_restarts_is_waited_for(server: Server, tab: Tab) -> None:
    tab.go("/runs/pole?tab=watch")
    tab.sign_in(server.token)
    tab.sees_player("CartPole-v1", "1.200")
    server.kill()
    tab.sees("The connection is lost", 20)
    server.start()
    tab.page.get_by_text("The connection is lost").wait_for(state="detached", timeout=60_000)
    tab.sees_motion()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen_and_has_no_serious_fault(
    server: Server, shared_browser: Browser, scheme: str
) -> None:
    with open_tab(shared_browser, server.address, 400, 800, color_scheme=scheme, bypass_csp=True) as tab:
        tab.go("/runs/pole?tab=watch")
        tab.sign_in(server.token)
        tab.sees_player("CartPole-v1", "1.200")
        assert not tab.is_too_wide()
        assert tab.serious_faults() == []

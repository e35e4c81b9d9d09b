"""A person signs in, starts a run, sees it learn and play, steers it, loses the server, stops it and compares it."""

import re
import time
from pathlib import Path

from tests.e2e.browser import Tab
from tests.servers import QUICK, Server

ENDLESS = """environment: CartPole-v1
stop: {target: null, steps: null}
evaluation: {every_seconds: 0}
tensorboard: false
"""
SOLVED = 475.0
"""Mean return over 100 episodes at which Gymnasium calls CartPole-v1 solved."""


def test_from_sign_in_to_a_solved_cartpole(server: Server, tab: Tab) -> None:
    server.post("/runs", QUICK | {"name": "yesterday", "stop": {"steps": 6000, "target": None}})
    tab.go("/new")
    refuse_a_wrong_token(tab)
    tab.sign_in(server.token)
    start_from_the_form(tab)
    see_it_rise_until_solved(tab)
    watch_it_play(tab)
    lose_the_server_and_get_it_back(server, tab)
    scale_by_keyboard(tab)
    tune_and_undo(server, tab)
    stop_and_keep_a_checkpoint(tab)
    compare_with(tab, "yesterday")


def refuse_a_wrong_token(tab: Tab) -> None:
    tab.page.get_by_label("Token").fill("pst_wrong")
    tab.press("Sign in")
    tab.sees("not known here")


def start_from_the_form(tab: Tab) -> None:
    page = tab.page
    page.get_by_label("Spec as YAML").fill(ENDLESS)
    assert "--set stop.target=null" in page.get_by_test_id("command").inner_text()
    page.get_by_label("Gamma").fill("3")
    tab.sees("Gamma must be at most 1")
    assert page.get_by_role("button", name="Start training").is_disabled()
    page.get_by_label("Gamma").fill("0.98")
    page.get_by_label("Name").fill("story")
    tab.press("Start training")
    page.wait_for_url("**/runs/story")
    page.get_by_role("figure", name="Return", exact=True).wait_for(timeout=120_000)


def see_it_rise_until_solved(tab: Tab) -> None:
    until = time.monotonic() + 240
    while not (number := tab.fact("Return")).replace(".", "").isdigit() or float(number) < SOLVED:
        assert time.monotonic() < until, f"the return is {number}"
        tab.page.wait_for_timeout(500)
    early = [tab.hovered("Return", at) for at in (0.02, 0.05, 0.1)]
    told = [value for value in early if value is not None]
    assert told, "hovering a chart says nothing"
    assert min(told) < SOLVED / 3
    assert (tab.hovered("Return", 0.999) or 0) > SOLVED * 0.9


def watch_it_play(tab: Tab) -> None:
    tab.page.get_by_role("tab", name="Watch").click()
    tab.sees_player("CartPole-v1", "1.")
    tab.sees_motion()
    tab.page.get_by_role("tab", name="Charts").click()


def lose_the_server_and_get_it_back(server: Server, tab: Tab) -> None:
    seen = tab.drawn("Return")["last"]
    tab.page.get_by_role("tab", name="Hyperparameters").click()
    rate = tab.page.get_by_label("Learning rate", exact=True)
    rate.fill("0.0001")
    server.kill()
    tab.sees("The server cannot be reached", 20)
    server.start()
    tab.page.get_by_text("The server cannot be reached").wait_for(state="detached", timeout=30_000)
    assert rate.input_value() == "0.0001", "what was typed is lost"
    tab.page.get_by_role("tab", name="Charts").click()
    tab.wait_for_steps("Return", seen + 1)


def scale_by_keyboard(tab: Tab) -> None:
    slider = tab.page.get_by_role("slider", name="Number of actors")
    assert slider.get_attribute("aria-valuenow") == "2"
    slider.press("ArrowRight")
    tab.sees("Scale to 3 actors: in effect", 90)
    tab.page.get_by_role("tab", name="Actors").click()
    tab.page.get_by_role("cell", name="actor-2").wait_for()


def tune_and_undo(server: Server, tab: Tab) -> None:
    page = tab.page
    page.get_by_role("tab", name="Hyperparameters").click()
    rate = page.get_by_label("Learning rate", exact=True)
    rate.fill("-1")
    tab.sees("Learning rate must be more than 0")
    rate.fill("0.0001")
    tab.press("Apply 1")
    tab.sees("Set Learning rate to 0.0001: in effect", 60)
    assert server.get("/runs/story")["desired"]["settings"] == {"learning_rate": 0.0001}
    page.get_by_role("tab", name="History").click()
    page.get_by_role("button", name=re.compile("Undo learning_rate")).click()
    tab.sees("Undo: in effect", 60)


def stop_and_keep_a_checkpoint(tab: Tab) -> None:
    page = tab.page
    tab.press("Checkpoint now")
    tab.sees("Checkpoint: in effect", 60)
    tab.press("Stop")
    tab.answer("Stop")
    tab.sees("stopped by", 60)
    page.get_by_role("tab", name="Checkpoints").click()
    with page.expect_download() as kept:
        tab.press("Download")
    assert Path(kept.value.path()).stat().st_size > 1000


def compare_with(tab: Tab, other: str) -> None:
    page = tab.page
    tab.choose("Compare")
    runs = page.get_by_label("Runs", exact=True).first
    runs.fill(other)
    page.get_by_role("option", name=other).click()
    chart = page.get_by_role("figure", name="charts/episodic_return")
    chart.get_by_text(other).wait_for(timeout=20_000)
    assert chart.get_by_text("story").count() == 1
    differences = page.get_by_role("region", name="How their specs differ")
    differences.get_by_role("row", name=re.compile(r"stop\.steps null 6000")).wait_for()

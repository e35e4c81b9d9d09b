"""The display shows what matters, at any width, and keeps quiet where it should."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from penstock.loop.display import Display, Snapshot, choose, line, render, sparkline

SNAPSHOT = Snapshot(
    run="cartpole-k3v9", state="running", environment="CartPole-v1", algorithm="ppo", steps=45_000,
    seconds=3731, mean_return=312.44, returns=[float(i) for i in range(300)], mean_length=312, episodes=812,
    steps_per_second=8231, version="1.250", lag=1.0, updates=250, actors=2, restarts=1, stop_steps=500_000,
    stop_target=475.0, events=("12:01 actor 1 restarted", "bad \x1b[2J escape"),
    shares={"environment": 4.0, "policy": 2.0, "stream": 0.1, "learning": 3.0, "waiting": 0.9},
)  # fmt: skip


def drawn(snapshot: Snapshot, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render(snapshot, width))
    return console.export_text()


def test_everything_that_matters_is_on_the_panel():
    text = drawn(SNAPSHOT, 90)
    for words in (
        "cartpole-k3v9", "running", "CartPole-v1 · ppo · 2 actors", "312.4 of 475.0", "▁", "█", "812",
        "length 312", "45,000/500,000", "9%", "8,231 steps/s", "1:02:11", "version 1.250", "updates 250",
        "lag 1.0", "restarts", "environment 40%", "learning 30%", "waiting 9%", "actor 1 restarted",
    ):  # fmt: skip
        assert words in text, words
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("width", [1, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    for snapshot in (SNAPSHOT, Snapshot("r-a1", "pending", "X-v0", "dqn")):
        assert all(len(row) <= max(width, 40) for row in drawn(snapshot, width).splitlines())


def test_a_run_that_has_reported_nothing_is_drawn():
    text = drawn(Snapshot("r-a1", "pending", "X-v0", "dqn"), 80)
    assert "pending" in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 10, ""),
        ([5.0], 10, "▁"),
        ([1.0, 1.0], 10, "▁▁"),
        ([0.0, 7.0], 2, "▁█"),
        ([0.0, 0.0, 7.0, 7.0], 2, "▁█"),
        ([-3.0, 0.0, 4.0], 3, "▁▄█"),
    ],
)
def test_a_sparkline_shows_the_mean_of_each_part(values, width, expected):
    assert sparkline(values, width) == expected


def test_plain_lines_come_every_few_seconds_and_at_a_change_of_state():
    out, now = io.StringIO(), [0.0]
    with Display("plain", out, clock=lambda: now[0]) as display:
        for second in range(11):
            now[0] = float(second)
            display.update(replace(SNAPSHOT, steps=second))
        now[0] = 10.5
        display.update(replace(SNAPSHOT, state="done", steps=99))
    lines = out.getvalue().splitlines()
    assert [text.split(" · ")[1] for text in lines[:3]] == [f"{n}/500,000 steps" for n in (0, 5, 10)]
    assert lines[3].startswith("cartpole-k3v9 done")


def test_live_refreshes_at_most_four_times_a_second():
    out, now = io.StringIO(), [0.0]
    display = Display("live", out, clock=lambda: now[0])
    with display:
        shown = []
        display._live.update = lambda *_, **__: shown.append(now[0])
        for millisecond in range(0, 1001, 10):
            now[0] = millisecond / 1000
            display.update(SNAPSHOT)
        assert len(shown) <= 5


def test_json_means_silence_and_a_pipe_means_plain():
    out = io.StringIO()
    with choose(json=True, file=out) as display:
        display.update(SNAPSHOT)
    assert out.getvalue() == ""
    with choose(json=False, file=out) as display:
        display.update(SNAPSHOT)
    assert out.getvalue().startswith(line(SNAPSHOT))

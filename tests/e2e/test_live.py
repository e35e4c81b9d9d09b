"""Numbers come to the screen at once, and a page that is left open does not grow."""

import json
import statistics
import time
from typing import Any

from tests.e2e.browser import Tab
from tests.e2e.heap import Heap
from tests.servers import QUICK, Server

MOST_POINTS = 2400
"""As in ui/src/chart/history.ts."""
LOOKS = 20
EVERY_MS = 3000


def test_a_minute_of_live_charts_is_prompt_and_leaks_nothing(server: Server, tab: Tab) -> None:
    run = server.post("/runs", QUICK | {"name": "timed"})["run"]
    reports: list[tuple[float, float]] = []

    def heard(text: Any) -> None:
        message = json.loads(text) if isinstance(text, str) else {}
        told = [news["columns"] for news in message.get("messages", []) if news["kind"] == "metrics"]
        reports.extend((columns["steps"][-1], columns["time"][-1]) for columns in told)

    tab.page.on("websocket", lambda socket: socket.on("framereceived", heard))
    tab.go(f"/runs/{run}")
    tab.sign_in(server.token)
    tab.page.get_by_role("figure", name="Return", exact=True).wait_for(timeout=120_000)
    heap = Heap(tab.page)
    tab.page.wait_for_timeout(5000)  # the parts of other pages are fetched meanwhile
    before, delays = heap.held(), []
    for _ in range(LOOKS):
        tab.page.wait_for_timeout(EVERY_MS)
        steps, at = reports[-1]
        tab.wait_for_steps("Return", steps)
        delays.append(time.time() - at)
        assert tab.drawn("Return")["points"] <= MOST_POINTS
    after = heap.held()
    assert after.megabytes - before.megabytes < 8, (before, after)
    assert after.nodes < before.nodes * 1.5, (before, after)
    assert after.listeners < before.listeners * 1.5, (before, after)
    assert statistics.median(delays) < 1.0, delays

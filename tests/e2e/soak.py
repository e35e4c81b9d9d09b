"""Live charts at length: python -m tests.e2e.soak MINUTES prints once a minute what the page holds."""

import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.browser import browser
from tests.e2e.heap import Heap
from tests.servers import QUICK, Server

EVERY_SECONDS = 60


def soak(minutes: float) -> None:
    with tempfile.TemporaryDirectory() as home, Server(Path(home)) as server:
        run = server.post(
            "/runs", QUICK | {"name": "soak", "actors": {"count": 1, "environments": 2, "rollout": 32}}
        )
        with browser(server.address) as tab:
            tab.go(f"/runs/{run['run']}")
            tab.sign_in(server.token)
            tab.page.get_by_role("figure", name="Return", exact=True).wait_for(timeout=120_000)
            heap, begun = Heap(tab.page), time.monotonic()
            while (passed := time.monotonic() - begun) < minutes * 60:
                drawn, held = tab.drawn("Return"), heap.held()
                page = f"{held.megabytes:6.2f} MB  {held.nodes} nodes  {held.listeners} listeners"
                chart = f"{drawn['points']:.0f} points  {drawn['last']:.0f} steps"
                print(f"{passed / 60:5.1f} min  {page}  {chart}", flush=True)
                tab.page.wait_for_timeout(EVERY_SECONDS * 1000)
            assert tab.complaints == [], tab.complaints


if __name__ == "__main__":
    soak(float(sys.argv[1]))

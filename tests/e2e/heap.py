"""What an open page holds in memory, once its garbage is gone."""

from dataclasses import dataclass

from playwright.sync_api import Page


@dataclass(frozen=True, slots=True)
class Held:
    megabytes: float
    nodes: int
    listeners: int


class Heap:
    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)

    def held(self) -> Held:
        self._session.send("HeapProfiler.collectGarbage")
        counters = self._session.send("Memory.getDOMCounters")
        used = self._session.send("Runtime.getHeapUsage")["usedSize"]
        return Held(round(used / 1e6, 2), counters["nodes"], counters["jsEventListeners"])

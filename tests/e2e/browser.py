"""A real Chromium, as a person has it; complaints of the page are remembered."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.debian import installed

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "src/penstock/server/page/index.html"
AXE = ROOT / "ui/node_modules/axe-core/axe.min.js"
PICTURE = "() => document.querySelector('.picture canvas').toDataURL()"
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-gpu",
    "--no-first-run",
]


@dataclass
class Tab:
    """One page of a browser and what it complained about."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(self.address + path)

    def sign_in(self, token: str) -> None:
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("status", name="Live feed: Live").wait_for(timeout=20_000)

    def sees(self, text: str, seconds: float = 30.0) -> None:
        self.page.get_by_text(text).first.wait_for(timeout=seconds * 1000)

    def settle(self) -> None:
        """Until nothing is being loaded and nothing fades in."""
        self.page.get_by_role("main").wait_for()
        self.page.get_by_text("Loading ").first.wait_for(state="detached", timeout=30_000)
        self.settle_animations()

    def settle_animations(self) -> None:
        self.page.evaluate(
            """() => Promise.allSettled(document.getAnimations()
                .filter(one => one.effect.getTiming().iterations === 1).map(one => one.finished)).then(() => null)"""
        )

    def press(self, name: str, exact: bool = False) -> None:
        self.page.get_by_role("button", name=name, exact=exact).first.click()

    def choose(self, name: str) -> None:
        """Something of a run's menu."""
        self.press("More actions")
        self.page.get_by_role("menuitem", name=name).click()

    def answer(self, verb: str) -> None:
        """Press a button of the question that is open."""
        self.page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()

    def fact(self, name: str, of: str = "How it stands") -> str:
        """One of the large numbers of a run."""
        named = self.page.get_by_text(name, exact=True)
        facts = self.page.get_by_label(of, exact=True).locator("> div")
        return str(facts.filter(has=named).locator(".value").first.inner_text())

    def wait_for_fact(self, of: str, name: str, value: str, seconds: float = 60.0) -> None:
        """Until one of them is this."""
        named = self.page.get_by_text(name, exact=True)
        facts = self.page.get_by_label(of, exact=True).locator("> div").filter(has=named)
        facts.locator(".value").get_by_text(value, exact=True).wait_for(timeout=seconds * 1000)

    def drawn(self, chart: str) -> dict[str, float]:
        """What a chart shows: `points`, and `last`, where its axis ends."""
        data = self.page.get_by_role("figure", name=chart, exact=True).evaluate(
            "element => ({...element.dataset})"
        )
        return {name: float(value) for name, value in data.items()}

    def wait_for_steps(self, chart: str, steps: float, seconds: float = 30.0) -> None:
        """Until a chart shows these."""
        self.page.wait_for_function(
            "([name, steps]) => Number(document.querySelector(`figure[aria-label='${name}']`)?.dataset.last) >= steps",
            arg=[chart, steps],
            timeout=seconds * 1000,
        )

    def hovered(self, chart: str, place: float) -> float | None:
        """What a chart says where the mouse rests: 0 is its left end, 1 its right; None where it has no number."""
        figure = self.page.get_by_role("figure", name=chart, exact=True)
        area = figure.locator(".u-over")
        box = area.bounding_box()
        assert box is not None, f"{chart} is not drawn"
        area.hover(position={"x": box["width"] * place, "y": box["height"] / 2})
        figure.get_by_text(" steps").wait_for()
        words = figure.locator(".chart-legend b").first.inner_text()
        return None if words == "–" else float(words)

    def sees_player(self, environment: str, version: str, seconds: float = 90.0) -> None:
        """Until a picture of this version is there."""
        self.page.get_by_role("img", name=f"{environment} played by version {version}").wait_for(
            timeout=seconds * 1000
        )

    def sees_motion(self, seconds: float = 60.0) -> None:
        """Until the picture has changed."""
        before = self.page.evaluate(PICTURE)
        self.page.wait_for_function(f"before => ({PICTURE})() !== before", arg=before, timeout=seconds * 1000)

    def is_too_wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def serious_faults(self) -> list[str]:
        """What axe finds that would keep somebody from using the page."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            f"{fault['id']}: {fault['nodes'][0]['html'][:200]}"
            for fault in found
            if fault["impact"] in ("serious", "critical")
        ]

    def check_dialog(self, name: str) -> None:
        """The dialog that is open fits, has no serious fault, and goes away with Escape."""
        dialog = self.page.get_by_role("dialog")
        dialog.wait_for()
        self.settle_animations()
        assert not self.is_too_wide(), name
        assert self.serious_faults() == [], name
        self.page.keyboard.press("Escape")
        dialog.wait_for(state="detached")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser itself; tests share one, each with a profile of its own."""
    for part in (BUILT, AXE):
        if not part.exists():
            pytest.fail(f"{part} is missing: make page")
    program = installed(lambda: shutil.which("chromium") or shutil.which("chromium-browser"), "chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def open_tab(
    shared: Browser, address: str, width: int = 1280, height: int = 800, **options: Any
) -> Iterator[Tab]:
    context = shared.new_context(viewport={"width": width, "height": height}, **options)
    tab = Tab(context.new_page(), address)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.page.on(
        "console",
        lambda said: tab.complaints.append(said.text) if "Content Security Policy" in said.text else None,
    )
    try:
        yield tab
    finally:
        context.close()


@contextmanager
def browser(address: str, width: int = 1280, height: int = 800, **options: Any) -> Iterator[Tab]:
    """A browser of its own with one tab."""
    with chromium() as own, open_tab(own, address, width, height, **options) as tab:
        yield tab

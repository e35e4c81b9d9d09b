"""A real Chromium, as a person has it; complaints of the page are remembered."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "src/penstock/server/page/index.html"
AXE = ROOT / "ui/node_modules/axe-core/axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-gpu",
    "--no-first-run",
]

needs_page = [
    pytest.mark.skipif(CHROMIUM is None, reason="apt-get install chromium"),
    pytest.mark.skipif(not BUILT.exists(), reason="make page"),
]


@dataclass
class Tab:
    """One page of a browser and what it complained about."""

    page: Any
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

    def fact(self, name: str) -> str:
        """One of the large numbers of a run."""
        facts = self.page.get_by_label("How it stands").locator("> div")
        return str(facts.filter(has_text=name).locator(".value").first.inner_text())

    def serious_faults(self) -> list[str]:
        """What axe finds that would keep somebody from using the page."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            f"{fault['id']}: {fault['nodes'][0]['html'][:200]}"
            for fault in found
            if fault["impact"] in ("serious", "critical")
        ]


@contextmanager
def browser(address: str, width: int = 1280, height: int = 800, **options: Any) -> Iterator[Tab]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        tab = Tab(context.new_page(), address)
        tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.page.on(
            "console",
            lambda said: tab.complaints.append(said.text) if "Content Security Policy" in said.text else None,
        )
        try:
            yield tab
        finally:
            chromium.close()

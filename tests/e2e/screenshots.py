"""Pictures of every place for docs/screenshots, from real runs: python -m tests.e2e.screenshots"""

import tempfile
from pathlib import Path

from playwright.sync_api import Browser

from tests.e2e.browser import ROOT, chromium, open_tab
from tests.servers import Server

FOLDER = ROOT / "docs/screenshots"
LEARNED_STEPS = 60_000
CARTPOLE = {"environment": "CartPole-v1", "stop": {"steps": None, "target": None}, "tensorboard": False}
PLACES = {
    "runs": "/runs",
    "run": "/runs/first",
    "run-charts": "/runs/first?smooth=0.6&by=time",
    "actors": "/runs/first?tab=actors",
    "logs": "/runs/first?tab=logs",
    "checkpoints": "/runs/first?tab=checkpoints",
    "hyperparameters": "/runs/first?tab=settings",
    "history": "/runs/first?tab=history",
    "spec": "/runs/first?tab=spec",
    "new-run": "/new",
    "compare": "/compare?run=first&run=second",
    "environments": "/environments",
    "audit": "/audit",
    "settings": "/settings",
}
NARROW = ("runs", "run", "new-run", "compare", "settings")


def take(
    shared: Browser, server: Server, width: int, scheme: str, ending: str, names: tuple[str, ...]
) -> None:
    with open_tab(shared, server.address, width, 800, color_scheme=scheme) as tab:
        tab.go("/runs")
        tab.page.get_by_label("Token").wait_for()
        tab.page.screenshot(path=FOLDER / f"sign-in{ending}.png")
        tab.sign_in(server.token)
        for name in names:
            tab.go(PLACES[name])
            tab.settle()
            tab.page.wait_for_timeout(1500)  # charts are drawn once their numbers are there
            tab.page.screenshot(path=FOLDER / f"{name}{ending}.png")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, Server(Path(home)) as server, chromium() as shared:
        server.post(
            "/runs", CARTPOLE | {"name": "second", "ppo": {"learning_rate": 0.0003}, "tags": ["slow"]}
        )
        server.wait_for("second", lambda run: run["steps"] > LEARNED_STEPS, 600)
        server.post("/runs/second/stop")
        server.post("/runs", CARTPOLE | {"name": "first", "note": "tuned defaults"})
        server.wait_for("first", lambda run: run["steps"] > LEARNED_STEPS, 600)
        server.post("/runs/first/settings", {"settings": {"learning_rate": 0.0005}})
        server.post("/runs/first/checkpoints")
        take(shared, server, 1280, "light", "", tuple(PLACES))
        take(shared, server, 1280, "dark", "-dark", tuple(PLACES))
        take(shared, server, 400, "light", "-narrow", NARROW)


if __name__ == "__main__":
    main()

"""Pictures of every place for docs/screenshots, from real runs: python -m tests.e2e.screenshots"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

from tests.e2e.browser import ROOT, Tab, chromium, open_tab
from tests.servers import Server, free_port

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
LOOKS = ((1280, "light", ""), (1280, "dark", "-dark"), (400, "light", "-narrow"))
LUNAR = ROOT / "examples/lunar"


def take(tab: Tab, server: Server, ending: str, names: tuple[str, ...]) -> None:
    tab.go("/runs")
    tab.page.get_by_label("Token").wait_for()
    shoot(tab, f"sign-in{ending}")
    tab.sign_in(server.token)
    for name in names:
        tab.go(PLACES[name])
        tab.settle()
        tab.page.wait_for_timeout(1500)  # charts are drawn once their numbers are there
        shoot(tab, f"{name}{ending}")


def take_empty(tab: Tab, _: Server, ending: str) -> None:
    """Before the first run."""
    tab.settle()
    shoot(tab, f"empty{ending}")


def take_dialogs(tab: Tab, _: Server, ending: str) -> None:
    """What opens over a place."""
    tab.go("/runs/second")
    tab.settle()
    tab.choose("Delete")
    tab.page.get_by_role("dialog").wait_for()
    tab.settle_animations()
    shoot(tab, f"dialog{ending}")
    tab.go("/environments?id=CartPole-v1")
    tab.page.get_by_role("dialog").get_by_text("Algorithms that fit").wait_for()
    tab.settle_animations()
    shoot(tab, f"environment{ending}")


def take_refused(tab: Tab, _: Server, ending: str) -> None:
    """A form that cannot be started, once the server has told the environment's spaces."""
    tab.go("/new?environment=CartPole-v1&algorithm=sac")
    tab.sees("sac needs Box actions", 60)
    tab.settle()
    shoot(tab, f"new-run-refused{ending}")


def take_watch(tab: Tab, _: Server, ending: str) -> None:
    tab.go("/runs/first?tab=watch")
    tab.sees_player("CartPole-v1", "1.")
    tab.sees_motion()
    shoot(tab, f"watch{ending}")


def take_clients(tab: Tab, server: Server, ending: str) -> None:
    run = run_of_clients(server)
    server.wait_for(run, lambda status: status["updates"] > 4, 300)
    tab.go(f"/runs/{run}")
    tab.settle()
    tab.page.get_by_label("Clients", exact=True).wait_for()
    tab.page.wait_for_timeout(1500)
    shoot(tab, f"clients{ending}")


def run_of_clients(server: Server, seconds: float = 120.0) -> str:
    """Once the first client has opened it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for one in server.get("/runs")["items"]:
            if one["environment"].startswith("client:"):
                return str(one["run"])
        time.sleep(0.2)
    raise AssertionError(f"no client opened a policy in {seconds} s")


def take_offline(tab: Tab, server: Server, ending: str) -> None:
    """With the server gone: the run's page was open before."""
    tab.go("/runs/first")
    tab.settle()
    tab.page.wait_for_timeout(1500)
    server.kill()
    tab.sees("The server cannot be reached", 60)
    shoot(tab, f"offline{ending}")
    server.start()


def shoot(tab: Tab, name: str) -> None:
    tab.page.screenshot(path=FOLDER / f"{name}.png")


def in_every_look(shared: Browser, server: Server, shot: Callable[[Tab, Server, str], None]) -> None:
    for width, scheme, ending in LOOKS:
        with open_tab(shared, server.address, width, 800, color_scheme=scheme) as tab:
            tab.go("/runs")
            tab.sign_in(server.token)
            shot(tab, server, ending)


@contextmanager
def landing(home: Path, gateway_port: int) -> Iterator[None]:
    """The example as a person starts it: a system that lands on the moon."""
    text = (LUNAR / "luna_conf.json").read_text()
    text = text.replace("50051", str(gateway_port)).replace('"traj_per_epoch": 256', '"traj_per_epoch": 16')
    (home / "luna.json").write_text(text)
    words = [sys.executable, str(LUNAR / "train.py"), "--config", str(home / "luna.json"), "--seconds", "900"]
    with (home / "luna.log").open("w") as log:
        client = subprocess.Popen(
            words, stdout=log, stderr=log, env={**os.environ, "PENSTOCK_HOME": str(home)}
        )
    try:
        yield
    finally:
        client.terminate()
        client.wait(timeout=30)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(Path(folder), ("--gateway-port", str(port))) as server,
        chromium() as shared,
    ):
        in_every_look(shared, server, take_empty)
        server.post(
            "/runs", CARTPOLE | {"name": "second", "ppo": {"learning_rate": 0.0003}, "tags": ["slow"]}
        )
        server.wait_for("second", lambda run: run["steps"] > LEARNED_STEPS, 600)
        server.post("/runs/second/stop")
        server.post("/runs", CARTPOLE | {"name": "first", "note": "tuned defaults"})
        server.wait_for("first", lambda run: run["steps"] > LEARNED_STEPS, 600)
        server.post("/runs/first/settings", {"settings": {"learning_rate": 0.0005}})
        server.post("/runs/first/checkpoints")
        for width, scheme, ending in LOOKS:
            with open_tab(shared, server.address, width, 800, color_scheme=scheme) as tab:
                take(tab, server, ending, NARROW if width < 1000 else tuple(PLACES))
        for shot in (take_dialogs, take_refused, take_watch, take_offline):
            in_every_look(shared, server, shot)
        server.post("/runs/first/stop")
        with landing(Path(folder), port):
            server.wait_for_state("first", "stopped", 120)
            in_every_look(shared, server, take_clients)


if __name__ == "__main__":
    main()

"""What a person sees while a run goes on: a live panel, a plain line now and then, or nothing."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import RenderableType

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 5.0
BARS = "▁▂▃▄▅▆▇█"
PARTS = {
    "environment": "green",
    "policy": "cyan",
    "stream": "magenta",
    "learning": "yellow",
    "waiting": "bright_black",
}
STATES = {"running": "green", "done": "green", "failed": "red", "interrupted": "red"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a run at one moment."""

    run: str
    state: str
    environment: str
    algorithm: str
    steps: int = 0
    seconds: float = 0.0
    mean_return: float | None = None
    returns: Sequence[float] = ()
    """Mean returns so far, oldest first, for the sparkline."""
    mean_length: float | None = None
    episodes: int = 0
    steps_per_second: float = 0.0
    version: str | None = None
    lag: float | None = None
    """Updates between acting and learning."""
    updates: int = 0
    actors: int = 0
    restarts: int = 0
    stop_steps: int | None = None
    stop_target: float | None = None
    stop_seconds: float | None = None
    stop_updates: int | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    """Where time goes: environment, policy, stream, learning, waiting → share of 1."""
    stream: Mapping[str, float] = field(default_factory=dict)
    """lag (records), bytes_per_second, dead_letters, waits."""
    events: Sequence[str] = ()
    """The last events, oldest first."""


class Display:
    """Shows snapshots at a rate a person can follow. Use as a context manager."""

    def __init__(
        self,
        mode: Literal["live", "plain", "silent"],
        file: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mode, self._file, self._clock = mode, file or sys.stdout, clock
        self._live: Any = None
        self._last: Snapshot | None = None
        self._shown_at = float("-inf")
        self._state = ""

    def __enter__(self) -> "Display":
        if self._mode == "live":
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._file), auto_refresh=False)
            self._live.start()
        return self

    def update(self, snapshot: Snapshot) -> None:
        """Show it, unless the last one is too fresh; call as often as you like."""
        self._last = snapshot
        period = LIVE_SECONDS if self._mode == "live" else PLAIN_SECONDS
        # a change of state is shown at once: it is what people wait for
        if self._clock() - self._shown_at >= period or snapshot.state != self._state:
            self._show(snapshot)

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._show(self._last)
        if self._live is not None:
            self._live.stop()

    def _show(self, snapshot: Snapshot) -> None:
        self._shown_at, self._state = self._clock(), snapshot.state
        if self._live is not None:
            self._live.update(render(snapshot, self._live.console.width), refresh=True)
        elif self._mode == "plain":
            print(line(snapshot), file=self._file, flush=True)


def choose(json: bool, file: IO[str] | None = None) -> Display:
    """Live on a terminal, plain lines elsewhere, nothing where only JSON is wanted."""
    if json:
        return Display("silent", file)
    return Display("live" if (file or sys.stdout).isatty() else "plain", file)


def line(snapshot: Snapshot) -> str:
    """One line for logs and pipes."""
    parts = [
        f"{snapshot.run} {snapshot.state}",
        f"{_progress_text(snapshot)} steps",
        f"return {_number(snapshot.mean_return)}",
        f"{snapshot.steps_per_second:,.0f} steps/s",
        f"update {snapshot.updates:,}",
        _duration(snapshot.seconds),
    ]
    return " · ".join(parts + ([f"{snapshot.restarts} restarts"] if snapshot.restarts else []))


def render(snapshot: Snapshot, width: int) -> "RenderableType":
    """The whole panel, for a terminal `width` columns wide; pure."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    width = max(width, 40)
    inner = width - 4
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True, min_width=8)
    facts.add_column(no_wrap=True)
    for name, value in _rows(snapshot, inner - 13):
        facts.add_row(name, value)
    rows: list[RenderableType] = [facts]
    if snapshot.shares:
        rows += [Text(""), _time_bar(snapshot.shares, inner)]
    if snapshot.events:
        rows.append(Text(""))
        rows += [_event(event) for event in snapshot.events[-4:]]
    state = Text(f" {snapshot.state} ", style=f"bold {STATES.get(snapshot.state, 'yellow')}")
    title = Text.assemble((f" {snapshot.run}", "bold"), " ·", state)
    subtitle = Text(f" {snapshot.environment} · {snapshot.algorithm} · {snapshot.actors} actors ")
    return Panel(
        Group(*rows), title=title, subtitle=subtitle, title_align="left", subtitle_align="right", width=width
    )


def _rows(snapshot: Snapshot, width: int) -> list[tuple[str, Any]]:
    from rich.text import Text

    target = "" if snapshot.stop_target is None else f" of {_number(snapshot.stop_target)}"
    curve = sparkline(snapshot.returns, max(8, min(40, width - 20)))
    length = "" if snapshot.mean_length is None else f"   length {snapshot.mean_length:,.0f}"
    lag = "-" if snapshot.lag is None else f"{snapshot.lag:.1f}"
    bar = _progress_bar(snapshot, width - 25)
    return [
        ("return", Text.assemble((_number(snapshot.mean_return), "bold"), target, "  ", (curve, "green"))),
        ("episodes", f"{snapshot.episodes:,}{length}"),
        (
            "steps",
            Text.assemble(_progress_text(snapshot), "  ", (bar, "cyan")),
        ),
        ("speed", f"{snapshot.steps_per_second:,.0f} steps/s   {_duration(snapshot.seconds)}"),
        ("policy", f"version {snapshot.version or '-'}   updates {snapshot.updates:,}   lag {lag}"),
        ("stream", _stream(snapshot.stream)),
        ("restarts", f"{snapshot.restarts}"),
    ]


def _stream(facts: Mapping[str, float]) -> str:
    rate = facts.get("bytes_per_second", 0.0) / 1e6
    counts = "   ".join(
        f"{facts[name]:,.0f} {name.replace('_', ' ')}"
        for name in ("dead_letters", "waits")
        if facts.get(name)
    )
    return f"{rate:,.1f} MB/s   lag {facts.get('lag', 0):,.0f} records" + (f"   {counts}" if counts else "")


def sparkline(values: Sequence[float], width: int) -> str:
    """The curve in `width` characters: each shows the mean of its part."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)


def _time_bar(shares: Mapping[str, float], width: int) -> "RenderableType":
    from rich.text import Text

    total = sum(shares.get(name, 0.0) for name in PARTS) or 1.0
    bar, legend = Text(no_wrap=True), Text()
    for name, colour in PARTS.items():
        share = shares.get(name, 0.0) / total
        bar.append("█" * round(share * width), colour)
        legend.append("■ ", colour).append(f"{name} {share:.0%}  ")
    bar.truncate(width)
    return Text.assemble(bar, "\n", legend)


def _event(text: str) -> "RenderableType":
    from rich.text import Text

    # an environment's message may hold anything, also what would move the cursor
    words = "".join(letter if letter.isprintable() else " " for letter in text)
    return Text(words, style="bright_black", no_wrap=True, overflow="ellipsis")


def _fraction(snapshot: Snapshot) -> float | None:
    """How far the nearest stop condition is; the target counts only when reached."""
    pairs = (
        (snapshot.steps, snapshot.stop_steps),
        (snapshot.seconds, snapshot.stop_seconds),
        (snapshot.updates, snapshot.stop_updates),
    )
    known = [done / limit for done, limit in pairs if limit]
    return min(1.0, max(known)) if known else None


def _progress_bar(snapshot: Snapshot, width: int) -> str:
    fraction, width = _fraction(snapshot), min(width, 20)
    if fraction is None:
        return ""
    filled = round(fraction * width)
    return "━" * filled + "╌" * (width - filled) + f" {fraction:.0%}"


def _progress_text(snapshot: Snapshot) -> str:
    return f"{snapshot.steps:,}" + (f"/{snapshot.stop_steps:,}" if snapshot.stop_steps else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

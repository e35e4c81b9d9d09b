"""Flags that many commands share."""

from typing import Annotated, Any

from cyclopts import Parameter

from penstock.errors import ConfigError

Checkpoint = Annotated[str, Parameter(help="best, newest, or EPOCH.STEP.")]
Json = Annotated[bool, Parameter("--json", negative="", help="Print JSON.")]
Set = Annotated[
    list[str] | None,
    Parameter("--set", negative="", help="A setting by its path, as in pace.lead=0; may be repeated."),
]
StreamUrl = Annotated[
    str | None,
    Parameter(
        "--stream",
        env_var="PENSTOCK_STREAM",
        help="The log: embedded, or kafka://HOST:PORT[,HOST:PORT][/PREFIX].",
    ),
]
Quiet = Annotated[bool, Parameter(["--quiet", "-q"], negative="", help="Show nothing while training.")]


def assignments(pairs: list[str] | None) -> dict[str, Any]:
    """`--set a.b=1` as overrides for `config.resolve`."""
    overrides: dict[str, Any] = {}
    for pair in pairs or []:
        path, equals, value = pair.partition("=")
        if not equals or not path:
            raise ConfigError(f"{pair!r} is no assignment; write PATH=VALUE, as in ppo.learning_rate=1e-3")
        overrides[path.strip()] = value
    return overrides

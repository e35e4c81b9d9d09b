"""`penstock gateway`: a process of its own through which running systems act and learn.

It steers runs as the command line does: through the running server where there is one, else alone.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.errors import ConfigError, NotFound, PenstockError, Unavailable
from penstock.flags import Json, StreamUrl

if TYPE_CHECKING:
    from penstock.model.spec import Spec
    from penstock.stream.base import Stream

PORT = 50051
IDLE_SECONDS = 300.0
START_SECONDS = 60.0
POLL_SECONDS = 0.05
Flag = Annotated[bool, Parameter(negative="")]


def gateway(
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    stream: StreamUrl = None,
    database: Annotated[str | None, Parameter(env_var="PENSTOCK_DATABASE")] = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    insecure: Flag = False,
    idle: float = IDLE_SECONDS,
    json: Json = False,
) -> int:
    """Let running systems act and learn: they ask for policies here and leave what they experienced (gRPC).

    `penstock up` starts one beside the server. Ctrl-C ends it; nothing it acknowledged is lost.

    Example: `penstock gateway --port 50051`

    Parameters
    ----------
    host
        Where to listen; other than loopback only with TLS or --insecure.
    port
        0 takes a free one.
    database
        Where tokens are looked up; default: penstock.db under PENSTOCK_HOME.
    tls_cert
        A certificate, with its chain, as PEM.
    tls_key
        Its key, as PEM.
    insecure
        Listen on other addresses than loopback without TLS: something in front of it encrypts.
    idle
        Seconds without experience after which a policy's learner is parked.
    """
    from penstock import config
    from penstock.loop.presence import GATEWAY_LOCK, gateway_of, hold
    from penstock.server.serve import check_place

    if not idle > 0:
        raise ConfigError(f"--idle is a number of seconds above 0, not {idle:g}")
    check_place(host, port, tls_cert, tls_key, insecure)
    home = config.home()
    with hold(home, GATEWAY_LOCK, "gateway", gateway_of, "end it first"):
        return _serve(home, stream, database, idle, json, (host, port, tls_cert, tls_key))


def _serve(
    home: Path, url: str | None, database: str | None, idle: float, json: bool,
    place: tuple[str, int, Path | None, Path | None],
) -> int:  # fmt: skip
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault(
        "GRPC_ENABLE_FORK_SUPPORT", "0"
    )  # children are new programs, never copies of this one
    from penstock.control.tokens import Tokens
    from penstock.executors.local import LocalExecutor
    from penstock.lineage.database import Lineage
    from penstock.loop.gateway.gateway import Gateway
    from penstock.model.spec import KafkaSpec, StreamSpec
    from penstock.server.grpc import Servicer
    from penstock.server.grpc_auth import Gatekeeper
    from penstock.server.grpc_serve import GatewayServer
    from penstock.server.serve import allow_many_files
    from penstock.wiring import default_url, open_stream
    from penstock.worker import end_with_parent

    end_with_parent(signal.SIGTERM)
    os.environ.pop("PENSTOCK_PARENT", None)  # keepers that are started from here outlive it
    allow_many_files()
    # whoever sends waits for the answer: brokers that are away are told soon
    spec = StreamSpec(url=url or default_url(), kafka=KafkaSpec(write_deadline=10.0))
    stream = open_stream(home, spec)
    lineage = Lineage(database or f"sqlite:///{home / 'penstock.db'}")
    policies = Gateway(home, stream, Steers(home, stream), LocalExecutor(), idle)
    try:
        gatekeeper = Gatekeeper(Tokens(home, lineage))
        server = GatewayServer(Servicer(policies, gatekeeper), gatekeeper, *place)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, lambda *_: server.stop())
        policies.resume()
        server.run(lambda port: _greet(home, place[0], port, json))
    finally:
        policies.close()
        (home / "gateway.json").unlink(missing_ok=True)
        lineage.close()
        stream.close()
    return 0


def _greet(home: Path, host: str, port: int, json: bool) -> None:
    from penstock.loop.presence import announce_gateway
    from penstock.view import print_line

    shown = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    address = f"{shown}:{port}"
    announce_gateway(home, address)
    if json:
        print_line({"gateway": address, "token_file": str(home / "token")})
    else:
        print(f"the gateway answers at {address}; token: in {home / 'token'}", flush=True)


class Steers:
    """Begins and steers runs, through the server of this home or alone."""

    def __init__(self, home: Path, stream: "Stream") -> None:
        self._home, self._stream = home, stream

    def start(self, spec: "Spec") -> str:
        """Begin a run; its name once its keeper has it."""
        from penstock import config
        from penstock.model.run import run_id

        if (server := self._server()) is not None:
            run = str(server.ask("POST", "/runs", config.to_mapping(spec))["run"])
        else:
            run = run_id(spec.environment.id, SystemRandom())
            self._launch(run, ["train", "-", "--name", run], config.to_yaml(spec).encode())
        return run

    def discard(self, run: str) -> None:
        """Stop it and remove it."""
        from penstock.control import verbs

        if (server := self._server()) is None:
            verbs.stop(self._home, run, self._stream)
            verbs.delete(self._home, run, self._stream)
            return
        server.ask("POST", f"/runs/{run}/stop")
        until = time.monotonic() + START_SECONDS
        while server.get(f"/runs/{run}")["state"] in ("pending", "running", "stopping"):
            if time.monotonic() > until:
                raise Unavailable(f"run {run} did not end in {START_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        server.ask("DELETE", f"/runs/{run}")

    def scale_learner(self, run: str, learners: int) -> None:
        from penstock.control import verbs
        from penstock.loop.commands import give
        from penstock.model.commands import command

        if not self._is_ours(run):  # the gateway there is gone: its keeper hears the log all the same
            give(self._stream, command(run, "scale", verbs.scaled(learner=learners)))
        elif (server := self._server()) is not None:
            server.ask("POST", f"/runs/{run}/learner", {"learner": learners})
        else:
            verbs.ask(self._home, run, self._stream, "scale", verbs.scaled(learner=learners))

    def revive(self, run: str) -> None:
        """A run that nobody ended and that has no keeper goes on; a server brings back its own."""
        from penstock.loop.runs import RunFolder
        from penstock.model.run import RunState

        if not self._is_ours(run):
            return
        status, server = RunFolder.open(self._home, run).status(), self._server()
        if status.state is not RunState.INTERRUPTED or (status.managed and server is not None):
            return
        if server is not None:
            server.ask("POST", f"/runs/{run}/resume", {})
        else:
            self._launch(run, ["resume", run], None)

    def learns(self, run: str) -> bool:
        from penstock.loop.processes import is_locked

        return is_locked(self._home / "runs" / run / "learner.lock")

    def _is_ours(self, run: str) -> bool:
        """Whether this home keeps the run; on a shared log it may be another's."""
        from penstock.loop.runs import RunFolder

        with contextlib.suppress(NotFound):
            return RunFolder.open(self._home, run) is not None
        return False

    def _server(self) -> Any:
        from penstock import remote

        return remote.server(self._home)

    def _launch(self, run: str, arguments: list[str], spec: bytes | None) -> None:
        """A keeper of its own that outlives this process; returns once it keeps the run."""
        from penstock import launching
        from penstock.loop.runs import RunFolder
        from penstock.model.run import RunState

        launched = launching.launch(self._home, arguments, spec)
        folder, until = RunFolder(self._home, run), time.monotonic() + START_SECONDS
        while launched.process.poll() is None:
            with contextlib.suppress(PenstockError):  # the folder may not be there yet
                status = folder.stored_status()
                kept = status.keeper is not None and status.keeper.pid == launched.process.pid
                if kept and status.state is RunState.RUNNING:
                    return
            if time.monotonic() > until:
                raise Unavailable(f"run {run} did not begin in {START_SECONDS:g} s; see: penstock logs {run}")
            time.sleep(POLL_SECONDS)
        raise ConfigError(launched.last_words())

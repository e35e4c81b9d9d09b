"""`penstock up` and `penstock down`: the whole platform on this machine in one process."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.errors import ConfigError, Conflict, Unavailable
from penstock.flags import Json, StreamUrl
from penstock.gateway_child import GatewayChild

if TYPE_CHECKING:
    from penstock.control.control import Control
    from penstock.server.serve import Server

START_SECONDS = 60.0
END_SECONDS = 100.0
Flag = Annotated[bool, Parameter(negative="")]
Names = Annotated[list[str] | None, Parameter(negative="")]


def up(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    stream: StreamUrl = None,
    database: Annotated[str | None, Parameter(env_var="PENSTOCK_DATABASE")] = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    insecure: Flag = False,
    allow_host: Names = None,
    allow_origin: Names = None,
    max_runs: int = 16,
    gateway_port: int = 50051,
    no_gateway: Flag = False,
    train: str | None = None,
    once: Flag = False,
    detach: Flag = False,
    json: Json = False,
) -> int:
    """Start the platform: REST, live feed, MCP and the controller that keeps runs going.

    Ctrl-C lets every run save its work and end; starting again resumes what was running.

    Examples: `penstock up`, `penstock up --stream kafka://broker:9092 --database postgresql://user@db/penstock`

    Parameters
    ----------
    host
        Where to listen; other than loopback only with TLS or --insecure.
    port
        0 takes a free one.
    database
        postgresql://… or sqlite:////path; default: penstock.db under PENSTOCK_HOME. It is an index: it can be
        removed, and is made again from the runs' folders and the log.
    tls_cert
        A certificate, with its chain, as PEM.
    tls_key
        Its key, as PEM.
    insecure
        Listen on other addresses than loopback without TLS: something in front of it encrypts.
    allow_host
        A name this server is called by besides its own; may be repeated.
    allow_origin
        A page's origin that may use it, as in https://lab.example.org; may be repeated.
    max_runs
        How many runs may go on at once; others wait.
    gateway_port
        Where clients of running systems reach the gateway, on the same host (gRPC); 0 takes a free one.
    no_gateway
        Start none.
    train
        Start a run of this environment, unless one is going on.
    once
        With --train: end when that run has ended.
    detach
        Start it in the background and return once it answers; penstock down ends it.
    """
    from penstock import config

    home = config.home()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if detach:
        return _detach(home, json)
    if max_runs < 1:
        raise ConfigError(f"--max-runs is at least 1, not {max_runs}")
    from penstock.loop.presence import LOCK, hold, server_of
    from penstock.server.hosts import names_of
    from penstock.server.serve import Listener

    with hold(home, LOCK, "server", server_of, "end it: penstock down"):
        listener = Listener(host, port, tls_cert, tls_key, insecure=insecure)
        try:
            control = _control(home, database, stream, max_runs)
        except BaseException:
            listener.close()
            raise
        names = (*names_of(host), *(allow_host or []))
        gateway = None
        if not no_gateway:
            words = [
                "--host",
                host,
                "--port",
                str(gateway_port),
                *_shared_flags(stream, tls_cert, tls_key, insecure),
            ]
            more = {} if database is None else {"PENSTOCK_DATABASE": database}
            gateway = GatewayChild(home, words, more, json)
        return _serve(control, listener, names, tuple(allow_origin or []), train, once, json, gateway)


def down() -> None:
    """End the server of this machine: every run saves its work and ends; `penstock up` resumes them."""
    from penstock import config
    from penstock.loop.presence import server_of

    server = server_of(config.home())
    if server is None:
        raise Conflict("no server runs here; start one: penstock up")
    os.kill(server.process.pid, signal.SIGTERM)
    until = time.monotonic() + END_SECONDS
    while server_of(config.home()) is not None:
        if time.monotonic() > until:
            raise Unavailable(f"the server (pid {server.process.pid}) has not ended in {END_SECONDS:g} s")
        time.sleep(0.05)
    print(f"the server at {server.address} has ended")


def start_server(home: Path) -> str:
    """A server in the background, on a free port where 8080 is taken; its address once it answers."""
    from penstock.loop.presence import server_of

    log = home / "server.log"
    # the same flags as ours, without the one that brought us here
    words = (
        [word for word in sys.argv[1:] if word != "--detach"]
        if "--detach" in sys.argv
        else ["up", "--port", "0"]
    )
    with log.open("ab") as said:
        began = log.stat().st_size
        child = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            env={**os.environ, "PENSTOCK_HOME": str(home)},
        )  # fmt: skip
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        server = server_of(home)
        if server is not None and server.process.pid == child.pid:
            return server.address
        if child.poll() is not None:
            from penstock.loop.supervise import last_words

            raise ConfigError(last_words(log, began) or f"the server could not start; see {log}")
        time.sleep(0.05)
    raise Unavailable(f"the server did not answer in {START_SECONDS:g} s; see {log}")


def _detach(home: Path, json: bool) -> int:
    from penstock.view import print_line

    address = start_server(home)
    print_line({"address": address}) if json else print(
        f"Penstock answers at {address}; end it: penstock down"
    )
    return 0


def _control(home: Path, database: str | None, stream: str | None, max_runs: int) -> "Control":
    from penstock import __version__
    from penstock.control.control import open_control
    from penstock.executors.local import LocalExecutor
    from penstock.model.spec import KafkaSpec, StreamSpec
    from penstock.wiring import default_url, open_stream

    def control_stream(url: str) -> Any:
        # whoever asks waits for the answer: brokers that are away are told soon
        return open_stream(home, StreamSpec(url=url, kafka=KafkaSpec(write_deadline=10.0)))

    return open_control(
        home, __version__, database or f"sqlite:///{home / 'penstock.db'}", stream or default_url(),
        control_stream, lambda spec: open_stream(home, spec.stream), LocalExecutor(), max_runs,
    )  # fmt: skip


def _serve(
    control: "Control", listener: Any, names: tuple[str, ...], origins: tuple[str, ...], train: str | None,
    once: bool, json: bool, gateway: "GatewayChild | None",
) -> int:  # fmt: skip
    from penstock.loop.presence import announce, withdraw
    from penstock.server.app import create_app
    from penstock.server.serve import Server

    interrupts: list[int] = []
    try:
        server = Server(create_app(control, allowed_hosts=names, allowed_origins=origins), listener)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, lambda *_: _on_signal(interrupts, server))
        announce(control.home, listener.address)
        _greet(control, listener.address, json)
        first = _First(control, server, train, once) if train else None
        if gateway is not None:
            gateway.start()
        server.run()
    finally:
        if gateway is not None:
            gateway.close()
        if not json:
            print("saving what runs; Ctrl-C again leaves them to their keepers", file=sys.stderr)
        left = control.close(stop_runs=len(interrupts) < 2)
        withdraw(control.home)
    for run in left:
        print(f"warning: {run} did not end in time; its keeper goes on", file=sys.stderr)
    return first.code if first is not None and once else 0


def _shared_flags(stream: str | None, cert: Path | None, key: Path | None, insecure: bool) -> list[str]:
    """What the gateway is told as the server was."""
    said = {"--stream": stream, "--tls-cert": cert, "--tls-key": key}
    words = [word for flag, value in said.items() if value is not None for word in (flag, str(value))]
    return [*words, *(["--insecure"] if insecure else [])]


def _on_signal(interrupts: list[int], server: "Server") -> None:
    interrupts.append(1)
    server.stop()
    if len(interrupts) > 1:  # somebody is in a hurry: keepers outlive us, and are found again
        os._exit(130)


def _greet(control: "Control", address: str, json: bool) -> None:
    from penstock import __version__
    from penstock.control.tokens import first_token
    from penstock.view import print_line

    secret, file = first_token(control.home)[0], control.home / "token"
    made_now = time.time() - file.stat().st_mtime < START_SECONDS
    if json:
        print_line({"address": address, "token_file": str(file), "version": __version__})
        return
    print(f"Penstock {__version__} answers at {address}")
    # a secret is shown once; later it is only told where it lies
    print(f"token: {secret}  (kept in {file})" if made_now else f"token: in {file}", flush=True)


class _First:
    """The run that `--train` asked for: started once the server answers, told about, waited for."""

    def __init__(self, control: "Control", server: "Server", environment: str, once: bool) -> None:
        self._control, self._server, self._environment, self._once = control, server, environment, once
        self.code = 0
        threading.Thread(target=self._follow, name="first-run", daemon=True).start()

    def _follow(self) -> None:
        from penstock.errors import PenstockError

        try:
            run = self._going_on() or self._start()
            print(f"training {run}: penstock show {run}", flush=True)
            while self._tell(run) and not self._control.controller.closing:
                time.sleep(1.0)
        except PenstockError as error:
            print(f"error: {error}", file=sys.stderr)
            self.code = 1
        if self._once:
            self._server.stop()

    def _going_on(self) -> str | None:
        from penstock.lineage.rows import RunQuery

        query = RunQuery(states=("pending", "running", "interrupted"), environment=self._environment)
        found = [run for run in self._control.reads.runs(query).items if run.managed]
        return found[0].run if found else None

    def _start(self) -> str:
        from penstock.control.permissions import Principal, Role
        from penstock.control.views import StartRequest

        wish = StartRequest(environment=self._environment)
        return self._control.commander.start(Principal("owner", Role.ADMIN), wish).runs[0].run

    def _tell(self, run: str) -> bool:
        """One line about the run; whether it goes on."""
        status = self._control.reads.status(run)
        mean = "-" if status.mean_return is None else f"{status.mean_return:.1f}"
        going = status.state in ("pending", "running", "stopping")
        if going and self._once:
            print(f"{run} {status.state}: {status.steps:,} steps, return {mean}", flush=True)
        elif not going:
            print(
                f"{run} is {status.state}: {status.reason} ({status.steps:,} steps, return {mean})",
                flush=True,
            )
            self.code = 0 if status.state in ("done", "stopped") else 1
        return going

"""The gateway beside a server: a child that is started again when it ends. Its trouble is not the server's."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
CALM_SECONDS = 60.0
"""One that lived so long begins with a short pause again."""
END_SECONDS = 10.0
LOOK_SECONDS = 0.1


class GatewayChild:
    """Starts `penstock gateway`, tells where it answers or why it ended, starts it again; `close` ends it."""

    def __init__(self, home: Path, flags: list[str], environment: dict[str, str], json: bool = False) -> None:
        self._home, self._json = home, json
        self._words = [sys.executable, "-m", "penstock", "gateway", *flags]
        self._environment = environment
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        # it lives as long as the server: the kernel ends the child when the thread that started it ends
        self._thread = threading.Thread(target=self._keep, name="gateway", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ask it to end, then end it."""
        self._ending.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS)

    def _keep(self) -> None:
        from penstock.executors.local import open_log
        from penstock.loop.supervise import last_words

        log, faults, told, address = self._home / "gateway.log", 0, "", ""
        while not self._ending.is_set():
            with open_log(log) as said:
                start, began = log.stat().st_size, time.monotonic()
                environment = {
                    **os.environ,
                    "PENSTOCK_HOME": str(self._home),
                    "PENSTOCK_PARENT": str(os.getpid()),
                }
                self._process = subprocess.Popen(
                    self._words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                    env=environment | self._environment,
                )  # fmt: skip
            if (now := self._address(self._process)) not in ("", address) or (now and told):
                address, told = now, ""  # what comes back where it was is told only after trouble was
                self._tell(address)
            code = self._process.wait()
            if self._ending.is_set():
                return
            faults = 0 if time.monotonic() - began > CALM_SECONDS else faults + 1
            reason = last_words(log, start) or f"it ended with exit code {code}; see {log}"
            if reason != told:  # a port that stays taken is told once
                told = reason
                print(f"warning: the gateway is down: {reason}", file=sys.stderr, flush=True)
            self._ending.wait(BACKOFF_SECONDS[min(max(0, faults - 1), len(BACKOFF_SECONDS) - 1)])

    def _address(self, process: "subprocess.Popen[bytes]") -> str:
        """Where it answers, once it does; empty where it ends before."""
        from penstock.loop.presence import gateway_of

        while process.poll() is None and not self._ending.is_set():
            presence = gateway_of(self._home)
            if presence is not None and presence.process.pid == process.pid:
                return presence.address
            self._ending.wait(LOOK_SECONDS)
        return ""

    def _tell(self, address: str) -> None:
        """Where clients of running systems connect; its port may have been chosen by the system."""
        from penstock.view import print_line

        if self._json:
            print_line({"gateway": address})
        else:
            print(f"clients reach the gateway at {address} (the same token)", flush=True)

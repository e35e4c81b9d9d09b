"""The keeper: the process that supervises one run's actors and learner.

Reads from: `metrics.*` and `commands.control`. Writes to: the run's folder (state, metrics, events).
`penstock train` is a keeper in the foreground. Its workers end when it ends.
"""

import fcntl
import os
import signal
import time
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from penstock.errors import Conflict, Unavailable
from penstock.executors.base import Executor, Exit, Worker, WorkerSpec
from penstock.loop.beat import Pulse
from penstock.loop.commands import CommandReader
from penstock.loop.evaluator import LAST_SECONDS, Evaluator
from penstock.loop.files import write_atomically
from penstock.loop.hearing import Hearing, actor_row
from penstock.loop.presence import server_of
from penstock.loop.processes import identify
from penstock.loop.prometheus import Endpoint
from penstock.loop.registry import RunRecord
from penstock.loop.runs import RunFolder
from penstock.loop.supervise import Fault, Supervised
from penstock.model.commands import LIFECYCLE, Command, Desired
from penstock.model.run import RunState, RunStatus
from penstock.stream.base import Stream

TICK_SECONDS = 0.05
STATUS_SECONDS = 1.0
DRAIN_SECONDS = 60.0
ACTOR_DRAIN_SECONDS = 3.0

Watcher = Callable[["Keeper"], None]
"""Shown the keeper several times a second: the display, or nothing."""


class Keeper:
    """Keeps one run going until it is done, stopped, or cannot go on."""

    def __init__(
        self, folder: RunFolder, record: RunRecord, stream: Stream, executor: Executor, watch: Watcher,
        *, managed: bool = False,
    ) -> None:  # fmt: skip
        spec = record.spec
        self.folder, self.spec = folder, spec
        self.status: RunStatus = folder.stored_status()
        self.events: list[dict[str, Any]] = []
        self._stream, self._executor, self._watch = stream, executor, watch
        self._lock = _only_keeper(folder)
        self._supervised: dict[int, Supervised] = {}
        self._leaving: dict[Worker, float] = {}
        """Actors that were asked to end, and until when they may take their time."""
        self._managed = managed
        """Whether a server started it: it may go on without one for a while, and is handed back after that."""
        self._served_at = time.monotonic()
        self._saved_at = 0.0
        self._restarts_before = self.status.restarts
        self._interrupts = 0
        self._unwritten: str | None = None
        """Why the last word could not be written down."""
        self._asked: Worker | None = None
        """The learner that was asked to end."""
        self._failure: str | None = None
        self._stop_reason: str | None = None
        self._commands = CommandReader(
            stream, folder.run, record.commands, spec.actors.count, spec.learner.count
        )
        self._commands.catch_up()
        self._honoured = self._commands.desired.command
        """The last word on whether to go on that this keeper followed; one that came while it ended is not."""
        self.heard = Hearing(stream, folder, spec.tensorboard, self._told)
        self._endpoint = Endpoint(self, spec.prometheus)
        self._learner = self._new_learner()
        self._evaluator = Evaluator(executor, folder, spec.evaluation, self._place())

    # -- the main path ---------------------------------------------------------------------------

    def run(self) -> RunStatus:
        """Supervise to the end; return the status as it was written last."""
        self._listen_to_signals()
        now = time.time()
        self.status = msgspec.structs.replace(
            self.status, keeper=identify(), started_at=self.status.started_at or now, ended_at=None,
            managed=self._managed,
        )  # fmt: skip
        self._become(RunState.RUNNING)
        if self._endpoint.address:
            self._event("keeper", "prometheus", address=self._endpoint.address)
        try:
            self._look_after(self._learner)
            while not self._over():
                self._tick()
            self._end()
        except BaseException:
            self._kill_all()
            raise
        finally:
            self._endpoint.close()
            self.heard.close()
            self._lock.close()
        return self.status

    def interrupt(self, *_: object) -> None:
        """Once: drain, save and end. Twice: end now."""
        self._interrupts += 1
        if self._interrupts == 1:
            self.stop("the server was shut down" if self._managed else "interrupted by Ctrl-C")

    def stop(self, reason: str) -> None:
        """Let the learner save its work, then end."""
        if self._stop_reason is None:
            self._stop_reason = reason
            if self.status.state in (RunState.RUNNING, RunState.PAUSED):
                self._become(RunState.STOPPING, reason)
            self._stop_began = time.monotonic()
            self._ask_learner()

    def _ask_learner(self) -> None:
        """Ask it to save and end, once; a signal may come while it is just being started."""
        if self._learner.worker is not None and self._asked is not self._learner.worker:
            self._asked = self._learner.worker
            self._asked.stop()

    @property
    def _desired(self) -> Desired:
        return self._commands.desired

    @property
    def restarts(self) -> int:
        """Of actors and learner, since the run began."""
        return (
            self._restarts_before
            + self._learner.restarts
            + sum(item.restarts for item in self._supervised.values())
        )

    def _tick(self) -> None:
        self.heard.listen(TICK_SECONDS)
        self._obey()
        if self._stop_reason is not None:
            self._ask_learner()
        self._fit_actors()
        for supervised in (self._learner, *self._supervised.values()):
            if self._stop_reason is None and (fault := self._look_after(supervised)):
                self._note_fault(fault)
        self._fit_learner()
        self._rest_without_learner()
        for worker, until in list(self._leaving.items()):
            if worker.poll() is not None or time.monotonic() > until:
                worker.kill()
                del self._leaving[worker]
        self._evaluator.tick(None if self._stop_reason else self.heard.report.get("checkpoint"))
        if time.monotonic() - self._saved_at > STATUS_SECONDS:
            self._mind_the_folder()
            self._save_status()
            self._save_actors()
            self._mind_the_server()
        self._watch(self)

    def _over(self) -> bool:
        if self._interrupts > 1 or self._learner.ended not in (None, Exit.REPLACED):
            return True
        if self._learner.ended == Exit.REPLACED:  # somebody else's learner leads now; its actors stay ours
            return self._stop_reason is not None or bool(self.heard.report.get("final"))
        if self._stop_reason is None:
            return False
        worker = self._learner.worker
        drained = worker is None or worker.poll() is not None
        return drained or time.monotonic() - self._stop_began > DRAIN_SECONDS

    # -- looking after workers -------------------------------------------------------------------

    def _fit_actors(self) -> None:
        """Start actors that are wanted, let go of those that are not."""
        wanted = self._desired.actors
        for slot in [slot for slot in self._supervised if slot >= wanted]:
            leaving = self._supervised.pop(slot)
            self._restarts_before += leaving.restarts
            if leaving.worker is not None:
                leaving.worker.stop()
                self._leaving[leaving.worker] = time.monotonic() + ACTOR_DRAIN_SECONDS
        for slot in range(wanted):
            if slot not in self._supervised and self._stop_reason is None:
                pulse = Pulse(self.folder.path / "beats" / str(slot))
                self._supervised[slot] = Supervised(
                    self._executor, self._worker("actor", slot), self.spec.actors.restarts, pulse,
                    self.spec.environment.step_limit_seconds, may_end=False,
                )  # fmt: skip

    def _fit_learner(self) -> None:
        """Park the learner where none is wanted: it saves its work and ends; the actors wait for the next."""
        learner = self._learner
        if self._stop_reason is None and self._desired.learner == 0:
            self._ask_learner()
        if learner.ended == Exit.DRAINED and self._stop_reason is None and self._asked is not None:
            self._restarts_before += learner.restarts
            self._learner, self._asked = self._new_learner(), None
            self._event("keeper", "learner_parked")

    def _look_after(self, supervised: Supervised) -> Fault | None:
        if supervised is self._learner and supervised.worker is None and self._desired.learner == 0:
            return None
        return supervised.tick()

    def _new_learner(self) -> Supervised:
        return Supervised(self._executor, self._worker("learner"), self.spec.learner.restarts)

    def _mind_the_folder(self) -> None:
        """Somebody may have removed the run by hand, or made another of its name: then nothing here is wanted."""
        held = os.fstat(self._lock.fileno())
        try:
            is_ours = os.path.samestat(os.stat(self.folder.lock_file), held)
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise Conflict(f"the folder of run {self.folder.run} was removed while it ran; all of it ends")

    def _mind_the_server(self) -> None:
        """Without a server for its grace a managed run saves its work; the next server resumes it."""
        if not self._managed or self._stop_reason is not None:
            return
        now, grace = time.monotonic(), self.spec.keeper.grace
        if server_of(self.folder.home) is not None:
            self._served_at = now
        elif now - self._served_at > grace:
            self._interrupts = max(1, self._interrupts)
            self.stop(f"there was no server for {grace:g} s (keeper.grace)")

    def _note_fault(self, fault: Fault) -> None:
        self._event(
            fault.name, "worker_failed" if fault.hopeless else "worker_restarted", reason=fault.reason
        )
        if fault.hopeless and self._failure is None:
            self._failure = fault.reason if fault.exit == Exit.HOPELESS else f"{fault.name}: {fault.reason}"
            self.stop(self._failure)

    def _worker(self, role: str, slot: int | None = None) -> WorkerSpec:
        name = role if slot is None else f"{role}-{slot}"
        arguments = (role, self.folder.run) if slot is None else (role, self.folder.run, str(slot))
        group = self.spec.learner if role == "learner" else self.spec.actors
        return WorkerSpec(
            name, arguments, self.folder.log_file(name), group.threads, group.nice, group.cpus,
            group.memory_bytes, self._place(),
        )  # fmt: skip

    def _place(self) -> dict[str, str]:
        """Where workers find the run."""
        return {"PENSTOCK_HOME": str(self.folder.home), "PENSTOCK_STREAM": self._stream.url}

    def _evaluate_last(self) -> None:
        """Give the last checkpoint its chance to be the best, where others had theirs."""
        until = time.monotonic() + LAST_SECONDS
        for _ in ("the one under way", "the last"):
            while self._evaluator.busy():
                if self._interrupts or time.monotonic() > until:
                    return
                time.sleep(0.05)
            self._evaluator.due_now()
            self._evaluator.tick(self.heard.report.get("checkpoint"))

    # -- commands and reports --------------------------------------------------------------------

    def _obey(self) -> None:
        for command in self._commands.read():
            self._tell_of(command)
            if command.verb in LIFECYCLE and self._stop_reason is None:
                self._honoured = command.id
            if command.verb in ("stop", "delete"):
                self.stop(f"stopped by {command.who}")
        if self._desired.state in ("stopped", "deleted"):
            self.stop("it was stopped before it began")

    def _tell_of(self, command: Command) -> None:
        self._event(
            "keeper",
            "command",
            id=command.id,
            verb=command.verb,
            who=command.who,
            arguments=command.arguments,
        )

    def _told(self, process: str, event: str, fields: dict[str, Any]) -> None:
        """An event that a worker tells of."""
        self._event(process, event, **fields)
        self._rest_or_go_on(event)

    def _rest_or_go_on(self, event: str) -> None:
        """A pause has taken effect once the learner says so."""
        if event == "paused" and self.status.state is RunState.RUNNING:
            self._become(RunState.PAUSED, "paused; nothing is lost while it rests")
        elif event == "unpaused" and self.status.state is RunState.PAUSED:
            self._become(RunState.RUNNING)

    def _rest_without_learner(self) -> None:
        """A pause of a run whose learner is parked has taken effect at once."""
        if self._learner.worker is None and self._desired.learner == 0 and self._stop_reason is None:
            self._rest_or_go_on("paused" if self._desired.state == "paused" else "unpaused")

    def _event(self, process: str, event: str, **fields: Any) -> None:
        self._store(lambda: self.folder.append_event(event, process=process, **fields))
        self.events = [
            *self.events[-19:],
            {"time": time.time(), "process": process, "event": event, **fields},
        ]

    # -- state -----------------------------------------------------------------------------------

    def _become(self, state: RunState, reason: str | None = None) -> None:
        self.status = self.status.to(state, reason)
        self._event("keeper", "state", state=str(state), reason=reason)
        self._save_status()

    def _save_status(self) -> None:
        self._saved_at = time.monotonic()
        self.status = msgspec.structs.replace(
            self.status, actors=self._desired.actors, restarts=self.restarts, command=self._honoured
        )
        if self.heard.report:
            seconds, steps = self.heard.report["seconds"], self.heard.report["steps"]
            self.status = msgspec.structs.replace(
                self.status,
                steps=steps,
                episodes=self.heard.report["episodes"],
                mean_return=self.heard.report["values"].get("charts/episodic_return"),
                updates=self.heard.report["updates"],
                version=self.heard.report["version"],
                seconds=seconds,
                steps_per_second=steps / seconds if seconds else 0.0,
                weights_sha256=self.heard.report["weights_sha256"],
                checkpoint=str(self.heard.report["checkpoint"]).rsplit("/", 1)[-1] or None,
            )
        self._store(lambda: self.folder.save_status(self.status))

    def _save_actors(self) -> None:
        """What each actor told last, for those who look from outside."""
        slots = sorted(self.heard.actors.keys() | self._supervised.keys())
        rows = [actor_row(slot, self.heard.actors.get(slot), self._supervised.get(slot)) for slot in slots]
        content = msgspec.json.encode(rows)
        self._store(lambda: write_atomically(self.folder.actors_file, content, synced=False))

    def _store(self, write: Callable[[], None]) -> None:
        """Write into the run's folder; a full disk must not end those who still work."""
        try:
            write()
            self._unwritten = None
        except OSError as error:
            self._unwritten = f"cannot write into {self.folder.path}: {error.strerror}; free some space"

    def _end(self) -> None:
        """End all workers, write the last state."""
        code, worker = self._learner.ended, self._learner.worker
        if code is None and worker is not None:
            code = worker.poll()
        if code is None and worker is None and self._desired.learner == 0:
            code = Exit.DRAINED  # it was parked: all is saved
        self._stop_actors()
        self.heard.listen(TICK_SECONDS)
        if code == Exit.FINISHED and self.folder.best() is not None:
            self._evaluate_last()
        self._kill_all()
        state, reason = self._outcome(code)
        self.status = msgspec.structs.replace(self.status, ended_at=time.time())
        self._become(state, reason)
        self._watch(self)
        if self._unwritten is not None:
            raise Unavailable(self._unwritten)

    def _outcome(self, code: int | None) -> tuple[RunState, str]:
        if self._failure is not None:
            return RunState.FAILED, self._failure
        if self._interrupts > 1:
            return RunState.INTERRUPTED, "ended at once by a second Ctrl-C; what was acknowledged is kept"
        if code == Exit.FINISHED:
            return RunState.DONE, self.heard.report.get("reason") or "a stop condition held"
        if code == Exit.REPLACED:
            if self.heard.report.get("reason"):
                return RunState.DONE, self.heard.report["reason"]
            return RunState.STOPPED, self._stop_reason or "the learner that had taken over was stopped"
        if code == Exit.DRAINED and self._managed and self._interrupts and self._desired.state == "paused":
            return RunState.PAUSED, "paused; its processes ended with the server"
        if code == Exit.DRAINED and self._managed and self._interrupts:
            return RunState.INTERRUPTED, f"{self._stop_reason}; the next one resumes it"
        if code == Exit.DRAINED:
            return RunState.STOPPED, self._stop_reason or "the learner was asked to end"
        if not self.heard.report:
            return RunState.STOPPED, f"{self._stop_reason}, before anything was learned"
        return RunState.INTERRUPTED, f"{self._stop_reason}; the learner did not save its work in time"

    def _stop_actors(self) -> None:
        workers = [item.worker for item in self._supervised.values() if item.worker is not None]
        workers += self._leaving
        for worker in workers:
            worker.stop()
        until = time.monotonic() + ACTOR_DRAIN_SECONDS
        while (
            any(worker.poll() is None for worker in workers)
            and time.monotonic() < until
            and self._interrupts < 2
        ):
            time.sleep(0.005)

    def _kill_all(self) -> None:
        for item in (self._learner, *self._supervised.values()):
            if item.worker is not None:
                item.worker.kill()
        for worker in self._leaving:
            worker.kill()
        self._evaluator.kill()

    def _listen_to_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, self.interrupt)


def _only_keeper(folder: RunFolder) -> TextIO:
    """Hold the run's lock; raise Conflict when another keeper has it."""
    lock = folder.lock_file.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        keeper = folder.stored_status().keeper
        who = f"process {keeper.pid}" if keeper else "another process"
        raise Conflict(
            f"run {folder.run} is kept by {who}; stop it first: penstock stop {folder.run}"
        ) from error
    return lock

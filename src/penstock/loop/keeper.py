"""The keeper: the process that supervises one run's actors and learner.

Reads from: `metrics.*` and `commands.control`. Writes to: the run's folder (state, metrics, events).
`penstock train` is a keeper in the foreground. Its workers end when it ends.
"""

import contextlib
import fcntl
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from penstock.errors import Conflict, Unavailable
from penstock.executors.base import Executor, Exit, Worker, WorkerSpec
from penstock.loop.beat import Pulse
from penstock.loop.commands import CommandReader, actors_of
from penstock.loop.metrics import MetricsWriter
from penstock.loop.processes import identify
from penstock.loop.prometheus import Endpoint
from penstock.loop.registry import RunRecord
from penstock.loop.runs import RunFolder
from penstock.loop.supervise import Fault, Supervised
from penstock.model import topics
from penstock.model.codec import Frame, decode
from penstock.model.run import RunState, RunStatus
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader

TICK_SECONDS = 0.05
STATUS_SECONDS = 1.0
DRAIN_SECONDS = 60.0
ACTOR_DRAIN_SECONDS = 3.0
LAST_EVALUATION_SECONDS = 60.0
RETURNS_SHOWN = 1000

Watcher = Callable[["Keeper"], None]
"""Shown the keeper several times a second: the display, or nothing."""


class Keeper:
    """Keeps one run going until it is done, stopped, or cannot go on."""

    def __init__(
        self, folder: RunFolder, record: RunRecord, stream: Stream, executor: Executor, watch: Watcher
    ) -> None:
        spec = record.spec
        self.folder, self.spec = folder, spec
        self.status: RunStatus = folder.stored_status()
        self.report: dict[str, Any] = {}
        """The learner's newest report."""
        self.actors: dict[int, dict[str, Any]] = {}
        """The newest report of each slot, guests included."""
        self.events: list[dict[str, Any]] = []
        self.returns: deque[float] = deque(maxlen=RETURNS_SHOWN)
        """Mean returns so far, for the eye."""
        self.steps_per_second = 0.0
        """Lately: smoothed over some seconds."""
        self.bytes_per_second = 0.0
        """Read by the learner, lately."""
        self._stream, self._executor, self._watch = stream, executor, watch
        self._lock = _only_keeper(folder)
        self._supervised: dict[int, Supervised] = {}
        self._leaving: dict[Worker, float] = {}
        """Actors that were asked to end, and until when they may take their time."""
        self._evaluator: Worker | None = None
        self._evaluated_at = time.monotonic()
        self._saved_at = 0.0
        self._restarts_before = self.status.restarts
        self._interrupts = 0
        self._unwritten: str | None = None
        """Why the last word could not be written down."""
        self._asked: Worker | None = None
        """The learner that was asked to end."""
        self._failure: str | None = None
        self._stop_reason: str | None = None
        self._commands = CommandReader(stream, folder.run, record.commands)
        self._wanted = self._count_wanted()
        self._reports = [
            RecordReader(stream, topic, _decode_report, stream.end(topic))
            for topic in (topics.METRICS_TRAINING, topics.METRICS_ACTORS)
        ]
        self._metrics = MetricsWriter(folder.path, spec.tensorboard)
        self._endpoint = Endpoint(self, spec.prometheus)
        self._learner = Supervised(executor, self._worker("learner"), spec.learner.restarts)

    # -- the main path ---------------------------------------------------------------------------

    def run(self) -> RunStatus:
        """Supervise to the end; return the status as it was written last."""
        self._listen_to_signals()
        now = time.time()
        self.status = msgspec.structs.replace(
            self.status, keeper=identify(), started_at=self.status.started_at or now, ended_at=None
        )
        self._become(RunState.RUNNING)
        if self._endpoint.address:
            self._event("keeper", "prometheus", address=self._endpoint.address)
        try:
            self._learner.tick()
            while not self._over():
                self._tick()
            self._end()
        except BaseException:
            self._kill_all()
            raise
        finally:
            self._endpoint.close()
            self._metrics.close()
            self._lock.close()
        return self.status

    def interrupt(self, *_: object) -> None:
        """Once: drain, save and end. Twice: end now."""
        self._interrupts += 1
        if self._interrupts == 1:
            self.stop("interrupted by Ctrl-C")

    def stop(self, reason: str) -> None:
        """Let the learner save its work, then end."""
        if self._stop_reason is None:
            self._stop_reason = reason
            if self.status.state is RunState.RUNNING:
                self._become(RunState.STOPPING, reason)
            self._stop_began = time.monotonic()
            self._ask_learner()

    def _ask_learner(self) -> None:
        """Ask it to save and end, once; a signal may come while it is just being started."""
        if self._learner.worker is not None and self._asked is not self._learner.worker:
            self._asked = self._learner.worker
            self._asked.stop()

    @property
    def restarts(self) -> int:
        """Of actors and learner, since the run began."""
        return (
            self._restarts_before
            + self._learner.restarts
            + sum(item.restarts for item in self._supervised.values())
        )

    def flow(self) -> dict[str, float]:
        """What all actors together sent through the stream since they started."""
        flows = [report["stream"] for report in self.actors.values() if "stream" in report]
        names = ("produced_records", "produced_bytes", "waits", "waited_seconds")
        return {f"stream/actors/{name}": sum(flow[name] for flow in flows) for name in names}

    def _tick(self) -> None:
        self._read_reports()
        self._obey()
        if self._stop_reason is not None:
            self._ask_learner()
        self._fit_actors()
        for supervised in (self._learner, *self._supervised.values()):
            if self._stop_reason is None and (fault := supervised.tick()):
                self._note_fault(fault)
        for worker, until in list(self._leaving.items()):
            if worker.poll() is not None or time.monotonic() > until:
                worker.kill()
                del self._leaving[worker]
        self._evaluate_if_due()
        if time.monotonic() - self._saved_at > STATUS_SECONDS:
            self._save_status()
        self._watch(self)

    def _over(self) -> bool:
        if self._interrupts > 1 or self._learner.ended not in (None, Exit.REPLACED):
            return True
        if self._learner.ended == Exit.REPLACED:  # somebody else's learner leads now; its actors stay ours
            return self._stop_reason is not None or bool(self.report.get("final"))
        if self._stop_reason is None:
            return False
        worker = self._learner.worker
        drained = worker is None or worker.poll() is not None
        return drained or time.monotonic() - self._stop_began > DRAIN_SECONDS

    # -- looking after workers -------------------------------------------------------------------

    def _fit_actors(self) -> None:
        """Start actors that are wanted, let go of those that are not."""
        for slot in [slot for slot in self._supervised if slot >= self._wanted]:
            leaving = self._supervised.pop(slot)
            self._restarts_before += leaving.restarts
            if leaving.worker is not None:
                leaving.worker.stop()
                self._leaving[leaving.worker] = time.monotonic() + ACTOR_DRAIN_SECONDS
        for slot in range(self._wanted):
            if slot not in self._supervised and self._stop_reason is None:
                pulse = Pulse(self.folder.path / "beats" / str(slot))
                self._supervised[slot] = Supervised(
                    self._executor, self._worker("actor", slot), self.spec.actors.restarts, pulse,
                    self.spec.environment.step_limit_seconds, may_end=False,
                )  # fmt: skip

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
        place = {"PENSTOCK_HOME": str(self.folder.home), "PENSTOCK_STREAM": self._stream.url}
        return WorkerSpec(name, arguments, self.folder.log_file(name), group.threads, group.nice, place)

    def _evaluate_if_due(self) -> None:
        """Evaluate the newest checkpoint now and then, in a process that yields to the others."""
        if self._evaluator is not None and self._evaluator.poll() is None:
            return
        self._evaluator = None
        every, newest = self.spec.evaluation.every_seconds, self.report.get("checkpoint")
        if not every or not newest or self._stop_reason or time.monotonic() - self._evaluated_at < every:
            return
        self._evaluated_at = time.monotonic()
        version = str(newest).rsplit("/", 1)[-1]
        arguments = ("evaluate", self.folder.run, version, str(self.spec.evaluation.episodes))
        self._evaluator = self._executor.launch(
            WorkerSpec(
                "evaluator",
                arguments,
                self.folder.log_file("evaluator"),
                1,
                10,
                self._learner.spec.environment,
            )
        )

    def _evaluate_last(self) -> None:
        """Give the last checkpoint its chance to be the best, where others had theirs."""
        until = time.monotonic() + LAST_EVALUATION_SECONDS
        for _ in ("the one under way", "the last"):
            while self._evaluator is not None and self._evaluator.poll() is None:
                if self._interrupts or time.monotonic() > until:
                    return
                time.sleep(0.05)
            self._evaluated_at = float("-inf")
            self._evaluate_if_due()

    # -- commands and reports --------------------------------------------------------------------

    def _obey(self) -> None:
        for command in self._commands.read():
            self._event("keeper", "command", verb=command.verb, who=command.who, arguments=command.arguments)
            if command.verb == "stop":
                self.stop(f"stopped by {command.who}")
            elif command.verb == "scale" and (count := actors_of(command)) is not None:
                self._wanted = count

    def _count_wanted(self) -> int:
        """Actors wanted after all commands so far; old stops no longer matter."""
        wanted = self.spec.actors.count
        for command in self._commands.read_all():
            if command.verb == "scale" and (count := actors_of(command)) is not None:
                wanted = count
        return wanted

    def _read_reports(self) -> None:
        wait = TICK_SECONDS
        for reader in self._reports:
            for record, report in reader.read(256, wait):
                if record.key == self.folder.run:
                    # anybody may write into a shared topic: an odd report is passed over, nobody ends for it
                    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                        self._take(report)
            wait = 0.0

    def _take(self, report: dict[str, Any]) -> None:
        if "event" in report:
            self._event(report.get("process", ""), report["event"], **report.get("fields", {}))
        elif "values" in report:
            self._look(report)
            self.report = report
            words = {
                name: report[name] for name in ("steps", "seconds", "time", "episodes", "updates", "version")
            }
            self._metrics.write(words | report["values"] | self.flow())
        elif "slot" in report:
            self.actors[report["slot"]] = report

    def _look(self, report: dict[str, Any]) -> None:
        """Smooth the rate, remember the return."""
        if (mean := report["values"].get("charts/episodic_return")) is not None:
            self.returns.append(mean)
        before, now = self.report, report
        if before and now["time"] > before["time"]:
            read = [told["values"].get("stream/consumed_bytes", 0) for told in (before, now)]
            flow = max(0, read[1] - read[0]) / (now["time"] - before["time"])  # a new learner counts from 0
            self.bytes_per_second += (flow - self.bytes_per_second) * 0.1
        rate = report["values"]["charts/SPS"]
        self.steps_per_second += (rate - self.steps_per_second) * (0.1 if self.steps_per_second else 1.0)

    def _event(self, process: str, event: str, **fields: Any) -> None:
        self._store(lambda: self.folder.append_event(event, process=process, **fields))
        self.events = [
            *self.events[-19:],
            {"time": time.time(), "process": process, "event": event, **fields},
        ]

    # -- state -----------------------------------------------------------------------------------

    def _become(self, state: RunState, reason: str | None = None) -> None:
        self.status = self.status.to(state, reason)
        self._save_status()

    def _save_status(self) -> None:
        self._saved_at = time.monotonic()
        self.status = msgspec.structs.replace(self.status, actors=self._wanted, restarts=self.restarts)
        if self.report:
            seconds, steps = self.report["seconds"], self.report["steps"]
            self.status = msgspec.structs.replace(
                self.status,
                steps=steps,
                episodes=self.report["episodes"],
                mean_return=self.report["values"].get("charts/episodic_return"),
                updates=self.report["updates"],
                version=self.report["version"],
                seconds=seconds,
                steps_per_second=steps / seconds if seconds else 0.0,
                weights_sha256=self.report["weights_sha256"],
                checkpoint=str(self.report["checkpoint"]).rsplit("/", 1)[-1] or None,
            )
        self._store(lambda: self.folder.save_status(self.status))

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
        self._stop_actors()
        self._read_reports()
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
            return RunState.DONE, self.report.get("reason") or "a stop condition held"
        if code == Exit.REPLACED:
            if self.report.get("reason"):
                return RunState.DONE, self.report["reason"]
            return RunState.STOPPED, self._stop_reason or "the learner that had taken over was stopped"
        if code == Exit.DRAINED:
            return RunState.STOPPED, self._stop_reason or "the learner was asked to end"
        if not self.report:
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
        for worker in (*self._leaving, self._evaluator):
            if worker is not None:
                worker.kill()

    def _listen_to_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.interrupt)


def _only_keeper(folder: RunFolder) -> TextIO:
    """Hold the run's lock; raise Conflict when another keeper has it."""
    lock = (folder.path / "keeper.lock").open("a+")
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


def _decode_report(frame: Frame) -> dict[str, Any]:
    return decode(frame, dict[str, Any])

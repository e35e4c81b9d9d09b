"""Reading and writing the Standard Workload Format, version 2.2 (Chapin et al., 1999).

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html: header comments begin with `;`, a job is a line
of 18 numbers, −1 is unknown. Of these we use submit time (2), run time (4), allocated (5) and requested (8)
processors and requested time (9).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workload import Workload

FIELDS = 18
MAX_LINE = 4096
MAX_JOBS = 5_000_000
"""Far above the largest log of the Parallel Workloads Archive, and what memory takes lightly."""


class SwfError(ValueError):
    """A file that is not in the Standard Workload Format; its text names the line."""


@dataclass(frozen=True)
class Dropped:
    """Jobs of a file that cannot be scheduled, by reason."""

    no_runtime: int = 0
    """Cancelled before they ran, or unknown."""
    no_processors: int = 0
    too_large: int = 0
    """Wider than the machine."""

    @property
    def total(self) -> int:
        return self.no_runtime + self.no_processors + self.too_large


@dataclass(frozen=True)
class Log:
    """What a file holds."""

    workload: Workload
    header: dict[str, str]
    dropped: Dropped


def read(path: Path, processors: int | None = None) -> Log:
    """The jobs of a file; `processors` replaces what its header says of the machine.

    A job without a requested time is taken at its run time, one without requested processors at those it
    got. Raise SwfError for a line that is not of the format.
    """
    header: dict[str, str] = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        jobs = list(_jobs(_capped(lines, path), header, path))
    size = processors if processors is not None else _machine(header, path)
    dropped, kept = {"no_runtime": 0, "no_processors": 0, "too_large": 0}, []
    for job in jobs:
        reason = _unusable(job, size)
        if reason is None:
            kept.append(job)
        else:
            dropped[reason] += 1
    if not kept:
        raise SwfError(f"{path} holds no job that can run on {size} processors ({len(jobs)} were dropped)")
    kept.sort(key=lambda job: job[0])  # the format asks for it; some logs do not keep to it
    submit, run, request, procs = (np.array(column) for column in zip(*kept, strict=True))
    workload = Workload(size, submit, run, request, procs.astype(np.int64))
    return Log(workload, header, Dropped(**dropped))


def write(path: Path, workload: Workload, note: str = "") -> None:
    """A file that `read` gives back; what a model does not know is −1."""
    header = {
        "Version": "2.2",
        "MaxJobs": len(workload),
        "MaxRecords": len(workload),
        "MaxNodes": workload.processors,
        "MaxProcs": workload.processors,
    }
    if note:
        header["Note"] = " ".join(note.split())
    lines = [f"; {name}: {value}" for name, value in header.items()]
    columns = (workload.submit, workload.run, workload.request, workload.procs)
    for number, (submit, run, request, procs) in enumerate(
        zip(*map(np.ndarray.tolist, columns), strict=True)
    ):
        lines.append(
            f"{number + 1} {submit:.15g} -1 {run:.15g} {procs} -1 -1 {procs} {request:.15g} "
            "-1 1 -1 -1 -1 -1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


Job = tuple[float, float, float, float]
"""Submit time, run time, requested time, processors."""


def _capped(lines: Iterable[str], path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            raise SwfError(f"{path}, line {number}: {len(line)} characters; a line has at most {MAX_LINE}")
        yield number, line.strip()


def _jobs(lines: Iterator[tuple[int, str]], header: dict[str, str], path: Path) -> Iterator[Job]:
    count = 0
    for number, line in lines:
        if line.startswith(";"):
            found = re.match(r";\s*(\w+):\s*(.*)", line)
            if found:
                header.setdefault(found[1], found[2].strip())
        elif line:
            count += 1
            if count > MAX_JOBS:
                raise SwfError(f"{path}, line {number}: more than {MAX_JOBS} jobs; cut the file")
            yield _job(line, f"{path}, line {number}")


def _job(line: str, place: str) -> Job:
    words = line.split()
    if len(words) != FIELDS:
        raise SwfError(f"{place}: {len(words)} fields; a job has {FIELDS}")
    try:
        numbers = [float(word) for word in words]
    except ValueError as error:
        raise SwfError(f"{place}: a field is no number ({error})") from error
    if not np.isfinite(numbers).all():
        raise SwfError(f"{place}: a field is not finite")
    submit, run, allocated, requested, request = (numbers[i] for i in (1, 3, 4, 7, 8))
    if submit < 0:
        raise SwfError(f"{place}: the submit time (field 2) is {submit:g}; it must be 0 or later")
    procs = requested if requested > 0 else allocated
    if procs != int(procs):
        raise SwfError(f"{place}: {procs:g} processors; give a whole number in field 5 or 8")
    return submit, run, request if request > 0 else run, procs


def _unusable(job: Job, processors: int) -> str | None:
    _, run, _, procs = job
    if run <= 0:
        return "no_runtime"
    if procs <= 0:
        return "no_processors"
    return "too_large" if procs > processors else None


def _machine(header: dict[str, str], path: Path) -> int:
    for name in ("MaxProcs", "MaxNodes"):
        digits = re.match(r"\d+", header.get(name, ""))
        if digits and int(digits[0]) > 0:
            return int(digits[0])
    raise SwfError(f"{path} does not say how large the machine is; add '; MaxProcs: N' or pass processors")

"""Checkpoints: list them, and download one as a tar."""

import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

from fastapi import Path as PathParameter
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.control.views import CheckpointView
from penstock.errors import NotFound
from penstock.server.rest.parts import ControlDep, Run, answer, make_router

router = make_router("checkpoints")

CHUNK_BYTES = 256 << 10
MEDIA_TYPE = "application/x-tar"
WHOLE = "checkpoint.json"
"""A checkpoint without this file is none."""
CheckpointVersion = Annotated[
    str,
    PathParameter(
        pattern=r"^(best|newest|[0-9]{1,18}\.[0-9]{1,18})$", description="best, newest or EPOCH.STEP."
    ),
]


@router.get("/runs/{run}/checkpoints", response_model=list[CheckpointView])
def list_checkpoints(control: ControlDep, run: Run) -> Response:
    """The checkpoints a run has kept, newest first."""
    return answer(control.reads.checkpoints(run))


@router.get(
    "/runs/{run}/checkpoints/{version}/download",
    response_class=Response,
    responses={
        200: {
            "description": "An uncompressed tar of the checkpoint's folder.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def download_checkpoint(control: ControlDep, run: Run, version: CheckpointVersion) -> Response:
    """A whole checkpoint as one tar: weights as safetensors, the rest as JSON; all that another host needs to go on."""
    folder = control.reads.checkpoint_file(run, version)
    return _Tar(folder, f"{run}-{folder.name}")


class _Tar(StreamingResponse):
    """Streams a folder's files, read in other threads a chunk at a time; they are open before it begins."""

    def __init__(self, folder: Path, name: str) -> None:
        self._open = ExitStack()
        files = self._opened(folder)
        entries = [(_header(file, f"{name}/{path}"), file) for path, file in files.items()]
        sizes = [len(header) + _padded(_size(file)) for header, file in entries]
        headers = {
            "Content-Disposition": f'attachment; filename="{name}.tar"',
            "Content-Length": str(sum(sizes) + len(_END)),
        }
        super().__init__(_stream(entries), headers=headers, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._open:
            await super().__call__(scope, receive, send)

    def _opened(self, folder: Path) -> dict[str, BinaryIO]:
        """Its files by name; raise NotFound where it is being removed at this moment."""
        files: dict[str, BinaryIO] = {}
        try:
            for path in _files(folder):
                files[str(path.relative_to(folder))] = self._open.enter_context(path.open("rb"))
        except FileNotFoundError:
            files.clear()
        if WHOLE not in files:
            self._open.close()
            raise NotFound(f"checkpoint {folder.name} was removed this moment; choose a newer one")
        return files


_END = tarfile.NUL * (2 * tarfile.BLOCKSIZE)


def _files(folder: Path) -> list[Path]:
    """Plain files only: a link could lead anywhere."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _size(file: BinaryIO) -> int:
    """How many bytes of `file` belong to the tar: as many as it has when it is opened."""
    return os.fstat(file.fileno()).st_size


def _header(file: BinaryIO, name: str) -> bytes:
    facts = os.fstat(file.fileno())
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = facts.st_size, int(facts.st_mtime), 0o600
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _stream(entries: list[tuple[bytes, BinaryIO]]) -> Iterator[bytes]:
    for header, file in entries:
        yield header
        size = left = _size(file)
        while left:
            chunk = file.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise OSError(f"{file.name} became shorter while it was read")
            left -= len(chunk)
            yield chunk
        if size != _padded(size):
            yield tarfile.NUL * (_padded(size) - size)
    yield _END

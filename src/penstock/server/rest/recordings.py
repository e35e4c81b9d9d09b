"""Recordings: have an episode recorded, list what there is, download one as a GIF."""

from typing import Annotated

from fastapi import Path
from starlette.responses import FileResponse, Response

from penstock.control.views import Accepted, RecordingView, RecordRequest
from penstock.server.rest.parts import ControlDep, Key, Run, Who, answer, make_router, run_path
from penstock.server.rest.runs import accepted

router = make_router("recordings")

RECORD = RecordRequest()
MEDIA_TYPE = "image/gif"
RecordingId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}$", description="As the list tells it.")]


@router.get("/runs/{run}/recordings", response_model=list[RecordingView])
def list_recordings(control: ControlDep, run: Run) -> Response:
    """Recorded episodes of a run, newest first, those that wait to be made included; the newest 20 are kept."""
    return answer(control.reads.recordings(run))


@router.post("/runs/{run}/recordings", status_code=202, response_model=Accepted)
def record_play(
    control: ControlDep, who: Who, run: Run, request: RecordRequest = RECORD, key: Key = None
) -> Response:
    """Record one episode of a checkpoint's policy as a GIF, without exploring; the command's id is the recording's."""
    return accepted(control.commander.record(who, run, request, key), run, f"{run_path(run)}/recordings")


@router.get(
    "/runs/{run}/recordings/{id}/download",
    response_class=Response,
    responses={
        200: {
            "description": "The episode as a GIF.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def download_recording(control: ControlDep, run: Run, id: RecordingId) -> Response:
    """A recorded episode as an endless GIF."""
    file = control.reads.recording_file(run, id)
    return FileResponse(file, media_type=MEDIA_TYPE, filename=f"{run}-{id[:8]}.gif")

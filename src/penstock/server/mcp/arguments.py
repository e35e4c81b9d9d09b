"""Arguments that many tools take, described once."""

from typing import Annotated

from pydantic import Field

Run = Annotated[
    str, Field(max_length=100, description="The run's id, such as cartpole-k3v9 (see list_runs).")
]
Cursor = Annotated[
    str | None, Field(max_length=1000, description="`next` of the answer before, for the next page.")
]
Key = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=200,
        description="Any word of yours: a call that repeats it, with the same arguments, is done only once.",
    ),
]
Filter = Annotated[str | None, Field(max_length=512)]
Points = Annotated[int, Field(ge=2, le=200, description="Most points of a curve.")]

"""Parameters and options that several routes use."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from litestar.params import PathParameter, QueryParameter

from ...errors import InvalidValue
from ..placement.pagination import LONGEST

SESSION = "/sessions/{session_id:str}"
READ = {"scope": "sessions:read"}
WRITE = {"scope": "sessions:write"}
DECIDE = {"scope": "pending:decide"}
LAST = (1 << 53) - 1  # the largest event number

SessionId: TypeAlias = Annotated[str, PathParameter(min_length=1, max_length=512)]
Thread: TypeAlias = Annotated[
    str, QueryParameter(min_length=1, max_length=400, description="The id of the thread.")
]
Text: TypeAlias = Annotated[str | None, QueryParameter(min_length=1, max_length=400)]
Limit: TypeAlias = Annotated[int, QueryParameter(ge=1, le=100)]
Cursor: TypeAlias = Annotated[str | None, QueryParameter(min_length=1, max_length=LONGEST)]
At: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        name="at", ge=0, le=LAST, description="Return the state right after this event."
    ),
]
Before: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        name="before", ge=1, le=LAST, description="Return only what is before this event."
    ),
]


def check_at(at: int, head: int) -> None:
    """Reject the number of an event that is not in the log yet."""
    if at > head:
        raise InvalidValue(
            field="at",
            problem=f"{at} is past the end of the log (last event: {head})",
            remedy=f"pass a number up to {head}",
        )

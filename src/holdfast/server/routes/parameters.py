"""Parameters and options that several routes use."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from litestar.params import PathParameter, QueryParameter

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

"""The result of a message: the run that took it up, and how that run stands."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..errors import RunFailed
from .metrics import RunMetrics
from .pending import Ask

ResultStatus: TypeAlias = Literal[
    "waiting", "done", "failed", "aborted", "interrupted", "queued", "removed"
]


class Result(Struct, frozen=True, kw_only=True, dict=True):
    """How an input stands. `waiting`: a person must answer `pending` first. `queued`: it waits
    behind a run that waits for a person. `removed`: it was taken out of the queue. The others
    are how its run ended; `text` is the answer, `output` the typed one, if one was asked for,
    `reason` why the model stopped: `stop` and `calls` are well, `length` and `filtered` not."""

    session: str
    thread: str
    run: str | None
    status: ResultStatus
    text: str = ""
    output: Any = None
    agent: str = ""
    mode: str = ""
    model: str | None = None
    reason: str | None = None
    code: str | None = None
    error: str | None = None
    stack: str | None = None
    seq: int = 0
    pending: tuple[Ask, ...] = ()
    metrics: RunMetrics | None = None

    @property
    def usage(self) -> dict[str, int]:
        return dict(self.metrics.usage) if self.metrics is not None else {}

    @property
    def cause(self) -> BaseException | None:
        """The exception that the run failed by, where it failed in this process. It is no part of
        the result as it is compared, sent or stored."""
        found: BaseException | None = self.__dict__.get("cause")
        return found

    def raise_for_status(self) -> Result:
        """This result, or `RunFailed` if the run did not end well; `cause` is its `__cause__`."""
        if self.status in ("done", "waiting", "queued"):
            return self
        failed = RunFailed(
            session=self.session,
            run=self.run or "",
            status=self.status,
            reason=self.code,
            problem=self.error or self.code or self.status,
        )
        if self.cause is not None:
            raise failed from self.cause
        raise failed

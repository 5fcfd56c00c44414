"""The result of a message: the run that handled it, its status and its answer."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..errors import InvalidValue, RunFailed
from .metrics import RunMetrics
from .pending import Ask

ResultStatus: TypeAlias = Literal[
    "waiting", "done", "failed", "aborted", "interrupted", "queued", "removed"
]
SHOWN = 60  # characters of the text in a repr


class Result(Struct, frozen=True, kw_only=True, dict=True):
    """The result of a message. Status `waiting` means that a user must answer `pending` first,
    `queued` that the message is queued behind a run that waits for user input, and `removed` that
    the message was removed from the queue. The other statuses are those of its run. `text` is the
    answer, `output` the typed answer if one was requested. `reason` is the reason why the model
    stopped: `stop` and `calls` are normal, `length` and `filtered` are not.

    ```python
    result = await session.send("Refund order 42.")
    if result.status == "waiting":
        print([item.title for item in result.pending])
    else:
        print(result.text)
    ```
    """

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

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= SHOWN else f"{self.text[: SHOWN - 1]}…"
        code = "" if self.code is None else f", code={self.code!r}"
        about = f"text={text!r}{code}, pending={len(self.pending)}, run={self.run!r}"
        return f"Result({self.status!r}, {about})"

    @property
    def usage(self) -> dict[str, int]:
        return dict(self.metrics.usage) if self.metrics is not None else {}

    @property
    def cause(self) -> BaseException | None:
        """The exception of a run that failed in this process. It is not part of comparisons, and it
        is never sent or stored."""
        found: BaseException | None = self.__dict__.get("cause")
        return found

    def raise_for_status(self) -> Result:
        """Return this result, or raise `RunFailed` from `cause` if the run did not succeed."""
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


class StreamResult:
    """The result of a stream of items. It is available once the stream has been read to its end."""

    _result: Result | None = None

    @property
    def result(self) -> Result:
        if self._result is None:
            raise InvalidValue(
                field="result",
                problem="is not available before the stream has ended",
                remedy="read the stream to its end with `async for`, or use send",
            )
        return self._result

"""Shows why runs fail. Each reason is shown once: with the event that ends the run, or on
stderr.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..harness import (
    FAULT_CODES,
    LOGGER,
    LineFormatter,
    RedactingFilter,
    Session,
    core_of,
    logging_configured,
)
from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event
from ..redact import describe

ENDS = "run_failed"  # the log record of a failed run


@contextmanager
def shown(tell: Callable[[str], None], *, ends: bool) -> Iterator[None]:
    """Show warnings and errors that are logged inside the block, unless the agent's program has
    configured logging. With `ends`, include the records of failed runs, for output that does not
    show them."""
    if logging_configured(LOGGER):
        yield
        return
    handler = _Handler(tell, ends)
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, tell: Callable[[str], None], ends: bool) -> None:
        super().__init__(logging.WARNING)
        self._tell, self._ends = tell, ends
        self.setFormatter(LineFormatter())
        self.addFilter(RedactingFilter())

    def emit(self, record: logging.LogRecord) -> None:
        about = getattr(record, "holdfast", {})
        if self._ends or about.get("event") != ENDS:
            self._tell(self.format(record))


def reason(session: Session, event: Event) -> str | None:
    """Return the reason why a run failed in this process, if the event that ends the run does not
    contain it.
    """
    ended = typed(event) if event.kind == "run.finished" else None
    cause = core_of(session).live.failures.get(event.run or "")
    if not isinstance(ended, ev.RunFinished) or ended.status != "failed" or cause is None:
        return None
    kind = FAULT_CODES.get(ended.code or "")
    if kind is None or ended.error != kind.public_message:
        return None  # the event has its own message
    return core_of(session).config.redactor.text(describe(cause))

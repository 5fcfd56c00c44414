"""The state of a log: the result of folding its events. Pure, and of bounded size.

`fold` reads no clock and does no I/O, so every process that has read the same events has the same
state. The transcript is not part of it.
"""

from .fold import fold
from .values import (
    ENTRIES,
    FINAL,
    OPEN_CALLS,
    OPERATIONS,
    PATH,
    QUEUED,
    VERSION,
    CallStatus,
    Excess,
    FileChanges,
    Grants,
    OpenCall,
    OpenItem,
    QueuedInput,
    Rules,
    Run,
    Schedule,
    Shown,
    State,
    Sub,
    Timer,
    Window,
)

__all__ = [
    "ENTRIES",
    "FINAL",
    "OPEN_CALLS",
    "OPERATIONS",
    "PATH",
    "QUEUED",
    "VERSION",
    "CallStatus",
    "Excess",
    "FileChanges",
    "Grants",
    "OpenCall",
    "OpenItem",
    "QueuedInput",
    "Rules",
    "Run",
    "Schedule",
    "Shown",
    "State",
    "Sub",
    "Timer",
    "Window",
    "fold",
]


def __dir__() -> list[str]:
    return sorted(__all__)

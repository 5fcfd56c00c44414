"""The transcript of a log, which converts events to messages: the public names of
`holdfast.log.transcript`."""

from .log.transcript import (
    QUEUEING,
    ROLES,
    Message,
    Outcome,
    ToolCall,
    last_tokens,
    last_turns,
    reworded,
    transcript,
    turns,
)

__all__ = [
    "QUEUEING",
    "ROLES",
    "Message",
    "Outcome",
    "ToolCall",
    "last_tokens",
    "last_turns",
    "reworded",
    "transcript",
    "turns",
]


def __dir__() -> list[str]:
    return sorted(__all__)

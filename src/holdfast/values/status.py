"""The status of a thread, and the messages in its queue."""

from __future__ import annotations

from msgspec import Struct


class Status(Struct, frozen=True):
    """The status of one thread of a session."""

    session: str
    thread: str
    agent: str
    phase: str
    mode: str
    model: str | None
    run: str | None
    queued: int
    pending: int
    head: int
    tool: str | None = None
    error: str | None = None


class Queued(Struct, frozen=True):
    """A message that waits in the queue of a thread."""

    seq: int
    how: str
    text: str

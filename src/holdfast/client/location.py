"""The location of a session: the transport to its server, and its path there."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from .reconnecting_feed import Feed
from .transport import Query, Transport, part

T = TypeVar("T")


class ThreadLocation(Struct, frozen=True):
    """One thread of a session on a server."""

    transport: Transport
    session: str
    thread: str = "main"

    @property
    def path(self) -> str:
        id = part(self.session, "id")
        return f"/v1/sessions/{id}"

    def beside(self, thread: str) -> ThreadLocation:
        """Another thread of the same session."""
        return ThreadLocation(self.transport, self.session, thread)

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        body: Any = None,
        query: Query | None = None,
        key: str | None = None,
    ) -> T:
        """Send a request about this thread."""
        asked = {**(query or {}), "thread": None if self.thread == "main" else self.thread}
        return await self.transport.call(
            method, self.path + path, answer, body=body, query=asked, key=key
        )

    def feed(
        self, after: str | int | None, *, whole: bool = False, **query: str | int | bool | None
    ) -> Feed:
        """Its stream after a cursor; with `whole`, with deltas for every message."""
        asked = {**query, "thread": None if self.thread == "main" else self.thread}
        where = (self.session, self.thread)
        return Feed(self.transport, f"{self.path}/events", where, asked, after, whole=whole)

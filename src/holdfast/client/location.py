"""The address of a session on a server: the transport that sends requests to the server, and the
session's URL path."""

from __future__ import annotations

from typing import TypeVar, Unpack

from msgspec import Struct

from .reconnecting_feed import Feed
from .transport import RequestOptions, Transport, part

T = TypeVar("T")


class ThreadLocation(Struct, frozen=True):
    """The address of one thread of a session on a server."""

    transport: Transport
    session: str
    thread: str = "main"

    @property
    def path(self) -> str:
        id = part(self.session, "id")
        return f"/v1/sessions/{id}"

    def beside(self, thread: str) -> ThreadLocation:
        """Return the address of another thread of the same session."""
        return ThreadLocation(self.transport, self.session, thread)

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        **options: Unpack[RequestOptions],
    ) -> T:
        """Send a request about this thread."""
        options["query"] = {**(options.get("query") or {}), **self.named}
        return await self.transport.call(method, self.path + path, answer, **options)

    @property
    def named(self) -> dict[str, str]:
        """The query parameter that selects the thread."""
        return {} if self.thread == "main" else {"thread": self.thread}

    def feed(
        self, after: str | int | None, *, whole: bool = False, **query: str | int | bool | None
    ) -> Feed:
        """Return the stream of this thread after a cursor. With `whole`, every message is delivered
        as deltas, even if it was complete before the stream reached it."""
        where = (self.session, self.thread)
        asked = {**query, **self.named}
        return Feed(self.transport, f"{self.path}/events", where, asked, after, whole=whole)

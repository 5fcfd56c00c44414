"""The location of a session: the transport to its server, and its path there."""

from __future__ import annotations

from typing import TypeVar, Unpack

from msgspec import Struct

from .reconnecting_feed import Feed
from .transport import RequestOptions, Transport, part

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
        """Return the location of another thread of the same session."""
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
        """The query parameter with the name of the thread."""
        return {} if self.thread == "main" else {"thread": self.thread}

    def feed(
        self, after: str | int | None, *, whole: bool = False, **query: str | int | bool | None
    ) -> Feed:
        """Return the stream of this thread after a cursor; with `whole`, it includes deltas for
        every message."""
        where = (self.session, self.thread)
        asked = {**query, **self.named}
        return Feed(self.transport, f"{self.path}/events", where, asked, after, whole=whole)

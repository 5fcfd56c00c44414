"""The threads of a session on a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .. import wire
from ..log.catalog import Page, Row
from .location import ThreadLocation
from .transport import part

S = TypeVar("S")


class ThreadsPart(Generic[S]):
    """Lists, creates, forks, renames and deletes the threads of a session."""

    def __init__(self, place: ThreadLocation, make: Callable[[ThreadLocation], S]) -> None:
        self._place, self._make = place, make

    @property
    def id(self) -> str:
        """The id of this thread."""
        return self._place.thread

    async def list(self, *, cursor: str | None = None, limit: int = 50) -> Page[Row]:
        """Return the threads, most recently active first."""
        query = {"cursor": cursor, "limit": limit}
        page = await self._place.call("GET", "/threads", wire.RowPage, query=query)
        return Page(items=page.items, cursor=page.cursor, total=page.total)

    async def create(self, title: str | None = None, *, id: str | None = None) -> S:
        """Create an empty thread, with the mode and the model of this thread."""
        body = wire.CreateThread(id=id, title=title)
        return self._of(await self._place.call("POST", "/threads", wire.SessionView, body=body))

    async def fork(
        self, *, at: int | None = None, thread: str | None = None, title: str | None = None
    ) -> S:
        """Create a thread that shares all events up to `at`, or up to the last event at which no
        turn is open."""
        body = wire.ForkThread(at=at, id=thread, title=title)
        return self._of(
            await self._place.call("POST", "/threads/fork", wire.SessionView, body=body)
        )

    def switch(self, thread: str) -> S:
        """Return another thread of the session, without sending a request. If the thread does not
        exist, the first request fails."""
        return self._make(self._place.beside(thread))

    async def rename(self, title: str, thread: str | None = None) -> None:
        """Rename a thread, by default this one."""
        name = part(self.id if thread is None else thread)
        body = wire.RenameThread(title=title)
        await self._place.call("PATCH", f"/threads/{name}", wire.SessionView, body=body)

    async def delete(self, thread: str | None = None) -> None:
        """Delete a thread, by default this one; its forks keep their history."""
        name = part(self.id if thread is None else thread)
        await self._place.call("DELETE", f"/threads/{name}", type(None))

    async def edit(self, seq: int, text: str) -> S:
        """Send other text in place of message `seq`, in a new thread that shares all events before
        the message."""
        path, body = f"/messages/{seq}/edit", wire.EditText(text=text)
        return self._of(await self._place.call("POST", path, wire.SessionView, body=body))

    async def regenerate(self, seq: int) -> S:
        """Send message `seq` again, in a new thread."""
        path = f"/messages/{seq}/regenerate"
        return self._of(await self._place.call("POST", path, wire.SessionView))

    def _of(self, view: wire.SessionView) -> S:
        return self._make(self._place.beside(view.thread))

"""A session on a server, with the methods of a local session. The object holds only the address of
the session; every call sends a request to the server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Unpack

from .. import wire
from ..errors import NotPending
from ..log.events import Event
from ..log.transcript import Message
from ..values.audit import Audited
from ..values.options import Content, SendOptions
from ..values.pending import Ask, Decision
from ..values.records import Receipt
from ..values.result import Result
from ..values.status import Status
from .files import FilesPart
from .location import ThreadLocation
from .schedules import SchedulesPart
from .session_parts import (
    DisplayPart,
    FollowUpsPart,
    ModelPart,
    ModePart,
    PermissionsPart,
    StatePart,
    SurfacesPart,
    UsagePart,
)
from .streams import EventBounds, Follow, Stream, post, read_events
from .threads import ThreadsPart
from .transport import part


class Session:
    """One thread of a session on a server, returned by `client.get_or_create`. It does not need to
    be closed.

    See [the client](../client.md).
    """

    def __init__(self, place: ThreadLocation) -> None:
        self._place = place
        self.mode = ModePart(place)
        self.model = ModelPart(place)
        self.state = StatePart(place)
        self.usage = UsagePart(place)
        self.display = DisplayPart(place)
        self.follow_ups = self.queue = FollowUpsPart(place)
        self.permissions = PermissionsPart(place)
        self.surfaces = SurfacesPart(place)
        self.schedules = SchedulesPart(place)
        self.files = FilesPart(place)
        self.threads = self.thread = ThreadsPart(place, Session)

    def __repr__(self) -> str:
        return f"<session {self.id!r}, thread {self._place.thread!r}>"

    @property
    def id(self) -> str:
        return self._place.session

    # Messages

    async def send(self, content: Content, **options: Unpack[SendOptions]) -> Result:
        """Send a message and wait until its run waits for user input or has ended. The message
        takes effect once, even if connections are lost or servers restart. Cancelling the wait does
        not stop the run."""
        stream = Stream(self._place, content, options, deltas=False)
        async for _ in stream:
            pass
        return stream.result

    def stream(self, content: Content, **options: Unpack[SendOptions]) -> Stream:
        """Send a message and stream the events and deltas of its run."""
        return Stream(self._place, content, options)

    async def post(self, content: Content, **options: Unpack[SendOptions]) -> int:
        """Send a message without waiting for its run. Returns the event number of the message."""
        return (await post(self._place, content, options)).seq

    async def steer(self, content: Content, **options: Unpack[SendOptions]) -> int:
        """Send a message that the current run reads at its next safe point. Returns the event
        number of the message."""
        options["busy"] = "steer"
        return await self.post(content, **options)

    async def abort(self, reason: str | None = None) -> None:
        """Stop the current run, no matter which server process executes it."""
        await self._place.call("POST", "/abort", Status, body=wire.Abort(reason=reason))

    async def rewind(self, to: int) -> int:
        """Return the conversation to its state right after event `to`; 0 clears it. The events stay
        in the log. Returns the event number of the rewind. Raises `SessionBusy` while a run or a
        pending item is open."""
        body = wire.Rewind(to=to)
        return (await self._place.call("POST", "/rewind", wire.Rewound, body=body)).seq

    async def wait(self) -> Result:
        """Wait until nothing is running, or the session can continue only with user input. Returns
        the result of the last message."""
        place = self._place
        feed = place.feed(wire.NOW, until="idle", deltas=False)
        async with contextlib.aclosing(feed.parts()) as parts:
            async for _ in parts:
                pass
        return await self._last()

    async def _last(self) -> Result:
        place = self._place
        inputs = [e.seq for e in await read_events(place) if e.kind == "message.received"]
        if not inputs:
            return Result(session=place.session, thread=place.thread, run=None, status="done")
        feed = place.feed(inputs[-1] - 1, input=inputs[-1], deltas=False)
        async with contextlib.aclosing(feed.parts()) as parts:
            ends = [part async for part in parts if isinstance(part, wire.End)]
        found = ends[-1].result
        assert found is not None, "the end of the stream of a message contains its result"
        return found

    def follow(self, after: str | int | None = None) -> Follow:
        """Stream all events and deltas after a cursor or an event number, or from now on. The
        stream continues over lost connections, restarts and other servers for as long as it is
        read. Raises `LogReplaced` if the cursor belongs to another log."""
        return Follow(self._place.feed(wire.NOW if after is None else after))

    subscribe = follow

    # Pending items

    async def pending(self) -> list[Ask]:
        """Return the pending items of this thread, oldest first, then the pending items of its
        sub-agents."""
        return (await self._place.call("GET", "/pending", wire.Asks)).items

    async def approve(
        self,
        item: str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> Decision:
        """Approve a tool call, optionally with other arguments. Without `item`, approve the only
        pending item."""
        given = None if arguments is None else dict(arguments)
        return await self._decide(item, "approve", wire.Approve(arguments=given, reason=reason))

    async def deny(self, item: str | None = None, reason: str | None = None) -> Decision:
        """Deny a tool call; the model receives the reason."""
        return await self._decide(item, "deny", wire.Deny(reason=reason))

    async def answer(self, answer: Any, item: str | None = None) -> Decision:
        """Answer a question, or provide the result of an external call."""
        return await self._decide(item, "answer", wire.Answer(answer=answer))

    async def extend(self, item: str, seconds: float | None) -> None:
        """Set when an item expires: after this many seconds, or never if None."""
        path, body = f"/pending/{part(item)}/extend", wire.Extend(seconds=seconds)
        await self._place.call("POST", path, wire.Asks, body=body)

    async def _decide(self, item: str | None, how: str, body: Any) -> Decision:
        if item is None:
            known = [ask.id for ask in await self.pending()]
            if len(known) != 1:
                raise NotPending(session=self.id, item=None, pending=known)
            item = known[0]
        return await self._place.call("POST", f"/pending/{part(item)}/{how}", Decision, body=body)

    # Reading

    async def status(self) -> Status:
        """Return the current status of the session."""
        return await self._place.call("GET", "/status", Status)

    async def about(self) -> wire.SessionView:
        """Return the session as it appears in lists, with its engine and store."""
        return await self._place.call("GET", "", wire.SessionView)

    async def transcript(
        self,
        *,
        limit: int = 100,
        roles: tuple[str, ...] = (),
        at: int | None = None,
        before: int | None = None,
    ) -> list[Message]:
        """Return the last messages of the conversation, oldest first. With `at`, as it was right
        after this event; with `before`, only messages before this event."""
        query = {"limit": limit, "at": at, "before": before}
        found = await self._place.call("GET", "/transcript", wire.Transcript, query=query)
        return [message for message in found.items if not roles or message.role in roles]

    async def events(
        self,
        *,
        after: int | str = 0,
        before: int | None = None,
        kinds: tuple[str, ...] = (),
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Event]:
        """Return the first `limit` events of this thread after an event number or a cursor and
        before event `before`, in order; with `reverse`, the newest first."""
        bounds = EventBounds(after=str(after), before=before, kinds=kinds, reverse=reverse)
        return await read_events(self._place, bounds, most=limit)

    async def audit(self) -> list[Audited]:
        """Return the tool calls of this thread in the order in which they were proposed, with the
        requester, the decisions and the outcome of each call."""
        found: list[Audited] = []
        after: int | None = 0
        while after is not None:
            page = await self._place.call(
                "GET", "/audit", wire.AuditPage, query={"after": after, "limit": 1_000}
            )
            found, after = [*found, *page.items], page.after
        return found

    async def verify(self) -> wire.Verified:
        """Check the hashes and links of all events of the session. Changes nothing."""
        place = self._place
        return await place.transport.call("GET", f"{place.path}/verify", wire.Verified)

    async def lease(self) -> wire.LeaseShown:
        """Return which process drives this thread, if any, since when and until when."""
        return await self._place.call("GET", "/lease", wire.LeaseShown)

    async def blob(self, sha256: str) -> bytes:
        """Return the bytes of an attachment of the session."""
        place = self._place
        return await place.transport.raw("GET", f"{place.path}/blobs/{part(sha256, 'sha256')}")

    async def delete(self) -> Receipt:
        """Stop the session, and delete all its data."""
        return await self._place.call("DELETE", "", Receipt)

"""Streams a session from your own web app as server-sent events, in any ASGI framework.

The events are those of the Holdfast server, with the same names, data and cursors, so that one
page can read both."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from .errors import InvalidValue
from .harness import Session, core_of
from .server.streams.backpressure import OpenStreams
from .server.streams.outbox import Outbox
from .server.streams.sending import HEADERS, STREAM, BodySender, Receive, Scope, Send
from .server.streams.session_stream import StreamRequest, begin
from .values.stream_items import Item

__all__ = ["EventStream", "sse"]


def sse(session: Session, request: Any, *, after: str | None = None, deltas: bool = True) -> Any:
    """Return a response that streams a session as server-sent events, for as long as the client
    reads.

    `request` is the request of Starlette or FastAPI, the response then is one of Starlette, or the
    scope of any other ASGI app, and the response an ASGI app. The header `Last-Event-ID`, which a
    browser sends when it connects again, says where to continue. Without it, the stream begins
    after the cursor `after`: by default with the first event, with `"now"` after the last one.
    `deltas=False` omits the text of unfinished messages. The stream ends when the process is asked
    to terminate (see `Harness.end_subscriptions`).

        @app.get("/chats/{id}/events")
        async def events(id: str, request: Request) -> Response:
            return sse(await harness.open(id), request)

    See [a chat in a web page](../recipes/fastapi.md).
    """
    scope = request if isinstance(request, Mapping) else getattr(request, "scope", None)
    if not isinstance(scope, Mapping) or scope.get("type") != "http":
        raise InvalidValue(
            field="request",
            problem=f"is {type(request).__name__}, not an HTTP request",
            remedy="pass the request of Starlette or FastAPI, or the scope of an ASGI app",
        )
    wish = StreamRequest(after=_last_event_id(scope) or after, deltas=deltas)
    stream = EventStream(session, wish)
    starlette = any(base.__module__.startswith("starlette.") for base in type(request).__mro__)
    return _starlette_response(stream) if starlette else stream


class EventStream:
    """The response of `sse`: an ASGI app that sends the stream of one session.

    See [a chat in a web page](../recipes/fastapi.md).
    """

    status_code, media_type = 200, STREAM

    def __init__(self, session: Session, wish: StreamRequest) -> None:
        self._session, self._wish = session, wish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = await begin(self._session, self._wish)
        headers = [(b"content-type", STREAM.encode())]
        headers += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope.get("method") == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        streams = _streams_of(self._session)
        await BodySender(streams.open.chunks(reading), streams.outbox.patience, send).run(receive)


class HarnessStreams:
    """The open streams of one harness, which share their limits of memory. A subscriber of the
    harness: when subscriptions end, it ends the streams."""

    ended = False

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.open = OpenStreams(outbox=self.outbox)

    def put(self, item: Item) -> None:
        """Ignore an item: the streams read the logs themselves."""

    def end(self) -> None:
        self.ended = True
        self.open.close()


_streams: WeakKeyDictionary[Any, HarnessStreams] = WeakKeyDictionary()


def _streams_of(session: Session) -> HarnessStreams:
    host = core_of(session).host
    if (known := _streams.get(host)) is None:
        known = _streams[host] = HarnessStreams()
        host.subscribed(known)
    return known


def _last_event_id(scope: Scope) -> str | None:
    for name, value in scope.get("headers", ()):
        if name.lower() == b"last-event-id":
            return bytes(value).decode("latin-1").strip() or None
    return None


def _starlette_response(stream: EventStream) -> Any:
    """Return the stream as a response of Starlette, since FastAPI accepts no other ASGI apps."""
    base = import_module("starlette.responses").Response

    async def call(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        await stream(scope, receive, send)

    kind = type("EventStreamResponse", (base,), {"__call__": call, "media_type": STREAM})
    return kind(headers=HEADERS)


def __dir__() -> list[str]:
    return sorted(__all__)

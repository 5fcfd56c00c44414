"""The middleware of all routes: authentication, scopes, rate limits, body size limits, idempotency
keys, limits for large responses, and audit records."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import (
    ASGIApp,
    HTTPResponseStartEvent,
    HTTPScope,
    Message,
    Receive,
    Scope,
    Send,
)

from ...environment import wall_clock
from ...errors import (
    InvalidValue,
    NoRoute,
    RateLimited,
    RequestTooLarge,
    RequestTooSlow,
    UnsupportedMedia,
)
from ...errors.root import instead
from ...log.codec import check_name, too_deep
from ...log.events import new_id
from ..auth import idempotency
from ..auth.audit import AuditRecord
from ..auth.callers import Caller, RequestCredentials
from ..service import Service
from ..streams.outbox import NOBODY, PIECE
from .errors import JSON, SHOWN, ErrorResponse, answer
from .headers import asks_for, check_once, check_plain, guarded, methods, repeats
from .outer_middleware import ASKED

PLAIN = re.compile(rb"(?:/[\w.~:@!$&'()*+,;=-]+)+")  # a path without escapes
CHANGES = ("POST", "PUT", "PATCH", "DELETE")
KEY = "Idempotency-Key"
STREAM = "text/event-stream"
OURS = ("ctx", "request", "data", "last_event_id")  # parameters that are not in the query
KEPT = ("content-type", "location")  # headers of a response that are stored with it


class RequestMiddleware(ASGIMiddleware):
    """Middleware that passes every request through a `RequestPipeline`.

    The `opt` mapping of a route configures it:

    - `public`: no authentication; `scope`: the scope that the caller needs
    - `body="raw"`: a body that is not JSON; `limit`: its size, if smaller than the general limit
    - `once="own"`: the route handles idempotency keys itself; `once="same"`: the response is not
      stored, because repeating the request returns it again; `replayed`: a function that is called
      when a stored response is sent
    - `stream`: the response may be a stream; `lasts`: it always is
    - `waits`: the response may be delayed by `wait`
    """

    scopes = (ScopeType.HTTP,)

    def __init__(self, service: Service) -> None:
        self._service = service

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        # `scopes` ensures that this is an HTTP request.
        passing = RequestPipeline(self._service, cast(HTTPScope, scope), send)
        try:
            await passing.through(receive, next_app)
            await passing.finish()
        except Exception as error:
            if passing.status is not None:
                raise  # the response has started
            await passing.fail(error)
        finally:
            passing.close()
            passing.record()


class RequestPipeline:
    """Processes one request: checks and authenticates it, calls the route, and sends the
    response."""

    def __init__(self, service: Service, scope: HTTPScope, send: Send) -> None:
        self._service, self._scope, self._send = service, scope, send
        self._id = new_id()
        self._opt: Mapping[str, Any] = scope["route_handler"].opt
        self._caller: Caller | None = None
        self._code: str | None = None
        self.status: int | None = None
        self._name = NOBODY
        self._begun: HTTPResponseStartEvent | None = (
            None  # the start of a large response that is not sent yet
        )
        self._held = 0  # bytes of the outbox that the response holds
        self._dropped = False  # whether the rest of the response is discarded
        self._refusal: RateLimited | None = None
        self._method: str = scope.get(ASKED) or scope["method"]  # type: ignore[assignment]
        self._headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        scope["state"]["request_id"] = self._id
        self._target: dict[str, str] = {}
        scope["state"]["target"] = self._target
        scope["state"]["hold"] = self._hold

    async def through(self, receive: Receive, next_app: ASGIApp) -> None:
        service, state = self._service, self._scope["state"]
        self._check_path()
        if self._opt.get("public"):
            await next_app(self._scope, receive, self.send)
            return
        service.check_open()
        with service.gates["all"].through(""):
            caller = self._caller = state["caller"] = await self._authenticated()
            name = self._name = state["name"] = f"{caller.tenant}\n{caller.principal}"
            service.rate.take(name)
            if (needed := self._opt.get("scope")) is not None:
                caller.need(needed)
            with service.gates[self._sort()].through(name):
                self._check_query()
                body = b""
                if self._scope["method"] in CHANGES and self._opt.get("body") != "stream":
                    body = state["body"] = await self._body(receive)
                    receive = replayed(body, receive)
                await self._answered(caller, body, receive, next_app)

    async def _authenticated(self) -> Caller:
        authentication = self._service.authentication
        shown = RequestCredentials(
            method=self._method,
            path=self._scope["path"],
            headers=self._headers,
            address=self._address,
        )
        caller = await authentication.caller(shown)
        self._scope["state"]["still"] = functools.partial(authentication.still, shown, caller)
        return caller

    @property
    def _address(self) -> str | None:
        client = self._scope.get("client")
        return client[0] if client else None

    def _sort(self) -> str:
        query = self._scope.get("query_string", b"")
        ends = b"until=" in query or b"input=" in query
        asked = asks_for(self._headers.get("accept", ""), STREAM)
        lasts = self._opt.get("stream") and (ends or asked or self._opt.get("lasts"))
        waits = self._opt.get("waits") and b"wait=" in query
        return "stream" if lasts or waits else "request"

    def _check_path(self) -> None:
        """Reject a path that routing would change. Routing drops empty segments, decodes slashes
        inside a segment, and replaces bytes that are not UTF-8. Routes with the option `slash`
        redirect a path that ends with a slash."""
        raw = self._scope.get("raw_path") or quote(self._scope["path"]).encode()
        if PLAIN.fullmatch(raw):
            return
        ends = raw.endswith(b"/") and not self._opt.get("slash")
        folded = ends or b"//" in raw or b"%2f" in raw.lower()
        try:
            shown = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            self._scope["path_params"] = {}
            raise InvalidValue(
                field="path", problem="is not UTF-8", remedy="percent-encode it as UTF-8"
            ) from None
        if folded:
            self._scope["path_params"] = {}  # keeps the parsed path out of the audit record
            raise NoRoute(path=shown[:SHOWN])

    def _check_query(self) -> None:
        """Reject unknown and repeated parameters, which Litestar would ignore."""
        query = self._scope.get("query_string", b"")
        if not query:
            return
        handler = self._scope["route_handler"]
        taken = {*handler.parsed_fn_signature.parameters} - {*self._scope["path_params"], *OURS}
        seen: set[str] = set()
        for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name in seen and not repeats(handler, name):
                raise InvalidValue(field=name, problem="occurs twice", remedy="send it once")
            seen.add(name)
            if name not in taken:
                raise InvalidValue(
                    field=name[:100],
                    problem="is not a parameter of this route",
                    remedy=instead(name[:100], sorted(taken)) if taken else "omit it",
                )

    # The body

    async def _body(self, receive: Receive) -> bytes:
        limits, raw = self._service.limits, self._opt.get("body") == "raw"
        limit = limits.bundle_bytes if raw else limits.body_bytes
        limit = min(limit, self._opt.get("limit", limit))
        check_plain(self._headers.get("content-encoding", ""))
        length = self._headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            raise RequestTooLarge(limit=limit)
        try:
            async with asyncio.timeout(limits.body_seconds) as patience:
                with self._service.waiting(patience):
                    body = await read(receive, limit)
        except TimeoutError:
            self._service.check_open()
            raise RequestTooSlow(seconds=limits.body_seconds) from None
        if body and not raw:
            self._check_json(body)
        return body

    def _check_json(self, body: bytes) -> None:
        found = self._headers.get("content-type", "")
        if found.partition(";")[0].strip().lower() != JSON:
            raise UnsupportedMedia(found=found[:100], wanted=JSON)
        try:
            body.decode()
        except UnicodeDecodeError:
            raise InvalidValue(
                field="body", problem="is not UTF-8", remedy="encode it as UTF-8"
            ) from None
        depth = self._service.limits.depth
        if too_deep(body, depth):
            raise InvalidValue(
                field="body",
                problem=f"is nested deeper than {depth} levels",
                remedy="send less nested JSON",
                limit=depth,
            )

    # The response

    async def _answered(
        self, caller: Caller, body: bytes, receive: Receive, next_app: ASGIApp
    ) -> None:
        scope, state, key = self._scope, self._scope["state"], self._headers.get(KEY.lower())
        changes = scope["method"] in CHANGES
        if key is None or not changes:
            await next_app(scope, receive, self.send)
            return
        check_once(scope["headers"], KEY)
        idempotency.check_key(key)
        state["key"], state["once"] = key, idempotency.name(caller, key)
        if self._opt.get("once") == "own":
            await next_app(scope, receive, self.send)
            return
        query = scope.get("query_string", b"")
        hash = idempotency.request_hash(scope["method"], scope["path"], query, body)
        session = scope["path_params"].get("session_id")
        if session is not None:
            check_name("session_id", session)
        asked = idempotency.KeyedRequest(key=key, hash=hash, session=session)
        if self._opt.get("once") == "same":
            await (await self._service.once()).same(caller, asked)
            await next_app(scope, receive, self.send)
            return
        target = self._target

        done_here = False

        async def work(record: str, again: bool) -> idempotency.StoredResponse:
            nonlocal done_here
            done_here, state["again"] = True, again
            caught = ResponseRecorder()
            try:
                await next_app(scope, receive, caught.send)
            except Exception as error:
                return _of(hash, self._failure(error))
            return caught.answer(hash, target.get("session"))

        done = await (await self._service.once()).do(caller, asked, work)
        replayed = None if done_here or done.status >= 300 else self._opt.get("replayed")
        if replayed is not None:
            await replayed(self._service, state, asked.session or done.session, body)
        await self._say(done.status, done.headers, done.body)

    async def fail(self, error: Exception) -> None:
        """Send an error response."""
        self._begun = None
        done = self._failure(error)
        await self._say(done.status, done.headers, done.body)

    def _failure(self, error: Exception) -> ErrorResponse:
        service = self._service
        naming = service.places.naming
        done = answer(error, self._scope, self._id, service.settings.redactor, naming)
        self._code = done.code
        return done

    async def _say(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        named = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        named.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": named})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def send(self, message: Message) -> None:
        if self._dropped:
            return
        if message["type"] == "http.response.start":
            if (length := _length(message)) is not None and length > PIECE:
                self._begun = message  # sent once there is buffer space for the body
                return
            await self._begin(message)
            return
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body = message["body"]
        if len(body) > PIECE and not self._held and not self._takes(len(body)):
            return
        if self._begun is not None:
            begun, self._begun = self._begun, None
            await self._begin(begun)
        if len(body) <= PIECE:
            await self._send(message)
        else:
            await self._in_pieces(body, message.get("more_body", False))

    async def _begin(self, message: HTTPResponseStartEvent) -> None:
        self.status = message["status"]
        headers = guarded(message["headers"], self._id)
        if self._method == "OPTIONS":
            headers = [one for one in headers if one[0].lower() != b"allow"]
            headers.append((b"allow", ", ".join(methods(self._scope)).encode()))
        await self._send({**message, "headers": headers})

    def _takes(self, size: int) -> bool:
        """Reserve buffer space for a large response. Returns False if there is not enough. The
        response to a request that changed something is always accepted."""
        try:
            self._hold(size, must=self._scope["method"] in CHANGES or self._begun is None)
        except RateLimited as error:
            self._refusal, self._dropped, self._begun = error, True, None
            return False
        return True

    def _hold(self, size: int, *, must: bool = False) -> None:
        """Reserve buffer space for a large response until it has been sent."""
        self._service.outbox.begin(self._name, size, must=must)
        self._held = size

    async def _in_pieces(self, body: bytes, more: bool) -> None:
        """Send a large body as fast as the client reads it. If the client reads nothing for too
        long, the rest is discarded and the connection is closed."""
        for start in range(0, len(body), PIECE):
            piece = bytes(memoryview(body)[start : start + PIECE])
            rest = more or start + PIECE < len(body)
            try:
                async with asyncio.timeout(self._service.outbox.patience(self._name)):
                    await self._send(
                        {"type": "http.response.body", "body": piece, "more_body": rest}
                    )
            except TimeoutError:
                self._dropped = True
                return
            await asyncio.sleep(0)  # let other tasks run

    async def finish(self) -> None:
        """Send an error response if there was not enough buffer space for the response."""
        if (error := self._refusal) is not None:
            self._refusal, self._dropped = None, False
            await self.fail(error)

    def close(self) -> None:
        """Release the buffer space of the response."""
        if self._held:
            self._service.outbox.finish(self._name, self._held)

    def record(self) -> None:
        """Add the request to the audit log."""
        scope, caller = self._scope, self._caller
        if self._opt.get("public"):
            return
        target = {name: str(value) for name, value in scope.get("path_params", {}).items()}
        noted = {**self._target}
        session = target.pop("session_id", None) or noted.pop("session", None)
        handler = scope["route_handler"]
        self._service.audit.put(
            AuditRecord(
                at=wall_clock(),
                request=self._id,
                action=str(getattr(handler, "operation_id", None) or handler.handler_name),
                method=self._method,
                path=scope["path"],
                status=self.status or 0,
                tenant=None if caller is None else caller.tenant,
                principal=None if caller is None else caller.principal,
                key=None if caller is None else caller.key,
                session=session,
                target={**target, **noted},
                code=self._code or scope["state"].get("code"),
                address=self._address,
            )
        )


class ResponseRecorder:
    """Records a response so that it can be stored, instead of sending it."""

    def __init__(self) -> None:
        self._status = 500
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            named = [(k.decode("latin-1").lower(), v) for k, v in message["headers"]]
            self._headers = [(k, v.decode("latin-1")) for k, v in named if k in KEPT]
        elif message["type"] == "http.response.body":
            self._body += message["body"]

    def answer(self, hash: str, session: str | None) -> idempotency.StoredResponse:
        return idempotency.StoredResponse(
            hash=hash,
            status=self._status,
            headers=self._headers,
            body=bytes(self._body),
            session=session,
        )


def _length(message: HTTPResponseStartEvent) -> int | None:
    """Return the content length of a response, if it is known."""
    found = [value for name, value in message["headers"] if name.lower() == b"content-length"]
    return int(found[0]) if found and found[0].isdigit() else None


def _of(hash: str, done: ErrorResponse) -> idempotency.StoredResponse:
    return idempotency.StoredResponse(
        hash=hash, status=done.status, headers=done.headers, body=done.body
    )


async def read(receive: Receive, limit: int) -> bytes:
    """Read the whole body. Raises `RequestTooLarge` as soon as it exceeds the limit."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestTooSlow(seconds=0)
        if message["type"] == "http.request":
            body += message["body"]
        if len(body) > limit:
            raise RequestTooLarge(limit=limit)
        if not message.get("more_body", False):
            return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` function that returns a body that was already read."""
    given = False

    async def again() -> Any:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again

"""The edge: what every request passes before a route sees it. Who asks, whether they may, how
much and how fast, the body within its limits; then the record of it, and the answer once."""

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

from ...errors import (
    InvalidValue,
    NoRoute,
    RateLimited,
    RequestTooLarge,
    RequestTooSlow,
    Unauthorized,
    UnsupportedMedia,
)
from ...errors.root import instead
from ...log.codec import check_name, too_deep
from ...log.events import new_id
from ...stores.port import wall_clock
from ..auth import idempotency
from ..auth.audit import AuditRecord
from ..auth.callers import FORWARDED, Caller, Credentials, LocalTokenAuth, NoAuth, is_loopback
from ..service import Service
from ..streams.outbox import NOBODY, PIECE
from .cors import ASKED
from .errors import JSON, SHOWN, Answer, answer
from .headers import asks_for, check_once, check_plain, guarded, methods, repeats

PLAIN = re.compile(rb"(?:/[\w.~:@!$&'()*+,;=-]+)+")  # a path that is what it looks like
CHANGES = ("POST", "PUT", "PATCH", "DELETE")
KEY = "Idempotency-Key"
STREAM = "text/event-stream"
FROM_ELSEWHERE = "requests from elsewhere or through a proxy are not answered here"
LOCAL_ONLY = (
    "this server has no keys, and answers only programs and pages of this machine: serve it with "
    "keys for any others, and with --origin for pages"
)
NOT_LOCAL = (
    "this server takes its local token: run `holdfast token` as the user that started it, and send "
    "`Authorization: Bearer TOKEN`"
)
OURS = ("ask", "request", "data", "last_event_id")  # parameters that are not in a query
KEPT = ("content-type", "location")  # headers of an answer that are remembered with it


class Edge(ASGIMiddleware):
    """Stands before all routes.

    A route's `opt` says what it needs: `public` no caller, `scope` a scope, `body="raw"` a body
    that is no JSON, `limit` how many bytes it may have where that is less than for all,
    `once="own"` that it looks after keys itself, `once="same"` that it gives the same answer by
    itself, which is not kept, `replayed` what is done where an answer is given a
    second time, `stream` that it may last.
    """

    scopes = (ScopeType.HTTP,)

    def __init__(self, service: Service) -> None:
        self._service = service

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        passing = Passing(self._service, cast(HTTPScope, scope), send)  # by `scopes`
        try:
            await passing.through(receive, next_app)
            await passing.finish()
        except Exception as error:
            if passing.status is not None:
                raise  # the answer is on its way: nothing can be said any more
            await passing.fail(error)
        finally:
            passing.close()
            passing.record()


class Passing:
    """One request on its way."""

    def __init__(self, service: Service, scope: HTTPScope, send: Send) -> None:
        self._service, self._scope, self._send = service, scope, send
        self._id = new_id()
        self._opt: Mapping[str, Any] = scope["route_handler"].opt
        self._caller: Caller | None = None
        self._code: str | None = None
        self.status: int | None = None
        self._name = NOBODY
        self._begun: HTTPResponseStartEvent | None = None  # how a large answer begins, until it may
        self._held = 0  # bytes of it
        self._dropped = False  # the rest of the answer: it may not be sent, or nobody takes it
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
            caller = self._caller = state["caller"] = await self._known()
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

    async def _known(self) -> Caller:
        service, address = self._service, self._address or ""
        shown = Credentials(
            method=self._method,
            path=self._scope["path"],
            headers=self._headers,
            address=self._address,
        )
        with service.doubting(shown, address):
            caller = await service.authenticate(shown)
        if caller is None:
            # Where nothing can be guessed, nobody is kept out who shares an address with others.
            if not isinstance(service.settings.auth, (NoAuth, LocalTokenAuth)):
                service.refusals.take(address)
            raise _unknown(service, shown)
        self._scope["state"]["still"] = functools.partial(service.still, shown, caller)
        return caller

    @property
    def _address(self) -> str | None:
        client = self._scope.get("client")
        return client[0] if client else None

    def _sort(self) -> str:
        query = self._scope.get("query_string", b"")
        ends = b"until=" in query or b"input=" in query
        asked = asks_for(self._headers.get("accept", ""), STREAM)
        lasts = self._opt.get("stream") and (ends or asked)
        waits = self._opt.get("waits") and b"wait=" in query
        return "stream" if lasts or waits else "request"

    def _check_path(self) -> None:
        """Refuse a path that is not what was routed: empty parts are folded by then, slashes that
        stand within a part are decoded, and what is no UTF-8 is replaced."""
        raw = self._scope.get("raw_path") or quote(self._scope["path"]).encode()
        if PLAIN.fullmatch(raw):
            return
        folded = b"//" in raw or raw.endswith(b"/") or b"%2f" in raw.lower()
        try:
            shown = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            self._scope["path_params"] = {}
            raise InvalidValue(
                field="path", problem="is no UTF-8", remedy="percent-encode it as UTF-8"
            ) from None
        if folded:
            self._scope["path_params"] = {}  # nor is it written down so
            raise NoRoute(path=shown[:SHOWN])

    def _check_query(self) -> None:
        """Refuse a parameter that there is not, or is there again: it would be left out in
        silence."""
        query = self._scope.get("query_string", b"")
        if not query:
            return
        handler = self._scope["route_handler"]
        taken = {*handler.parsed_fn_signature.parameters} - {*self._scope["path_params"], *OURS}
        seen: set[str] = set()
        for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if name in seen and not repeats(handler, name):
                raise InvalidValue(field=name, problem="is given twice", remedy="give it once")
            seen.add(name)
            if name not in taken:
                remedy = instead(name[:100], sorted(taken)) if taken else "leave it out"
                problem = "is no parameter here"
                raise InvalidValue(field=name[:100], problem=problem, remedy=remedy)

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
                field="body", problem="is no UTF-8", remedy="encode it as UTF-8"
            ) from None
        depth = self._service.limits.depth
        if too_deep(body, depth):
            raise InvalidValue(
                field="body",
                problem=f"is nested deeper than {depth} levels",
                remedy="flatten it",
                limit=depth,
            )

    # The answer

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
        asked = idempotency.Asked(key=key, hash=hash, session=session)
        if self._opt.get("once") == "same":
            await (await self._service.once()).same(caller, asked)
            await next_app(scope, receive, self.send)
            return
        target = self._target

        done_here = False

        async def work(record: str, again: bool) -> idempotency.Answered:
            nonlocal done_here
            done_here, state["again"] = True, again
            caught = Caught()
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
        """Answer that it failed."""
        self._begun = None
        done = self._failure(error)
        await self._say(done.status, done.headers, done.body)

    def _failure(self, error: Exception) -> Answer:
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
                self._begun = message  # it is refused where there is no room for it
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
        """Whether there is room for a large answer. What was changed is told in any case."""
        try:
            self._hold(size, must=self._scope["method"] in CHANGES or self._begun is None)
        except RateLimited as error:
            self._refusal, self._dropped, self._begun = error, True, None
            return False
        return True

    def _hold(self, size: int, *, must: bool = False) -> None:
        """Take room for a large answer until it was sent, also before it is made."""
        self._service.outbox.begin(self._name, size, must=must)
        self._held = size

    async def _in_pieces(self, body: bytes, more: bool) -> None:
        """Send a large body no faster than it is taken. Who takes nothing of it for too long is
        not sent the rest, and the server closes the connection."""
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
            await asyncio.sleep(0)  # others are to have a turn

    async def finish(self) -> None:
        """Answer what was refused instead of an answer that has no room."""
        if (error := self._refusal) is not None:
            self._refusal, self._dropped = None, False
            await self.fail(error)

    def close(self) -> None:
        """Let go of the answer."""
        if self._held:
            self._service.outbox.finish(self._name, self._held)

    def record(self) -> None:
        """Have it written down who asked for what, and how that was answered."""
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


class Caught:
    """Takes an answer down instead of sending it."""

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

    def answer(self, hash: str, session: str | None) -> idempotency.Answered:
        return idempotency.Answered(
            hash=hash,
            status=self._status,
            headers=self._headers,
            body=bytes(self._body),
            session=session,
        )


def _length(message: HTTPResponseStartEvent) -> int | None:
    """How long an answer says that it is."""
    found = [value for name, value in message["headers"] if name.lower() == b"content-length"]
    return int(found[0]) if found and found[0].isdigit() else None


def _unknown(service: Service, shown: Credentials) -> Unauthorized:
    """That nobody knows who asks. That a server has no keys, and how it is given some, is told to
    none but those who ask from this machine."""
    here = is_loopback(shown.address) and not any(name in shown.headers for name in FORWARDED)
    if isinstance(service.settings.auth, NoAuth):
        return Unauthorized(problem=LOCAL_ONLY if here else FROM_ELSEWHERE)
    if isinstance(service.settings.auth, LocalTokenAuth):
        return Unauthorized(problem=NOT_LOCAL)
    return Unauthorized()


def _of(hash: str, done: Answer) -> idempotency.Answered:
    return idempotency.Answered(hash=hash, status=done.status, headers=done.headers, body=done.body)


async def read(receive: Receive, limit: int) -> bytes:
    """The whole body (`RequestTooLarge` as soon as it is)."""
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
    """A body that was read, to be read again."""
    given = False

    async def again() -> Any:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again

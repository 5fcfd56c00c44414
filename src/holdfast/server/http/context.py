"""The context of a request: its caller, and access to the sessions of this caller."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias
from urllib.parse import quote

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from ...errors import Forbidden, HarnessClosed, InvalidValue, SessionNotFound, UnknownAgent
from ...harness import Live, Session, core_of
from ...log.catalog import Row
from ...log.codec import check_name
from ...log.events import Key, new_id
from ...sessions import Sessions
from ...wire import SessionView, cursor
from ..auth.callers import Caller
from ..engines import Serving, TenantStore
from ..run_choices import Choices
from ..service import Service
from ..streams.outbox import PIECE
from ..streams.session_stream import UnservedSession
from .headers import base_of

SERVICE = "holdfast_service"
RESERVED = "holdfast."  # metadata with this prefix is written by the server only


class RequestContext:
    """The context of one request: its caller, and its idempotency key, if any."""

    def __init__(self, service: Service, state: dict[str, Any], base: str = "") -> None:
        self.service = service
        self.caller: Caller = state["caller"]
        self.key: str | None = state.get("key")
        self.once: str | None = state.get("once")  # the id of the idempotency key in the store
        self.name: str = state["name"]  # identifies this caller for the limits
        self.again: bool = state.get("again", False)  # an earlier attempt may have begun
        self.base = base
        self._target: dict[str, str] = state.get("target", {})
        self._hold: Callable[[int], None] = state["hold"]
        self.still: Callable[[], Awaitable[bool]] | None = state.get("still")

    def note(self, **target: str) -> None:
        """Add details of the request to the audit record."""
        self._target.update(target)

    def hold(self, size: int) -> None:
        """Reserve buffer space for a large response before it is created. Raises `RateLimited` if
        there is not enough."""
        if size > PIECE:
            self._hold(size)

    def patience(self) -> float:
        """Return how long, in seconds, the client may read nothing before it is disconnected."""
        return self.service.outbox.patience(self.name)

    @property
    def actor(self) -> str:
        """The actor of the events that this request appends."""
        return self.caller.principal

    def new_id(self, prefix: str = "") -> str:
        """Return an id for a new object. Requests with the same idempotency key get the same id."""
        return new_id() if self.once is None else f"{prefix}{self.once}"

    def repeated(self, *errors: type[Exception]) -> suppress:
        """Context manager for a step that an earlier attempt of this request may have done. If
        there was an earlier attempt, it ignores these errors."""
        return suppress(*(errors if self.again else ()))

    def acting_for(self, user: str | None) -> str:
        """Return the user whose sessions are accessed: the caller, or `user` if it is set and the
        caller has the scope `sessions:all`. Raises `Forbidden` otherwise."""
        if user is None or user == self.caller.principal:
            return self.caller.principal
        if not self.caller.may("sessions:all"):
            raise Forbidden(
                problem="a session of another user needs the scope sessions:all",
                scope="sessions:all",
            )
        check_name("user", user)
        return user

    def sessions(self, place: TenantStore) -> Sessions:
        """Return the `Sessions` of a store, with the caller as the actor of their events."""
        return Sessions(place.store, tenant=place.tenant, actor=self.actor)

    async def find(
        self, id: str, thread: str = "main", *, sure: bool = True
    ) -> tuple[TenantStore, Row]:
        """Return the store of a session and the row of one of its threads. Raises
        `SessionNotFound`; with `sure`, raises `StoreUnavailable` while a store that may have the
        session is unavailable."""
        place, row = await self.service.places.find(self.caller, id, thread, sure=sure)
        if thread == "main":
            await self.service.uploads.adopt(place, row)
        return place, row

    @asynccontextmanager
    async def session(
        self, id: str, thread: str = "main", *, current: bool = False
    ) -> AsyncGenerator[Session, None]:
        """Context manager that keeps a session open. Raises `SessionNotFound`. With `current`, the
        state includes all events that other processes have written so far."""
        place, row = await self.find(id, thread)
        served = await self.engine_of(place, row)
        async with self._opened(place, served, id, thread) as session:
            if current:
                await core_of(session).catch_up()
            yield session

    @asynccontextmanager
    async def reading(
        self, id: str, thread: str = "main"
    ) -> AsyncGenerator[Session | UnservedSession, None]:
        """Context manager that opens a session for reading, even if no agent of this server serves
        it."""
        place, row = await self.find(id, thread)
        try:
            served = await self.engine_of(place, row)
        except UnknownAgent as error:
            live = Live(place.store, row.key)
            await live.open()
            try:
                yield UnservedSession(live, row, error)
            finally:
                await live.aclose()
            return
        async with self._opened(place, served, id, thread) as session:
            yield session

    @asynccontextmanager
    async def _opened(
        self, place: TenantStore, served: Serving, id: str, thread: str
    ) -> AsyncGenerator[Session, None]:
        """Context manager that keeps a session open. Raises `SessionNotFound` also if the session
        is deleted meanwhile."""
        try:
            async with served.engine.open(place, served.agent, id, thread) as session:
                yield session
        except HarnessClosed:
            self.service.check_open()
            if await place.store.row(Key(place.tenant, id, thread)) is None:
                raise SessionNotFound(tenant=place.tenant, session=id, thread=thread) from None
            raise

    def choices(self, session: Session) -> Choices:
        """Return the models and limits that a client may choose for the runs of a session."""
        return Choices.of(session, self.service.settings.models)

    async def served(self, place: TenantStore, row: Row) -> Serving | None:
        """Return the engine of a session, or None if no agent of this server serves it."""
        try:
            return await self.engine_of(place, row)
        except UnknownAgent:
            return None

    async def engine_of(self, place: TenantStore, row: Row) -> Serving:
        """Return the engine of a session, which is the engine of its main thread. Raises
        `UnknownAgent`."""
        if row.thread != "main":
            row = await main_row(place, row.session)
            await self.service.uploads.adopt(place, row)
        return self.service.serves(row)

    async def shown(self, place: TenantStore, row: Row, *, created: bool = False) -> SessionView:
        """Return a session in the form of the API. Its `engine` is empty if no agent of this server
        serves it."""
        served = await self.served(place, row)
        return SessionView(
            id=row.session,
            thread=row.thread,
            engine="" if served is None else served.name,
            store=place.kind,
            cursor=cursor(row.log, row.head),
            events=self.events(row.session, row.thread),
            row=self.service.places.naming.row(row),
            created=created,
        )

    async def shown_thread(self, id: str, thread: str, *, created: bool = True) -> SessionView:
        """Return a thread of a session in the form of the API."""
        return await self.shown(*await self.find(id, thread), created=created)

    def events(self, id: str, thread: str) -> str:
        """Return the URL path of a thread's events."""
        tail = "" if thread == "main" else f"?thread={quote(thread, safe='')}"
        return f"{self.base}/v1/sessions/{quote(id, safe='')}/events{tail}"


async def main_row(place: TenantStore, id: str) -> Row:
    """Return the row of a session's main thread. Raises `SessionNotFound`."""
    row = await place.store.row(Key(place.tenant, id, "main"))
    if row is None:
        raise SessionNotFound(tenant=place.tenant, session=id)
    return row


def check_metadata(*names: str, field: str = "metadata") -> None:
    """Reject metadata names that are reserved for the server."""
    for name in names:
        if name.startswith(RESERVED):
            raise InvalidValue(
                field=f"{field}.{name[:100]}",
                problem=f"is reserved, as are all names that begin with {RESERVED!r}",
                remedy="use another name",
            )


def request_context(request: Request[Any, Any, Any]) -> RequestContext:
    """Return the context of a request; Litestar injects it into routes."""
    state = dict(request.scope["state"])
    return RequestContext(request.app.state[SERVICE], state, base_of(request.scope))


Context: TypeAlias = SkipValidation[NamedDependency[RequestContext]]

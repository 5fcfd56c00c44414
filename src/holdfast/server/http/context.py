"""What a route is given: who asks, and the way to what they ask for. Nobody reaches a session
but through here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter, SkipValidation

from ...errors import Forbidden, InvalidValue, SessionNotFound, UnknownAgent
from ...harness.live.log import Live
from ...harness.session.session import Session
from ...log.catalog import Row
from ...log.codec import check_name
from ...log.events import Key, new_id
from ...wire import SessionView, cursor
from ..auth.callers import Caller
from ..engines import Engine, Place
from ..run_choices import Choices
from ..service import Service
from ..streams.outbox import PIECE
from ..streams.session_stream import Alone
from .headers import base_of

SERVICE = "holdfast_service"
RESERVED = "holdfast."  # metadata whose names begin so are the server's own


class Asking:
    """One request: its caller, and the key that it was made with, if there is one."""

    def __init__(self, service: Service, state: dict[str, Any], base: str = "") -> None:
        self.service = service
        self.caller: Caller = state["caller"]
        self.key: str | None = state.get("key")
        self.once: str | None = state.get("once")  # what the key is called in the store
        self.name: str = state["name"]  # under which what they use is counted
        self.again: bool = state.get("again", False)  # whether it may have been begun before
        self.base = base
        self._target: dict[str, str] = state.get("target", {})
        self._hold: Callable[[int], None] = state["hold"]
        self.still: Callable[[], Awaitable[bool]] | None = state.get("still")

    def note(self, **target: str) -> None:
        """Have it written into the audit record what else is asked for."""
        self._target.update(target)

    def hold(self, size: int) -> None:
        """Take room for an answer of so many bytes before it is made (`RateLimited` where there is
        none); once, for what is large."""
        if size > PIECE:
            self._hold(size)

    def patience(self) -> float:
        """How long whoever asks may take nothing of an answer before they are disconnected."""
        return self.service.outbox.patience(self.name)

    @property
    def actor(self) -> str:
        """Who stands in events for whoever asks."""
        return self.caller.principal

    def new_id(self, what: str = "") -> str:
        """A name for what is made: the same for the same key."""
        return new_id() if self.once is None else f"{what}{self.once}"

    def acting_for(self, user: str | None) -> str:
        """Whose session is meant: one's own, unless the key may act for all."""
        if user is None or user == self.caller.principal:
            return self.caller.principal
        if not self.caller.may("sessions:all"):
            raise Forbidden(
                problem="a session of another user needs the scope sessions:all",
                scope="sessions:all",
            )
        check_name("user", user)
        return user

    async def find(self, id: str, thread: str = "main", *, sure: bool = True) -> tuple[Place, Row]:
        """Where a session is, and the row of a thread of it (`SessionNotFound`; with `sure`
        `StoreUnavailable` while a store cannot be asked that may have it)."""
        place, row = await self.service.places.find(self.caller, id, thread, sure=sure)
        if thread == "main":
            await self.service.adopting.adopt(place, row)
        return place, row

    @asynccontextmanager
    async def session(self, id: str, thread: str = "main") -> AsyncGenerator[Session, None]:
        """A session, open for as long as it is used here (`SessionNotFound`)."""
        place, row = await self.find(id, thread)
        _, engine, agent = await self.engine_of(place, row)
        async with engine.open(place, agent, id, thread) as session:
            yield session

    @asynccontextmanager
    async def reading(self, id: str, thread: str = "main") -> AsyncGenerator[Session | Alone, None]:
        """The same to be read only, also where no agent here serves it."""
        place, row = await self.find(id, thread)
        try:
            _, engine, agent = await self.engine_of(place, row)
        except UnknownAgent as error:
            live = Live(place.store, row.key)
            await live.open()
            try:
                yield Alone(live, row, error)
            finally:
                await live.aclose()
            return
        async with engine.open(place, agent, id, thread) as session:
            yield session

    def choices(self, session: Session) -> Choices:
        """What a client may choose for the runs of a session."""
        return Choices.of(session, self.service.settings.models)

    async def served(self, place: Place, row: Row) -> tuple[str, Engine, str] | None:
        """The engine of a session, or None where no agent here serves it."""
        try:
            return await self.engine_of(place, row)
        except UnknownAgent:
            return None

    async def engine_of(self, place: Place, row: Row) -> tuple[str, Engine, str]:
        """The engine of a session: that of its main thread, whoever works in the others."""
        if row.thread != "main":
            main = await place.store.row(Key(row.tenant, row.session, "main"))
            if main is None:
                raise SessionNotFound(tenant=row.tenant, session=row.session)
            row = main
            await self.service.adopting.adopt(place, row)
        return self.service.serves(row)

    async def shown(self, place: Place, row: Row, *, created: bool = False) -> SessionView:
        """A session as it is shown, with no engine where no agent here serves it."""
        served = await self.served(place, row)
        engine = "" if served is None else served[0]
        return self.view(place, row, created=created, engine=engine)

    def view(
        self, place: Place, row: Row, *, created: bool = False, engine: str | None = None
    ) -> SessionView:
        """A session as it is shown."""
        engine = self.service.serves(row)[0] if engine is None else engine
        return SessionView(
            id=row.session,
            thread=row.thread,
            engine=engine,
            store=place.kind,
            cursor=cursor(row.log, row.head),
            events=self.events(row.session, row.thread),
            row=self.service.places.naming.row(row),
            created=created,
        )

    def events(self, id: str, thread: str) -> str:
        """Where the events of a thread are."""
        tail = "" if thread == "main" else f"?thread={quote(thread, safe='')}"
        return f"{self.base}/v1/sessions/{quote(id, safe='')}/events{tail}"


def check_metadata(*names: str, field: str = "metadata") -> None:
    """Refuse names that are the server's own, which others believe."""
    for name in names:
        if name.startswith(RESERVED):
            raise InvalidValue(
                field=f"{field}.{name[:100]}",
                problem=f"begins with {RESERVED}, which only the server writes",
                remedy="take another name",
            )


def asking(request: Request[Any, Any, Any]) -> Asking:
    """What a request is given, as Litestar provides it."""
    state = dict(request.scope["state"])
    return Asking(request.app.state[SERVICE], state, base_of(request.scope))


Ask: TypeAlias = SkipValidation[NamedDependency[Asking]]
Thread: TypeAlias = Annotated[
    str, QueryParameter(min_length=1, max_length=400, description="The thread.")
]
SessionId: TypeAlias = Annotated[str, PathParameter(min_length=1, max_length=512)]

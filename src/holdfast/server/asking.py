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

from ..catalog import Row
from ..codec import check_name
from ..errors import Forbidden, SessionNotFound
from ..events import Key, new_id
from ..harness.session import Session
from ..wire import SessionView, cursor
from .auth import Caller
from .engines import Engine, Place
from .service import Service

SERVICE = "holdfast_service"


class Asking:
    """One request: its caller, and the key that it was made with, if there is one."""

    def __init__(self, service: Service, state: dict[str, Any], base: str = "") -> None:
        self.service = service
        self.caller: Caller = state["caller"]
        self.key: str | None = state.get("key")
        self.once: str | None = state.get("once")  # what the key is called in the store
        self.again: bool = state.get("again", False)  # whether it may have been begun before
        self.base = base
        self._target: dict[str, str] = state.get("target", {})
        self.still: Callable[[], Awaitable[bool]] | None = state.get("still")

    def note(self, **target: str) -> None:
        """Have it written into the audit record what else is asked for."""
        self._target.update(target)

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

    async def find(self, id: str, thread: str = "main") -> tuple[Place, Row]:
        """Where a session is, and the row of a thread of it (`SessionNotFound`)."""
        place, row = await self.service.places.find(self.caller, id, thread)
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

    async def engine_of(self, place: Place, row: Row) -> tuple[str, Engine, str]:
        """The engine of a session: that of its main thread, whoever works in the others."""
        if row.thread != "main":
            main = await place.store.row(Key(row.tenant, row.session, "main"))
            if main is None:
                raise SessionNotFound(tenant=row.tenant, session=row.session)
            row = main
            await self.service.adopting.adopt(place, row)
        return self.service.serves(row)

    def view(
        self, place: Place, row: Row, *, created: bool = False, engine: str | None = None
    ) -> SessionView:
        """A session as it is shown."""
        engine = engine or self.service.serves(row)[0]
        return SessionView(
            id=row.session,
            thread=row.thread,
            engine=engine,
            store=place.kind,
            cursor=cursor(row.log, row.head),
            events=self.events(row.session, row.thread),
            row=row,
            created=created,
        )

    def events(self, id: str, thread: str) -> str:
        """Where the events of a thread are."""
        tail = "" if thread == "main" else f"?thread={quote(thread, safe='')}"
        return f"{self.base}/v1/sessions/{quote(id, safe='')}/events{tail}"


def asking(request: Request[Any, Any, Any]) -> Asking:
    """What a request is given, as Litestar provides it."""
    base = str(request.scope.get("root_path", "")).rstrip("/")
    return Asking(request.app.state[SERVICE], dict(request.scope["state"]), base)


Ask: TypeAlias = SkipValidation[NamedDependency[Asking]]
Thread: TypeAlias = Annotated[
    str, QueryParameter(min_length=1, max_length=400, description="The thread.")
]
SessionId: TypeAlias = Annotated[str, PathParameter(min_length=1, max_length=512)]

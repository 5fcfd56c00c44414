"""Google ADK's `BaseSessionService` on any Holdfast store."""

from __future__ import annotations

import asyncio
import copy
import math
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from ...errors import HeadMoved, InvalidValue, LogReplaced, MissingExtra, SessionNotFound
from ...log.catalog import Query, Row
from ...log.codec import check_key, check_name
from ...log.conversation import REWOUND
from ...log.events import ADK_STATE_TENANT, Key, NewEvent, Scope, new_id
from ...sessions.changes import check_held
from ...stores.pages import every_row, existing_row
from ...stores.port import Store
from .. import writing
from ..json_values import storable
from ..lazy_store import LazyStore
from ..recent import keep
from ..retries import persist
from .places import APP, SESSION, USER, AdkKey, created

try:
    from google.adk.cli.service_registry import get_service_registry
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.adk.sessions.session import Session

    from .events import dumped, interim_calls, plain
    from .items import FOLLOWS, Fields, short, to_events
    from .reader import Latest, all_events, last_events, latest
    from .state import Known, Scoped, ScopeLogs, State, read_state, split, state_events
except ImportError as error:
    raise MissingExtra(extra="adk", needed_for="HoldfastSessionService") from error

T = TypeVar("T")

SCHEME = "holdfast"
SESSIONS = 1_024  # sessions whose state is kept in memory
TOGETHER = 16  # sessions of a list that are read concurrently
STALE = "Session {} has events that the session object does not have: get the session again."


class HoldfastSessionService(BaseSessionService):
    """ADK's session service on an open Holdfast store, or on the URL of a store.

    A URL is opened on first use, once per process; the service can then be used on any event loop
    and in any thread. A store that you pass in is not closed, and belongs to its event loop, unless
    it is a `PortalStore`.

    See [Google ADK](../adk.md).
    """

    def __init__(self, store: Store | str, *, tenant: str = "main") -> None:
        check_key(Scope(tenant, "x"))
        check_name("tenant", ADK_STATE_TENANT + tenant)
        self._tenant = tenant
        self._opening = LazyStore(store)
        self._scopes = ScopeLogs(tenant)
        self._known: dict[Key, Known] = {}
        self._locks: WeakValueDictionary[AdkKey, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"HoldfastSessionService({self._opening!r}, tenant={self._tenant!r})"

    async def __aenter__(self) -> HoldfastSessionService:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the store now, so that errors appear at startup. You can retry after a failure."""
        await self._opening.connect()

    async def close(self) -> None:
        """Close the store if it was opened from a URL, unless other code in this process uses it.
        Idempotent; the next use opens it again."""
        await self._opening.close()

    # Sessions

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. Raises `AlreadyExistsError` if the id is taken."""
        place = AdkKey(app_name, user_id, (session_id or "").strip() or str(uuid.uuid4()))
        if not place.keys(self._tenant):
            raise InvalidValue(
                field="session", problem="contains a lone surrogate", remedy="pass valid Unicode"
            )
        beginning = _Beginning(place, state)

        async def create(store: Store) -> Session:
            row = await persist(lambda again: self._create(store, beginning, again))
            return await persist(lambda _: self._opened(store, place, row, [], None))

        return await self._opening.run(create)

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session, or None if it does not exist."""
        place = AdkKey(app_name, user_id, (session_id or "").strip())
        limit = None if config is None else config.num_recent_events
        since = (config and config.after_timestamp) or -math.inf

        async def get(store: Store) -> Session | None:
            row = await self._row(store, place)
            if row is None:
                return None
            if limit is None:
                events, end = await all_events(store, row)
                events = [event for event in events if event.timestamp >= since]
            else:
                events, end = await last_events(store, row, limit, since)
            return await self._opened(store, place, row, events, end)

        return await self._ask(get)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of an app, or of one of its users, without events, sorted by the time
        of the last update."""
        sessions = await self._ask(lambda store: self._list(store, app_name, user_id))
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with all its events. The state of its user and app is not deleted. Has
        no effect if the session does not exist, or if no app of ADK has written to it. Raises
        `DeletionRefused` while the session is under legal hold."""
        place = AdkKey(app_name, user_id, (session_id or "").strip())

        async def delete(store: Store) -> None:
            row = await self._row(store, place)
            if row is not None and place.owns(row):
                check_held(row)
                self._known.pop(row.key, None)
                await store.delete(row.scope)

        await self._ask(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> State:
        """Return the state of a user. The keys do not have the prefix `user:`."""
        return await self._ask(lambda store: self._scopes.read(store, app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event. It is durable when this returns, and only then the session object is
        updated. An event that is already in the log is not appended again. Raises
        `StaleSessionError` if the log has events that the session object does not have, and
        `SessionNotFoundError` if the session does not exist."""
        if event.partial:
            return event
        fields = dumped(event)
        place = AdkKey(session.app_name, session.user_id, session.id)

        async def append(store: Store) -> None:
            lock = self._locks.setdefault(place, asyncio.Lock())
            async with lock:
                if await persist(lambda _: self._append(store, place, session, fields)):
                    session.last_update_time = event.timestamp
                    await BaseSessionService.append_event(self, session, event)

        await self._opening.run(append)
        return event

    # Calls of the store

    async def _row(self, store: Store, place: AdkKey) -> Row | None:
        keys = place.keys(self._tenant)
        return place.find(await store.rows(keys)) if keys else None

    async def _create(self, store: Store, beginning: _Beginning, again: bool) -> Row:
        place = beginning.place
        if not again and await self._row(store, place) is not None:
            raise AlreadyExistsError(f"Session with id {place.session} already exists.")
        for key in place.keys(self._tenant):
            try:
                await store.append(key, beginning.events(key), create=True, expected=0)
            except HeadMoved:
                row = await store.row(key)
                if row is not None and place.may_open(row):
                    break
            else:
                return await existing_row(store, key)
        raise AlreadyExistsError(f"Session with id {place.session} already exists.")

    async def _opened(
        self,
        store: Store,
        place: AdkKey,
        row: Row,
        events: list[Event],
        end: Latest | None,
    ) -> Session:
        """Return a session object. First completes changes of user and app state that a crash has
        interrupted."""
        end = await latest(store, row) if end is None else end
        if end.scoped is not None:
            await self._scopes.complete(store, place, row.log, end.scoped)
        keep(self._known, row.key, end.known, SESSIONS)
        shared = await self._shared(store, place.app, place.user)
        session = _session(place, end, shared)
        session.events = events
        session._storage_update_marker = _Marker(
            row.session, row.log, row.head, place.owns(row)
        ).text
        return session

    async def _shared(self, store: Store, app: str, user: str) -> State:
        """Return the state of an app and a user. Keys have the prefix `app:` or `user:`."""
        found = [("app", await self._scopes.read(store, app))]
        found.append(("user", await self._scopes.read(store, app, user)))
        return {f"{scope}:{name}": value for scope, of in found for name, value in of.items()}

    async def _list(self, store: Store, app: str, user: str | None) -> list[Session]:
        whose = {APP: app} if user is None else {APP: app, USER: user}
        if not storable(whose):
            return []
        shared: dict[str, State] = {}

        async def found(row: Row) -> Session | None:
            place = AdkKey(app, row.metadata[USER], row.metadata.get(SESSION, row.session))
            try:
                return _session(place, await latest(store, row), shared[place.user])
            except (LogReplaced, SessionNotFound):
                return None  # the session was deleted meanwhile

        query = Query(tenant=self._tenant, metadata=whose, newest_first=False)
        found_rows = {row.session: row async for row in every_row(store, query)}
        rows = [row for row in found_rows.values() if _is_named(row)]
        for name in {row.metadata[USER] for row in rows}:
            shared[name] = await self._shared(store, app, name)
        sessions: list[Session | None] = []
        for start in range(0, len(rows), TOGETHER):
            sessions += await asyncio.gather(*map(found, rows[start : start + TOGETHER]))
        return [session for session in sessions if session is not None]

    async def _append(self, store: Store, place: AdkKey, session: Session, fields: Fields) -> bool:
        """Append an event. Returns False if the event is already in the log and the session object
        does not have to be updated."""
        try:
            marker, known = await self._known_at(store, place, session)
            while True:
                made = _Append(place, session, fields, marker, known)
                try:
                    done = await store.append(
                        made.key(self._tenant), made.events, expected=known.head, log=known.log
                    )
                    break
                except HeadMoved:
                    known = await self._moved(store, made.key(self._tenant), known)
        except SessionNotFound as error:
            raise SessionNotFoundError(f"Session {session.id} not found.") from error
        except LogReplaced as error:
            raise stale(session) from error
        if made.scoped is not None:
            await self._scopes.write_all(store, place, known.log, made.scoped)
        if done.seqs[-1] != made.after.head:
            return False
        keep(self._known, made.key(self._tenant), made.after, SESSIONS)
        marker = _Marker(marker.session, marker.log, made.after.head, True)
        session._storage_update_marker = marker.text
        return True

    async def _known_at(
        self, store: Store, place: AdkKey, session: Session
    ) -> tuple[_Marker, Known]:
        """Return the position in the log up to which a session object has the events, and the state
        at that position."""
        if session._storage_update_marker is None:
            return await self._unmarked(store, place, session)
        marker = _Marker.of(session._storage_update_marker)
        key = Key(self._tenant, marker.session, "main")
        known = self._known.get(key)
        if known is None or (known.log, known.head) != (marker.log, marker.head):
            known = await read_state(store, key, marker.log, marker.head, 0)
        return marker, known

    async def _unmarked(
        self, store: Store, place: AdkKey, session: Session
    ) -> tuple[_Marker, Known]:
        """Like `_known_at`, for a session object that this service did not return. Its last event
        must be the last event of the log."""
        row = await self._row(store, place)
        if row is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        events, end = await last_events(store, row, 1, -math.inf)
        if [event.id for event in events] != [event.id for event in session.events[-1:]]:
            raise stale(session)
        return _Marker(row.session, row.log, row.head, place.owns(row)), end.known

    async def _moved(self, store: Store, key: Key, known: Known) -> Known:
        """Return the state at the head of a log that has grown. Raises `StaleSessionError` if its
        conversation has changed."""
        row = await existing_row(store, key)
        async with aclosing(
            store.read(key, after=known.head, before=row.head + 1, log=known.log)
        ) as events:
            async for event in events:
                if event.kind == REWOUND or writing.has_content(event):
                    raise StaleSessionError(STALE.format(key.session))
        return msgspec.structs.replace(known, head=row.head)

    async def _ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        return await self._opening.run(lambda store: persist(lambda _: question(store)))


def register(*, tenant: str = "main", scheme: str = SCHEME) -> None:
    """Register the service with ADK. The URI of a session service is then `holdfast:` followed by
    the URL of a store.

    See [Google ADK](../adk.md).
    """

    def make(uri: str, **_: Any) -> HoldfastSessionService:
        return HoldfastSessionService(uri.removeprefix(f"{scheme}:"), tenant=tenant)

    get_service_registry().register_session_service(scheme, make)


class _Marker(Struct, frozen=True, array_like=True):
    """Stored in a private field of a session object: the session's id in the store, its log, the
    number of the last event that the object has, and whether the row's metadata identify the ADK
    session."""

    session: str
    log: str
    head: int
    owned: bool

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, text: str) -> _Marker:
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise StaleSessionError(
                "The session object belongs to another session service: get it from this service."
            ) from error


class _Beginning:
    """The first events of a session. Their ids are the same if the append is repeated."""

    def __init__(self, place: AdkKey, state: dict[str, Any] | None) -> None:
        self.place = place
        self._id, self._first = new_id(), new_id()
        deltas = split(plain(state or {}))
        self._state, _ = state_events(deltas, Known("", 0), at=2, id=self._id, time=time.time())

    def events(self, key: Key) -> list[NewEvent]:
        data = created(self.place.user, self.place.metadata(key.session))
        return [NewEvent.of("session.created", data, id=self._first), *self._state]


class _Append:
    """The log events for one call of `append_event`, and the state after them."""

    def __init__(
        self,
        place: AdkKey,
        session: Session,
        fields: Fields,
        marker: _Marker,
        known: Known,
    ) -> None:
        self._session = marker.session
        deltas = split(fields["actions"]["state_delta"])
        changed = bool(deltas) or known.last == 0
        self.events: list[NewEvent] = []
        if not marker.owned:
            data = {"set": place.metadata(marker.session)}
            self.events.append(NewEvent.of("metadata.changed", data, id="adk:session"))
        interim = interim_calls(fields, session)
        self.events += to_events(fields, state=FOLLOWS if changed else known.last, interim=interim)
        self.scoped: Scoped | None = None
        at = known.head + len(self.events) + 1
        self.after = msgspec.structs.replace(known, head=at - 1)
        if changed:
            events, self.after = state_events(deltas, known, at=at, id=short(fields["id"]))
            self.events += events
            if deltas.scopes:
                self.scoped = events[0].id, deltas

    def key(self, tenant: str) -> Key:
        return Key(tenant, self._session, "main")


def _is_named(row: Row) -> bool:
    """Return whether the metadata of a row identify an ADK session. They may be invalid, because
    any program can change metadata."""
    names = (row.metadata.get(USER), row.metadata.get(SESSION, ""))
    return all(isinstance(name, str) for name in names)


def _session(place: AdkKey, end: Latest, shared: State) -> Session:
    return Session(
        id=place.session,
        app_name=place.app,
        user_id=place.user,
        state=copy.deepcopy({**end.known.state, **shared}),
        last_update_time=end.updated,
    )


def stale(session: Session) -> StaleSessionError:
    return StaleSessionError(STALE.format(session.id))

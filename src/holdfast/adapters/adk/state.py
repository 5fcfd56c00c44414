"""Stores the state of ADK's sessions, users and apps as events `adk.state`.

Such an event contains the keys that changed (`set`) and the number of the last event with the
complete state (`since`), or the complete state (`state`). So a state is read from the end of a log:
the last complete state, and the changes after it. If `set` is `true`, the changes are in the next
event, a `state.changed`, which repeats a session's state for other readers of the log if it is
small enough.

The states of users and apps are logs of a reserved tenant. Their changes are first appended to the
log of the session (`user`, `app`), and then to their own logs, with an event id derived from the
session's event.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import HeadMoved, LogDamaged, LogReplaced, SessionNotFound
from ...log.codec import LIMITS
from ...log.events import ADK_STATE_TENANT, Event, Key, NewEvent, new_id, to_json
from ...stores.port import Store
from ..json_values import as_text, storable
from ..reading import read_events, skipped
from ..recent import keep
from . import places
from .items import STATE, mark_of, own_data
from .places import AGENT, AdkKey

KIND = "adk.state"
MIRROR = "state.changed"
WHOLE_EVERY = 128  # events of a log after which the next change repeats the whole state
SCOPES = ("app", "user")
TEMP = "temp"
KEPT = 512  # users and apps whose state is kept in memory

State = dict[str, Any]


class StateDeltas(Struct, frozen=True):
    """The changes of a state, by scope. Keys have no prefix; temporary state is omitted."""

    session: State
    user: State
    app: State

    def __bool__(self) -> bool:
        return bool(self.session or self.user or self.app)

    @property
    def scopes(self) -> dict[str, State]:
        return {name: delta for name in SCOPES if (delta := getattr(self, name))}

    @property
    def prefixed(self) -> State:
        """The changes of all scopes in one dict. Keys have ADK's prefixes."""
        found = {f"{scope}:{k}": v for scope in SCOPES for k, v in getattr(self, scope).items()}
        return {**self.session, **found}


def split(state: Mapping[str, Any]) -> StateDeltas:
    found: dict[str, State] = {"session": {}, "user": {}, "app": {}, TEMP: {}}
    for key, value in state.items():
        scope, colon, name = key.partition(":")
        if colon and scope in (*SCOPES, TEMP):
            found[scope][name] = value
        else:
            found["session"][key] = value
    return StateDeltas(found["session"], found["user"], found["app"])


Scoped = tuple[
    str, StateDeltas
]  # the id of a session's event, and its changes of user and app state


class Known(Struct, frozen=True):
    """The state of a log at its event `head`. `last` is the number of the last event with state,
    and `since` of the last event with the complete state. `mirrored` is true if the log has the
    state in `state.changed` events too."""

    log: str
    head: int
    erased: int = 0
    state: State = {}
    last: int = 0
    since: int = 0
    mirrored: bool = True


# To events


def state_events(
    deltas: StateDeltas, before: Known, *, at: int, id: str, **more: Any
) -> tuple[list[NewEvent], Known]:
    """Return the events for a change of a session's state, and the state after them. The first of
    the events will have the number `at`."""
    state = {**before.state, **deltas.session} if deltas.session else before.state
    whole = before.since == 0 or at - before.since >= WHOLE_EVERY
    mirror = fits(state) if deltas.session else before.mirrored
    data: dict[str, Any] = {"set": deltas.session, **deltas.scopes, **more}
    events: list[NewEvent] = []
    if deltas.session and mirror:
        changed = {"set": deltas.session} if before.mirrored else {"set": state, "replace": True}
        data["set"] = before.mirrored or data["set"]
        events.append(NewEvent.of(MIRROR, changed, id=f"adk:changed:{id}"))
    event = state_event(data, state if whole else None, before.since, id=f"adk:state:{id}")
    since = at if whole else before.since
    head = at + len(events)
    return [event, *events], Known(before.log, head, before.erased, state, at, since, mirror)


def state_event(data: dict[str, Any], whole: State | None, since: int, *, id: str) -> NewEvent:
    data = data | ({"since": since} if whole is None else {"state": whole})
    made = to_json(data) if storable(data) else as_text(data)
    return NewEvent(kind=KIND, data=made, id=id)


def fits(state: State) -> bool:
    """Return whether a state is small enough for `state.changed` events, because folds keep their
    content in memory."""
    try:
        size = len(msgspec.json.encode(state))
    except (ValueError, OverflowError):
        return False
    return size <= LIMITS.map_bytes and storable(state)


# From events


def data_of(event: Event) -> dict[str, Any]:
    """Return the data of an event `adk.state`; empty if it was erased."""
    data = msgspec.json.decode(event.data)
    if "text" in data:
        return json.loads(data["text"])  # type: ignore[no-any-return]
    return {} if "erased" in data else data


class StateReader:
    """Computes a state from the events of a log, which are passed in order."""

    def __init__(self, known: Known) -> None:
        self.state = dict(known.state)
        self.last, self.since = known.last, known.since
        self._mirror = False

    def take(self, event: Event) -> None:
        if event.kind == MIRROR and self._mirror:
            self.state.update(mirrored(event))
        self._mirror = False
        if event.kind != KIND:
            return
        data = data_of(event)
        self.last = event.seq
        if "state" in data:
            self.state, self.since = data["state"], event.seq
        elif data.get("set") is True:
            self._mirror = True
        else:
            self.state.update(data.get("set", {}))

    def known(self, log: str, head: int, erased: int) -> Known:
        mirror = fits(self.state)
        return Known(log, head, erased, self.state, self.last, self.since, mirror)


def mirrored(event: Event) -> State:
    return event.json().get("set", {})  # type: ignore[no-any-return]


def deltas_of(event: Event, mirror: Event | None) -> StateDeltas:
    """Return the changes in an event `adk.state`. `mirror` is the event after it, which may contain
    the session's changes."""
    data = data_of(event)
    changed = data.get("set", {})
    if changed is True:
        changed = mirrored(mirror) if mirror is not None and mirror.kind == MIRROR else {}
    return StateDeltas(changed, data.get("user", {}), data.get("app", {}))


async def read_state(store: Store, at: Key, log: str, head: int, erased: int) -> Known:
    """Return the state of a log at its event `head`. Reads the log from its end."""
    last = 0
    async with aclosing(newest_first(store, at, log, head)) as events:
        async for event in events:
            last = _pointer(event)
            if last:
                break
    if not last:
        return Known(log, head, erased)
    found = [event async for event in _range(store, at, last, min(head, last + 1))]
    data = data_of(found[0]) if found and found[0].seq == last else {}
    since = last if "state" in data else data.get("since", 0)
    reader = StateReader(Known(log, head))
    if since != last:
        async for event in _range(store, at, max(1, since), last - 1):
            reader.take(event)
    for event in found:
        reader.take(event)
    return reader.known(log, head, erased)


def _pointer(event: Event) -> int:
    """Return the number of the last event with state, if `event` is that event or contains its
    number; otherwise 0."""
    if event.kind == KIND:
        return event.seq
    data = own_data(event)
    return 0 if data is None else mark_of(event, data).get(STATE, 0)


async def newest_first(store: Store, at: Key, log: str, head: int) -> AsyncGenerator[Event, None]:
    """Yield all events of a log, newest first, including those that a rewind removed. Events that
    cannot be read are logged and skipped."""
    limit, before = 8, head + 1
    while before > 1:
        count = 0
        read = store.read(at, before=before, limit=limit, reverse=True, log=log)
        try:
            async with aclosing(read) as events:
                async for event in events:
                    yield event
                    before, count = event.seq, count + 1
        except LogDamaged as damage:
            skipped(damage)
            before = damage.seq
            continue
        if count < limit:
            return
        limit = 256


async def _range(store: Store, at: Key, first: int, last: int) -> AsyncGenerator[Event, None]:
    async with aclosing(read_events(store, at, first - 1)) as events:
        async for event in events:
            if event.seq > last:
                return
            yield event


# The state of users and apps


def scope_key(tenant: str, *names: str) -> Key:
    """Return the key of the log with the state of an app, or of a user of an app."""
    digest = hashlib.sha256(msgspec.json.encode(names)).hexdigest()[:40]
    scope = SCOPES[len(names) - 1]
    return Key(ADK_STATE_TENANT + tenant, f"{scope}-{digest}", "main")


class ScopeLogs:
    """Reads and writes the states of a tenant's users and apps, each in a log of its own."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._known: dict[Key, Known] = {}

    async def read(self, store: Store, *names: str) -> State:
        """Return a copy of the state of an app, or of a user of an app."""
        at = scope_key(self._tenant, *names)
        row = await store.row(at)
        if row is None:
            self._known.pop(at, None)
            return {}
        known = self._known.get(at)
        if known is None or (known.log, known.erased) != (row.log, row.erased):
            known = await read_state(store, at, row.log, row.head, row.erased)
        elif row.head > known.head:
            reader = StateReader(known)
            async for event in read_events(store, at, known.head):
                reader.take(event)
            known = reader.known(row.log, row.head, row.erased)
        keep(self._known, at, known, KEPT)
        return copy.deepcopy(known.state)

    async def write(self, store: Store, names: tuple[str, ...], delta: State, *, id: str) -> None:
        """Append changes to the log of a state. Changes with the same `id` are stored once."""
        at = scope_key(self._tenant, *names)
        if at not in self._known:
            await self.read(store, *names)
        known = self._known.get(at)
        if known is not None:
            event = state_event({"set": delta}, None, known.since, id=id)
            try:
                done = await store.append(at, [event], log=known.log)
            except (SessionNotFound, LogReplaced):
                self._known.pop(at, None)
            else:
                if done.head - known.since >= WHOLE_EVERY:
                    await self._write_whole(store, names)
                return
        event = state_event({"set": delta}, None, 0, id=id)
        created = NewEvent.of("session.created", _created(*names), id=f"{AGENT}:session")
        await store.append(at, [created, event], create=True)

    async def write_all(self, store: Store, place: AdkKey, log: str, scoped: Scoped) -> None:
        """Append the changes of user and app state in a session's event to the logs of the user and
        the app."""
        id, deltas = scoped
        for scope, delta in deltas.scopes.items():
            await self.write(store, place.scope(scope), delta, id=f"adk:{log}:{id}")

    async def complete(self, store: Store, place: AdkKey, log: str, scoped: Scoped) -> None:
        """Like `write_all`, after an append that may have been interrupted. Changes that were
        already appended are skipped."""
        id, deltas = scoped
        for scope, delta in deltas.scopes.items():
            at, name = scope_key(self._tenant, *place.scope(scope)), f"adk:{log}:{id}"
            with contextlib.suppress(SessionNotFound):
                if await store.seqs(at, [name]):
                    continue
            await self.write(store, place.scope(scope), delta, id=name)

    async def _write_whole(self, store: Store, names: tuple[str, ...]) -> None:
        await self.read(store, *names)
        at = scope_key(self._tenant, *names)
        if (known := self._known.get(at)) is None:
            return
        event = state_event({}, known.state, 0, id=new_id())
        with contextlib.suppress(HeadMoved, LogReplaced, SessionNotFound):
            await store.append(at, [event], expected=known.head, log=known.log)


def _created(app: str, user: str | None = None) -> dict[str, Any]:
    return places.created(user, {places.APP: app} if user is None else AdkKey(app, user, "").named)

"""The few words in which these tests are written."""

from __future__ import annotations

from typing import Any

from holdfast import Event, Inbound, NewEvent, Row, Sessions, Store, key
from holdfast.log.catalog import surface_name
from holdfast.testing.samples import read_all

HOUR = 3_600
START = 1_800_000_000_000  # ms, a whole second

WEB = ("web", "thread-1")
SLACK = ("slack", "dm-99")
MAIL = ("mail", "ann@example.org")


class Clock:
    """UTC in ms, standing still until it is told to go on."""

    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms

    @property
    def s(self) -> int:
        return self.ms // 1000

    def go(self, seconds: int) -> int:
        """The time so many seconds later."""
        self.ms += seconds * 1000
        return self.ms


def inbound(
    user: str = "ann", place: tuple[str, str] = WEB, workspace: str | None = None, **more: Any
) -> Inbound:
    return Inbound(user=user, surface=place[0], address=place[1], workspace=workspace, **more)


def names(row: Row) -> list[str]:
    """The surfaces of a session, in order, as `surface:address`."""
    wanted = {surface_name(*place): ":".join(place) for place in (WEB, SLACK, MAIL)}
    return [wanted.get(name, name) for name in row.surfaces]


def ids(rows: list[Row]) -> list[str]:
    return [row.session for row in rows]


async def row(sessions: Sessions, id: str) -> Row:
    """The row of a session that is there."""
    found = await sessions.get(id)
    assert found is not None
    return found


async def log(sessions: Sessions, id: str, thread: str = "main") -> list[Event]:
    return await read_all(sessions.store, key(id, thread, sessions.tenant))


async def kinds(sessions: Sessions, id: str) -> list[str]:
    return [event.kind for event in await log(sessions, id)]


async def say(
    store: Store, session: str, kind: str, payload: Any = None, thread: str = "main", **rest: Any
) -> None:
    """An event as a program that drives the thread appends it."""
    event = NewEvent.of(kind, payload, **rest)
    await store.append(key(session, thread), [event], create=thread != "main")


async def damage(store: Store) -> list[str]:
    return [str(found) async for found in store.verify()]

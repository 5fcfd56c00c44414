"""Replaces the names of stores in responses: clients see the kind of a store, never its path or
address."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import HoldfastError, SessionMoved
from ...harness import WORK_FOLDER
from ...log.catalog import Row
from ...log.events import Event, Scope, to_json
from ...log.events.defaults import complete
from ...stores.copy import place_name
from ...stores.port import Store
from ...values.records import Receipt, Remains
from ...wire import End, failed
from ..engines import TenantStore

OURS = ("memory", "file", "sqlite", "postgres", "mongodb")  # prefixes of the names of stores
LOG = "log "  # prefix of a log that is named by its incarnation, not by a path
TENANT = " tenant "  # may follow the name of a store
MOVED = "session.moved"


class StoreNames:
    """Replaces the names of stores in rows, events and errors by the kinds of the server's
    stores."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._known: set[int] = set()

    async def learn(self, kind: str, store: Store) -> None:
        """Record the internal name of a store and its kind."""
        if id(store) in self._known:
            return
        none = Scope("", "")
        self._kinds.setdefault(await place_name(store, none, none), kind)
        self._known.add(id(store))

    def called(self, to: str) -> str:
        """Return the public name of the store that a session was moved to: the kind of a store of
        this server, or a description such as "another sqlite store". Free text is returned
        unchanged."""
        if (kind := self._kinds.get(to.partition(TENANT)[0])) is not None:
            return kind
        sort, colon, _ = to.partition(":")
        return f"another {sort} store" if colon and sort in OURS else to

    def row(self, row: Row) -> Row:
        """Return the row as clients see it. For a session that was moved, it contains no run and no
        pending items."""
        return row if row.sealed is None else replace(self.whole(row), run=None, pending={})

    def whole(self, row: Row) -> Row:
        """Return the row as clients see it, including its run and pending items."""
        return row if row.sealed is None else replace(row, sealed=self.called(row.sealed))

    def event(self, event: Event) -> Event:
        """Return the event as clients see it, with all default values."""
        if event.kind != MOVED:
            return complete(event)
        about = event.json()
        if not isinstance(about, dict) or not isinstance(to := about.get("to"), str):
            return event
        return complete(replace(event, data=to_json({**about, "to": self.called(to)})))

    def error(self, error: HoldfastError) -> HoldfastError:
        """Return the error as clients see it."""
        if not isinstance(error, SessionMoved):
            return error
        return SessionMoved(**{**error.fields, "to": self.called(error.to)})

    def end(self, end: End) -> End:
        """Return the end of a stream as clients see it."""
        if end.error is None or end.error.code != SessionMoved.code:
            return end
        moved = SessionMoved(**end.error.fields)
        return replace(end, error=failed(self.error(moved)).error)


def remaining(place: TenantStore, receipt: Receipt) -> Receipt:
    """Return the receipt of a deletion as clients see it, without the location of the store."""
    return replace(receipt, remains=remains(place, receipt.remains))


def remains(place: TenantStore, left: tuple[Remains, ...] | list[Remains]) -> tuple[Remains, ...]:
    """Return the list of data that could not be deleted as clients see it, without the location of
    the store."""
    at, shown = place.store.info().location, f"the {place.kind} store"

    def where(text: str) -> str:
        if text.startswith((LOG, WORK_FOLDER)):
            return text
        before, found, rest = text.partition(at) if at else (text, "", "")
        if not found or before:
            return shown
        part = rest.lstrip("/-, ")
        return f"{shown}, {part}" if part else shown

    return tuple(dict.fromkeys(replace(one, where=where(one.where)) for one in left))

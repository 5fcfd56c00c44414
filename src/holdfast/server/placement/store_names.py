"""The names of stores that clients may see: the kind of a store, never its path or address."""

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
    """The kinds of a server's stores, by the names that `session.moved` has for them."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._known: set[int] = set()

    async def learn(self, kind: str, store: Store) -> None:
        """Learn the name of a store."""
        if id(store) in self._known:
            return
        none = Scope("", "")
        self._kinds.setdefault(await place_name(store, none, none), kind)
        self._known.add(id(store))

    def called(self, to: str) -> str:
        """The public name of the place that a session was moved to: the kind for a store of the
        server, the type for any other store. A free text is kept as it is."""
        if (kind := self._kinds.get(to.partition(TENANT)[0])) is not None:
            return kind
        sort, colon, _ = to.partition(":")
        return f"another {sort} store" if colon and sort in OURS else to

    def row(self, row: Row) -> Row:
        """The public form of a row. A session that was moved has no run and no pending items."""
        return row if row.sealed is None else replace(self.whole(row), run=None, pending={})

    def whole(self, row: Row) -> Row:
        """The public form of a row, with all that is stored."""
        return row if row.sealed is None else replace(row, sealed=self.called(row.sealed))

    def event(self, event: Event) -> Event:
        """The public form of an event, with all default values."""
        if event.kind != MOVED:
            return complete(event)
        about = event.json()
        if not isinstance(about, dict) or not isinstance(to := about.get("to"), str):
            return event
        return complete(replace(event, data=to_json({**about, "to": self.called(to)})))

    def error(self, error: HoldfastError) -> HoldfastError:
        """The public form of an error."""
        if not isinstance(error, SessionMoved):
            return error
        return SessionMoved(**{**error.fields, "to": self.called(error.to)})

    def end(self, end: End) -> End:
        """The public form of the end of a stream."""
        if end.error is None or end.error.code != SessionMoved.code:
            return end
        moved = SessionMoved(**end.error.fields)
        return replace(end, error=failed(self.error(moved)).error)


def remaining(place: TenantStore, receipt: Receipt) -> Receipt:
    """The public form of a receipt for a deletion in this store."""
    return replace(receipt, remains=remains(place, receipt.remains))


def remains(place: TenantStore, left: tuple[Remains, ...] | list[Remains]) -> tuple[Remains, ...]:
    """The public form of what remains in a store: the part of the store, without its location."""
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

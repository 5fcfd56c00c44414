"""What strangers are told of a place: the kind of its store, as the server calls it, and never a
path or an address."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import HoldfastError, SessionMoved
from ...harness.sandbox.removal import WHERE
from ...log.catalog import Row
from ...log.events import Event, Scope, to_json
from ...log.events.defaults import complete
from ...stores.copy import place_name
from ...stores.port import Store
from ...values.records import Receipt, Remains
from ...wire import End, failed
from ..engines import Place

OURS = ("memory", "file", "sqlite", "postgres", "mongodb")  # what the name of a store begins with
LOG = "log "  # what remains is in a log that is named by its incarnation, which is no place
TENANT = " tenant "  # what may stand behind the name of a store
MOVED = "session.moved"


class Naming:
    """The stores of a server by what `session.moved` calls them, once they have been open."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._known: set[int] = set()

    async def learn(self, kind: str, store: Store) -> None:
        """Know a store by its kind from now on."""
        if id(store) in self._known:
            return
        none = Scope("", "")
        self._kinds.setdefault(await place_name(store, none, none), kind)
        self._known.add(id(store))

    def called(self, to: str) -> str:
        """Where a session was moved to: a store of the server by its kind, any other store by what
        it is. What is no store's name is what somebody wrote for others to read."""
        if (kind := self._kinds.get(to.partition(TENANT)[0])) is not None:
            return kind
        sort, colon, _ = to.partition(":")
        return f"another {sort} store" if colon and sort in OURS else to

    def row(self, row: Row) -> Row:
        """A row as it is shown: in what was moved, nothing runs or waits any more."""
        return row if row.sealed is None else replace(self.whole(row), run=None, pending={})

    def whole(self, row: Row) -> Row:
        """A row with all that is stored of it."""
        return row if row.sealed is None else replace(row, sealed=self.called(row.sealed))

    def event(self, event: Event) -> Event:
        """An event as it is shown: with its defaults written out."""
        if event.kind != MOVED:
            return complete(event)
        about = event.json()
        if not isinstance(about, dict) or not isinstance(to := about.get("to"), str):
            return event
        return complete(replace(event, data=to_json({**about, "to": self.called(to)})))

    def error(self, error: HoldfastError) -> HoldfastError:
        """An error as it is shown."""
        if not isinstance(error, SessionMoved):
            return error
        return SessionMoved(**{**error.fields, "to": self.called(error.to)})

    def end(self, end: End) -> End:
        """The end of a stream as it is shown."""
        if end.error is None or end.error.code != SessionMoved.code:
            return end
        moved = SessionMoved(**end.error.fields)
        return replace(end, error=failed(self.error(moved)).error)


def remaining(place: Place, receipt: Receipt) -> Receipt:
    """A receipt as it is shown, of a removal in this store."""
    return replace(receipt, remains=remains(place, receipt.remains))


def remains(place: Place, left: tuple[Remains, ...] | list[Remains]) -> tuple[Remains, ...]:
    """What is left in a store, as it is shown: in which part of it, but not where that is."""
    at, shown = place.store.info().location, f"the {place.kind} store"

    def where(text: str) -> str:
        if text.startswith((LOG, WHERE)):
            return text
        before, found, rest = text.partition(at) if at else (text, "", "")
        if not found or before:
            return shown
        part = rest.lstrip("/-, ")
        return f"{shown}, {part}" if part else shown

    return tuple(dict.fromkeys(replace(one, where=where(one.where)) for one in left))

"""Reads a log when it is opened, from its last snapshot or from its beginning, and decides when the
next snapshot is due."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple, TypeVar

import msgspec

from ...errors import StoreUnavailable
from ...log import events as ev
from ...log.codec import typed
from ...log.conversation import REWOUND
from ...log.events import Event, Key
from ...log.state import VERSION, State, fold
from ...stores.conversation import newest_first
from ...stores.port import Snapshot, Store
from ...values.display import since
from .prompt_history import History

P = TypeVar("P", bound=ev.Payload)

BATCH = 512  # events that are folded at once, and kept for the display
SNAPSHOT = 512  # events between two snapshots


class LoadedLog(NamedTuple):
    """The result of reading a log: the state in its last snapshot (`saved`), the current state, the
    messages that a model reads (`history`), and the events that the display needs (`shown`)."""

    saved: State
    state: State
    history: History
    shown: list[Event]


class LogLoader:
    """Reads one incarnation of a log."""

    def __init__(self, store: Store, key: Key, log: str) -> None:
        self._store, self._key, self._log = store, key, log

    async def load(self) -> LoadedLog:
        """Return the current state and history of the log, starting from its last snapshot."""
        saved = state = await self._saved()
        rewound = (saved.rewound or 0) > saved.window.upto
        history = History() if rewound else await self._history(saved)
        batch: list[Event] = []
        kept: deque[Event] = deque(maxlen=BATCH)
        async for event in self._read(
            saved.head if rewound else min(saved.window.upto, saved.head)
        ):
            kept.append(event)
            rewound = rewound or event.kind == REWOUND
            if event.seq > history.upto and not rewound:
                history.add(event)
            batch.append(event)
            if len(batch) == BATCH:
                state, batch = fold(batch, state), []
        state = fold(batch, state)
        if rewound:
            history = await self.history(state)
        return LoadedLog(saved, state, history, await self._shown(state, kept))

    async def history(self, state: State) -> History:
        """Return the messages of a rewound conversation, up to the head of `state`. Events that a
        rewind removed are not read."""
        upto = state.window.upto
        read = newest_first(self._store, self._key, log=self._log, last=state.head, after=upto)
        async with contextlib.aclosing(read):
            events = [event async for event in read]
        history = await self._history(state)
        history.extend(events[::-1], state)
        return history

    async def event(self, seq: int, *, inline: bool = True) -> Event | None:
        """Return the event with this number, or None if it does not exist."""
        found = [event async for event in self._read(seq - 1, seq + 1, inline)]
        return found[0] if found else None

    async def _saved(self) -> State:
        snapshot = None
        with contextlib.suppress(StoreUnavailable):  # then the log is read from its beginning
            snapshot = await self._store.load_snapshot(self._key, VERSION)
        if snapshot is not None and snapshot.log == self._log:
            with contextlib.suppress(msgspec.MsgspecError):  # ignore an unreadable snapshot
                return msgspec.json.decode(snapshot.state, type=State)
        return State()

    async def _history(self, state: State) -> History:
        if state.window.seq is None:
            return History()
        made = payload_of(await self.event(state.window.seq), ev.CompactionMade)
        if made is None:
            return History(state.window.upto)
        carried = [event for seq in made.carry if (event := await self.event(seq)) is not None]
        return History(made.upto, made.summary, carried)

    async def _shown(self, state: State, kept: deque[Event]) -> list[Event]:
        first = since(state)
        events = [event for event in kept if event.seq >= first]
        if first <= state.head and (not events or events[0].seq > first):
            events = [event async for event in self._read(first - 1, state.head + 1)]
        return events

    def _read(
        self, after: int, before: int | None = None, inline: bool = True
    ) -> AsyncIterator[Event]:
        return self._store.read(self._key, after=after, before=before, log=self._log, inline=inline)


class Snapshots:
    """Decides when a log needs a new snapshot. Stores the position of its last snapshot, and where
    the model's history started at that time."""

    def __init__(self) -> None:
        self._head = self._upto = 0

    def note(self, state: State) -> None:
        """Record that a snapshot of this state exists."""
        self._head, self._upto = state.head, state.window.upto

    def due(self, log: str, state: State) -> Snapshot | None:
        """Return a snapshot to write, or None if none is due. It is due if the last snapshot is
        old, or if the model's history was compacted since then."""
        if state.head - self._head < SNAPSHOT and state.window.upto == self._upto:
            return None
        self.note(state)
        text = msgspec.Raw(msgspec.json.encode(state))
        return Snapshot(log=log, seq=state.head, version=VERSION, state=text)


def payload_of(event: Event | None, type: type[P]) -> P | None:
    """Return the payload of an event, or None if it does not exist or cannot be read."""
    found = typed(event) if event is not None else None
    return found if isinstance(found, type) else None

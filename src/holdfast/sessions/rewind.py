"""Rewinds a thread: its conversation is then in the state that it had right after an earlier event.

The rewind event contains everything that the fold and the row need. It is computed from the log and
appended only if the log has not grown in the meantime. Otherwise it is computed again, with the
same id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec
from msgspec import Struct

from ..environment import current, wall_clock
from ..errors import (
    HeadMoved,
    HoldfastError,
    InvalidValue,
    LogDamaged,
    SessionBusy,
    StoreUnavailable,
)
from ..log import events as ev
from ..log.catalog.encrypted_preview import PREVIEW
from ..log.catalog.rows import Row
from ..log.codec import check_count, check_name, typed
from ..log.conversation import REWOUND
from ..log.events import Event, Key, NewEvent, ids, new_id
from ..log.state import VERSION, State, fold
from ..stores.conversation import newest_first
from ..stores.pages import existing_row
from ..stores.port import Store

PATIENCE = 60.0  # seconds for which a rewind is retried while others write
KEY = 480  # bytes of a caller's idempotency key
COUNTED = ("message.received", "message.completed")

StateAt = Callable[[Row], Awaitable[State]]


async def rewind(
    store: Store,
    thread: Key,
    to: int,
    *,
    actor: str | None = None,
    key: str | None = None,
    state_at: StateAt | None = None,
    then: Sequence[NewEvent] = (),
) -> int:
    """Rewind a thread to event `to`, and return the number of the rewind event. If a call with the
    same `key` has succeeded before, the number of its event is returned. `state_at` returns the
    state of the log at the head of a row, or at a later event. `then` are events that follow in the
    same append. Raises `SessionBusy` if a run or a pending item is open."""
    check_count("to", to, least=0)
    if actor is not None:
        check_name("actor", actor)
    if key is not None:
        check_name("key", key, limit=KEY)
    id = new_id() if key is None else ids.rewind_id(key)
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        row = await existing_row(store, thread)
        state = await (folded(store, row) if state_at is None else state_at(row))
        if state.head == row.head:
            done = await _attempt(store, row, state, to, id=id, actor=actor, then=then)
            if done is not None:
                return done
        if asyncio.get_running_loop().time() > end:
            raise StoreUnavailable(problem="the log grew faster than it could be read: try again")
        await asyncio.sleep(current().random.uniform(0, 0.02))  # spreads retries


async def _attempt(
    store: Store,
    row: Row,
    state: State,
    to: int,
    *,
    id: str,
    actor: str | None,
    then: Sequence[NewEvent],
) -> int | None:
    """Append the rewind event and `then`, or find it if it is already in the log. Returns its
    number, or None if the log has grown."""
    refused: HoldfastError | None = None
    try:
        payload = await planned(store, row, state, to)
    except (InvalidValue, SessionBusy) as error:
        # A rewind that is already in the log is found by its id, and not rejected.
        refused, payload = error, ev.ThreadRewound(to=to, window=ev.RewoundWindow())
    event = NewEvent.of("thread.rewound", payload, id=id, actor=actor)
    expected = row.head if refused is None else 0
    try:
        done = await store.append(row.key, [event, *then], expected=expected, log=row.log)
    except HeadMoved:
        if refused is not None:
            raise refused from None
        return None
    return done.seqs[0]


async def folded(store: Store, row: Row) -> State:
    """Compute the state of a log at the head of its row."""
    state, batch = await _saved(store, row), list[Event]()
    async with aclosing(
        store.read(row.key, after=state.head, before=row.head + 1, log=row.log)
    ) as events:
        async for event in events:
            batch.append(event)
            if len(batch) == 512:
                state, batch = fold(batch, state), []
    return fold(batch, state)


async def _saved(store: Store, row: Row) -> State:
    """Return the state of the last snapshot, or the empty state if there is no snapshot that ends
    at or before the row's head."""
    with contextlib.suppress(StoreUnavailable, msgspec.MsgspecError):
        snapshot = await store.load_snapshot(row.key, VERSION)
        if snapshot is not None and snapshot.log == row.log and snapshot.seq <= row.head:
            return msgspec.json.decode(snapshot.state, type=State)
    return State()


async def planned(store: Store, row: Row, state: State, to: int) -> ev.ThreadRewound:
    """Check whether a log in this state can be rewound to event `to`, and return the payload of the
    rewind event. Raises an error if it cannot."""
    _check(row, state, to)
    return await rewound(store, row, to, due=_due(state, to))


async def rewound(store: Store, row: Row, to: int, *, due: int | None) -> ev.ThreadRewound:
    """Return the payload of the event that rewinds a log to event `to`. Reads as few events as
    possible."""
    if to == 0:
        return ev.ThreadRewound(
            to=0, window=ev.RewoundWindow(), due=due, first=_first(row, "", whole=True)
        )
    dropped = await _dropped(store, row, to)
    whole = not dropped.reached
    first = whole or dropped.texts > 0
    kept = await _kept(store, row, to, whole=whole, first=first, base=dropped.window)
    messages = row.counts.get("messages", 0) - dropped.messages
    return ev.ThreadRewound(
        to=to,
        window=kept.window,
        due=due,
        messages=kept.messages if whole else max(0, messages),
        first=_first(row, kept.first, whole) if first else None,
    )


def _check(row: Row, state: State, to: int) -> None:
    if to > row.head:
        raise InvalidValue(
            field="to",
            problem=f"is {to}, and the log ends at event {row.head}",
            remedy="pass the number of an event of this thread, or 0",
            limit=row.head,
        )
    if state.too_new is not None:
        raise LogDamaged(
            problem=f"event {state.too_new} was written by a newer version: upgrade holdfast",
            tenant=row.tenant,
            session=row.session,
            thread=row.thread,
            seq=state.too_new,
        )
    if state.active is not None or state.pending or state.owes:
        run = state.active
        raise SessionBusy(
            session=row.session,
            run=None if run is None else run.id,
            since=None if run is None else run.at,
            remedy="abort the run first" if run is not None else "settle the pending items first",
        )


def _due(state: State, to: int) -> int | None:
    """Return when a driver must process the log: now if a message stays in the queue, otherwise at
    the time of the next timer or schedule, if there is one."""
    if any(item.seq <= to for item in state.queue):
        return wall_clock() if state.due is None else state.due
    return state.alarm


class _Dropped(Struct):
    """Counts what the rewind removes from the conversation. `messages` is the number of messages,
    and `texts` the number of user messages with text. `reached` means that event `to` is in the
    conversation. `window` is the window after event `to`, if an earlier rewind in the removed
    events contains it."""

    messages: int = 0
    texts: int = 0
    reached: bool = False
    window: ev.RewoundWindow | None = None

    def take(self, event: Event) -> None:
        """Count an event. Events are passed newest first."""
        self.messages += _counts(event)
        self.texts += bool(_text(event))
        if event.kind == REWOUND:
            self.window = _window(event)
        elif event.kind == "compaction.made":
            self.window = None
        elif self.window is not None:
            window, added = self.window, fold((event,)).window
            self.window = msgspec.structs.replace(
                window,
                tokens=max(0, window.tokens - added.tokens),
                turns=max(0, window.turns - added.turns),
            )


class _Kept(Struct):
    """What is known about the conversation that remains: its window and, as far as the log was
    read, the number of messages and the text of the first message. In a fork, only the fork's own
    events are counted, as in its row."""

    tokens: int = 0
    turns: int = 0
    base: ev.RewoundWindow | None = None
    messages: int = 0
    first: str = ""

    @property
    def window(self) -> ev.RewoundWindow:
        base = self.base or ev.RewoundWindow()
        return msgspec.structs.replace(
            base, tokens=base.tokens + self.tokens, turns=base.turns + self.turns
        )


async def _dropped(store: Store, row: Row, to: int) -> _Dropped:
    dropped = _Dropped(reached=to == 0)
    read = newest_first(store, row.key, log=row.log, last=row.head, after=max(0, to - 1))
    async with aclosing(read):
        async for event in read:
            if event.seq == to:
                dropped.reached = True
                break
            dropped.take(event)
    if not dropped.reached:
        dropped.window = None
    return dropped


async def _kept(
    store: Store,
    row: Row,
    to: int,
    *,
    whole: bool,
    first: bool,
    base: ev.RewoundWindow | None,
) -> _Kept:
    """Read the remaining conversation backwards from event `to`, only as far as needed: to the
    event that set its window (unless `base` is that window), with `first` to a message with text,
    and with `whole` to the beginning."""
    kept, shared = _Kept(base=base), row.parent.at if row.parent is not None else 0
    if base is not None and not first and not whole:
        return kept
    read = newest_first(store, row.key, log=row.log, last=to)
    async with aclosing(read):
        async for event in read:
            if kept.base is None:
                kept.base = _window(event)
            if kept.base is None:
                window = fold((event,)).window
                kept.tokens, kept.turns = kept.tokens + window.tokens, kept.turns + window.turns
            if event.seq > shared:
                kept.messages += _counts(event)
                kept.first = _text(event) or kept.first
            found = not first or bool(kept.first) or event.seq <= shared
            if kept.base is not None and (event.seq <= shared if whole else found):
                break
    return kept


def _window(event: Event) -> ev.RewoundWindow | None:
    """Return the window that an event sets, if any."""
    payload = typed(event)
    if isinstance(payload, ev.ThreadRewound):
        return payload.window
    if isinstance(payload, ev.CompactionMade):
        return ev.RewoundWindow(
            upto=payload.upto, seq=event.seq, tokens=payload.tokens, turns=payload.turns
        )
    return None


def _first(row: Row, text: str, whole: bool) -> str | None:
    """Return the first message for the row: None to keep the text that the row shows, or an empty
    text to remove it. The row then shows no first message until the next one is received. The
    rewind event does not contain the text itself, because an erasure would miss this copy. `text`
    is the text of the first message if the `whole` conversation was read, otherwise the text of any
    remaining message."""
    shown = row.first_message or ""
    text = text[:PREVIEW] if whole or not text else shown
    return None if text == shown else ""


def _counts(event: Event) -> bool:
    """Return whether an event is counted as a message in a row."""
    return event.kind in COUNTED and typed(event) is not None


def _text(event: Event) -> str:
    payload = typed(event) if event.kind == "message.received" else None
    return payload.text if isinstance(payload, ev.MessageReceived) else ""

"""The store of a replay. It compares the events that a driver writes with the recorded events, and
stores the recorded events instead. Ids and times are therefore the recorded ids and times, and each
step is decided on exactly the recorded state. When the replay no longer follows the recording, the
log behaves like an ordinary log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import BlobNotFound, HeadMoved, LeaseLost
from ...log import events as ev
from ...log.codec import typed
from ...log.events import Appended, Event, Key, NewEvent, Scope, ids
from ...log.state import FINAL
from ...stores.memory import MemoryStore
from ...stores.port import Acquire, BlobRef, Draft, Lease, Snapshot, StoreInfo
from .comparison import FIELDS, ComparisonTerms, body, differs, payload_fields
from .drivers import ReplayDrivers
from .report import ReplayNotes, Stopped
from .track import Track

EMPTY = 1_000  # consecutive appends at one position without an event to compare
TURNS = (
    "tool.finished",
    "pending.opened",
    "tool.probed",
)  # kinds that may have to wait for their turn


class ReplayPlan(Struct, frozen=True, kw_only=True):
    """The settings of a replay: the step from which models and tools are replaced, what is
    compared, and the kinds of events that are ignored."""

    from_step: int | None = None
    terms: ComparisonTerms = ComparisonTerms()
    ignore: frozenset[str] = frozenset()


class ReplayStore(MemoryStore):
    """The store of one replay, with its logs, its drivers, and the divergences found."""

    def __init__(
        self,
        tracks: dict[Key, Track],
        plan: ReplayPlan,
        blob: Callable[[str], Coroutine[Any, Any, bytes | None]],
    ) -> None:
        super().__init__(clock=lambda: self._now)
        self._now = 1
        self.tracks, self.plan, self._blob = tracks, plan, blob
        self.drivers, self.notes = ReplayDrivers(), ReplayNotes()
        self.busy = 0  # functions of the program that are running
        self.child: Callable[[Key, Key], Coroutine[Any, Any, None]] | None = None
        self._refused: set[tuple[Key, int]] = set()
        self._empty: dict[Key, tuple[int, int]] = {}  # appends in a row that changed nothing
        self._left: dict[Key, dict[str, list[int]]] = {}

    def swaps(self, track: Track) -> bool:
        """Return whether the replacements of the model and tools are used at this step."""
        return self.plan.from_step is not None and track.steps >= self.plan.from_step

    # Inputs

    async def begin(self, track: Track) -> None:
        """Create the log with the events that it shares with its parent thread and the first
        recorded inputs."""
        await self._play(track, create=True)
        while track.at < track.start:
            await self._play(track)
        await self.hand_in(track)

    async def hand_in(self, track: Track) -> None:
        """Append the recorded inputs up to the next event that the driver must write."""
        while not track.free and (event := track.outside()) is not None:
            place = track.at
            await self._child_of(track, event)
            if track.at == place:  # no other task has advanced it meanwhile
                await self._play(track)

    async def _child_of(self, track: Track, event: Event) -> None:
        """Replay the log of a sub-agent before its answer is supplied to its parent."""
        payload, thread = typed(event), None
        if isinstance(payload, ev.PendingSettled) and ids.is_child(payload.id):
            thread = f"sub/{ids.child_call(payload.id)}"
        elif isinstance(payload, ev.MessageReceived):
            thread = payload.thread
        if self.child is not None and thread is not None:
            await self.child(Key(track.key.tenant, track.key.session, thread), track.key)

    async def _play(self, track: Track, *, create: bool = False) -> None:
        event = track.events[track.at]
        self._now = event.at
        plain = NewEvent(**{name: getattr(event, name) for name in NewEvent.__struct_fields__})
        if event.kind in ("session.moved", "session.reopened"):  # a sealed log takes no events
            plain = msgspec.structs.replace(plain, kind=f"replayed.{event.kind}")
        await super().append(track.key, [plain], create=create)
        track.passed()
        if track.played and self.swaps(track):
            self.set_free(track)
        elif track.played:
            self.end(track)
        self.drivers.tune(track)
        self.drivers.stop(track)

    def end(self, track: Track, why: Stopped = "end") -> LeaseLost:
        """End the replay of a log and stop its driver. Returns the error that the driver gets."""
        if why != "end" and self.notes.stopped == "end":
            self.notes.stopped = why
        track.over = True
        return self.drivers.crash(track)

    def diverge(
        self,
        track: Track,
        event: Event | None,
        path: str,
        recorded: Any,
        came: Any,
        why: str = "",
        *,
        stopped: Stopped = "diverged",
    ) -> LeaseLost:
        """Record a divergence from a recorded event, and end the replay of the log."""
        self.notes.add(track, event, path, recorded, came, why)
        return self.end(track, stopped)

    def info(self) -> StoreInfo:
        return msgspec.structs.replace(super().info(), lease_with_append=False)

    # Appends of drivers

    async def append(
        self,
        key: Key,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        fence: Lease | None = None,
        log: str | None = None,
        create: bool = False,
        acquire: Acquire | None = None,
        release: Lease | None = None,
    ) -> Appended:
        track = self.tracks.get(key)
        if track is None or (track.free and fence is None):
            return await super().append(key, events, expected=expected, create=create)
        if fence is None:  # written by another thread: the recorded event is used instead
            return Appended((0,) * len(events), (await self._head(key)), 0)
        if track.over or (track.stopped and self.drivers.drives[key].failure is not None):
            raise self.drivers.gone(track)
        if track.free:
            return await self._freely(track, events, expected)
        await self.hand_in(track)
        counted = self._counted(events)
        await self._its_turn(track, counted)
        head = await self._head(key)
        if expected is not None and expected != head:
            raise self._moved(track, expected, head)
        await self._compared(track, counted, events, expected)
        if not track.free and track.events[track.at - 1].kind != "model.called":
            await self.hand_in(track)
        return Appended((0,) * len(events), await self._head(key), 0)

    async def _head(self, key: Key) -> int:
        row = await self.row(key)
        return row.head if row is not None else 0

    def _moved(self, track: Track, expected: int, head: int) -> HeadMoved:
        key = track.key
        return HeadMoved(
            tenant=key.tenant,
            session=key.session,
            thread=key.thread,
            expected=expected,
            head=head,
        )

    def _counted(self, events: Sequence[NewEvent]) -> list[NewEvent]:
        """Return the events to compare. Events written by tools are not compared. Without the
        program's agent, decisions about calls are not compared either."""
        whole = self.plan.terms.whole
        made = [n for n, event in enumerate(events) if event.kind == "message.completed"]
        about = made[0] if made and not whole else len(events)
        finals = _finals(events) if self.plan.terms.masked else set()
        return [
            event
            for n, event in enumerate(events)
            if event.kind in FIELDS
            and event.kind not in self.plan.ignore
            and (whole or event.kind != "context.built")
            and not (n > about and event.kind in TURNS)
            and not (event.kind == "tool.finished" and payload_fields(event).get("call") in finals)
            and not (event.kind == "message.received" and event.actor is not None)
        ]

    async def _compared(
        self,
        track: Track,
        counted: list[NewEvent],
        events: Sequence[NewEvent],
        expected: int | None,
    ) -> None:
        """Compare events with the recorded events, and append the recorded events."""
        ids: dict[str, str] = {}
        if not counted:
            self._nothing(track, events)
            return
        if expected is not None and self._cut(track, len(counted)):
            # In the recording an input arrived between these events, and the driver decided again.
            head = await self._head(track.key)
            if (track.key, head) not in self._refused:
                self._refused.add((track.key, head))
                raise self._moved(track, expected, head)
        for n, event in enumerate(counted):
            if n:
                await self.hand_in(track)
            if (coming := track.next_event) is None:
                if not track.free:
                    raise self.end(track)
                await super().append(track.key, _from(events, event))
                return
            terms = msgspec.structs.replace(self.plan.terms, swapped=self.swaps(track))
            if (found := differs(coming, event, ids, terms)) is not None:
                await self._diverged(track, event, found, events)
                return
            ids.update(_renamed(coming, event))
            await self._play(track)

    def _nothing(self, track: Track, events: Sequence[NewEvent]) -> None:
        """Handle an append that contains no event to compare. Too many such appends in a row count
        as a divergence."""
        place, times = self._empty.get(track.key, (track.at, 0))
        times = times + 1 if place == track.at else 1
        self._empty[track.key] = track.at, times
        coming = track.next_event
        if times > EMPTY and events and coming is not None:
            raise self.diverge(track, coming, "kind", _whole(coming), _whole(events[0]))

    async def _its_turn(self, track: Track, counted: Sequence[NewEvent]) -> None:
        """Wait until the recorded order allows this append, so that results of parallel calls are
        written in the recorded order."""
        if not counted or counted[0].kind not in TURNS:
            return
        kind, call = counted[0].kind, body(counted[0]).get("call")
        while not (track.over or track.free):
            mine = (
                place
                for place in range(track.at, len(track.events))
                if track.ours[place]
                and track.events[place].kind == kind
                and getattr(track.payloads[place], "call", None) == call
            )
            if next(mine, track.expected()) == track.expected():
                return
            await track.moved.wait()
            await self.hand_in(track)
        if track.over:
            raise self.drivers.gone(track)

    def _cut(self, track: Track, count: int) -> bool:
        """Return whether a recorded input comes between the next `count` events of the driver."""
        place, left = track.at, count
        while left and place < len(track.events):
            if not track.ours[place]:
                return left < count
            place, left = place + 1, left - 1
        return False

    async def _diverged(
        self,
        track: Track,
        event: NewEvent,
        found: tuple[str, Any, Any],
        events: Sequence[NewEvent],
    ) -> None:
        coming = track.next_event
        assert coming is not None
        sides = self._said(track, coming, event, found)
        if not self.swaps(track):
            raise self.diverge(track, coming, *sides)
        self.notes.add(track, coming, *sides)
        self.set_free(track)
        await super().append(track.key, _from(events, event))

    def _said(
        self, track: Track, recorded: Event, came: NewEvent, found: tuple[str, Any, Any]
    ) -> tuple[str, Any, Any]:
        """Return the path and both values of a difference for the report. If the events have
        different kinds, the values are the whole events. For a changed context, they are the system
        prompt or the messages."""
        if came.kind == "context.built" and found[0] in ("kind", "hash"):
            old = track.shown() or ev.ContextBuilt(hash="")
            new = body(came)
            if old.system != new.get("system", ""):
                return "system", old.system, new.get("system", "")
            return "messages", old.messages, new.get("messages", [])
        if found[0] == "kind":
            return "kind", _whole(recorded), _whole(came)
        return found

    # After the replay has stopped following the recording

    def set_free(self, track: Track) -> None:
        """Stop following the recording. From this position on, the log contains the events that the
        driver writes."""
        left: dict[str, list[int]] = {}
        expected = track.expected()
        for place in range(track.at, len(track.events)):
            if track.ours[place] and place != expected:
                left.setdefault(track.events[place].kind, []).append(place)
        self._left[track.key] = left
        track.free = True
        track.moved.set()

    async def _freely(
        self, track: Track, events: Sequence[NewEvent], expected: int | None
    ) -> Appended:
        left = self._left[track.key]
        for event in events:
            if event.kind in ("message.completed", "run.finished") and left.get(event.kind):
                recorded = track.events[left[event.kind].pop(0)]
                terms = ComparisonTerms(whole=False, masked=self.plan.terms.masked, swapped=True)
                if (found := differs(recorded, event, {}, terms)) is not None:
                    self.notes.add(track, recorded, *found)
        return await super().append(track.key, events, expected=expected)

    # Other methods that a driver needs

    async def acquire(
        self,
        key: Key,
        owner: str,
        *,
        ttl: float = 15.0,
        steal: str | None = None,
        mark: str | None = None,
    ) -> Lease:
        return await super().acquire(key, owner, ttl=ttl, steal=steal or "the replay continues")

    async def renew(self, lease: Lease) -> Lease:
        return lease

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        if head is not None and head != (now := await self._head(lease.key)):
            raise self._moved(self.tracks[lease.key], head, now)

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        """Do nothing, since drafts are not read."""

    async def drafts(self, key: Key) -> list[Draft]:
        """Return the draft that a recorded driver left when it crashed."""
        found = []
        for event, payload in self.tracks[key].ahead() if key in self.tracks else ():
            if not isinstance(payload, ev.MessageInterrupted) or payload.shown:
                break
            found.append(Draft(event.id, payload.text, 0))
        return found

    async def save_snapshot(
        self, key: Key, snapshot: Snapshot, *, fence: Lease | None = None
    ) -> None:
        """Do nothing, because snapshots are only used when a log is opened again."""

    async def get_blob(self, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
        data = await self._blob(ref.sha256)
        if data is None:
            raise BlobNotFound(tenant=scope.tenant, session=scope.session, sha256=ref.sha256)
        return data


def _whole(event: NewEvent) -> dict[str, Any]:
    """Return an event's kind and payload for a report."""
    return {event.kind: payload_fields(event)}


def _finals(events: Sequence[NewEvent]) -> set[str]:
    """Return the ids of the calls that return a typed answer."""
    made = (
        payload_fields(event).get("calls", [])
        for event in events
        if event.kind == "message.completed"
    )
    return {call["id"] for calls in made for call in calls if call["name"] == FINAL}


def _from(events: Sequence[NewEvent], first: NewEvent) -> Sequence[NewEvent]:
    return events[[event.id for event in events].index(first.id) :]


def _renamed(recorded: Event, came: NewEvent) -> dict[str, str]:
    """Return a map from the ids of a message's new calls to the recorded ids."""
    if recorded.kind != "message.completed":
        return {}
    old, new = body(recorded).get("calls") or [], body(came).get("calls") or []
    return {now["id"]: was["id"] for was, now in zip(old, new, strict=False)}


async def forever() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()

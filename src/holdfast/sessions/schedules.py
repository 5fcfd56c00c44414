"""Sets, lists, pauses and removes the recurring schedules of one thread.

`Schedules` works on a log that is open in a harness and on a log in a store, which are two kinds of
`ScheduleLog`. Each change is decided on the state at the head of the log, and appended only if the
log has not grown; otherwise it is decided again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from ..environment import wall_clock
from ..errors import HeadMoved, InvalidValue
from ..log import events as ev
from ..log.codec import check_choice, check_name, typed
from ..log.events import Key, NewEvent, Payload, ids, new_id
from ..log.state import ENTRIES, Schedule, State
from ..stores.pages import existing_row
from ..stores.port import Store
from ..values.schedule import MISSED, OVERLAP, Missed, Overlap, Scheduled
from .changes import check_live
from .recurrence import first_time, time_after
from .rewind import folded

P = TypeVar("P", bound=Payload)
NAME = 128  # bytes
Decide = Callable[[State], NewEvent | None]


class ScheduleLog(Protocol):
    """The log that `Schedules` reads and changes."""

    async def state(self, *, changing: bool = True) -> State:
        """Return the state at the head of the log. Raises an error if the log cannot be changed and
        is about to be."""
        ...

    async def payload(self, seq: int, kind: type[P]) -> P | None:
        """Return the payload of an event, or None if it was erased."""
        ...

    async def append_at(self, event: NewEvent, head: int) -> bool:
        """Append after event `head`. Returns False if the log has grown."""
        ...


class StoredLog:
    """The log of a thread in a store, that no harness of this process has open."""

    def __init__(self, store: Store, key: Key) -> None:
        self._store, self._key = store, key
        self._log: str | None = None

    async def state(self, *, changing: bool = True) -> State:
        main = Key(self._key.tenant, self._key.session, "main")
        if changing:
            check_live(await existing_row(self._store, main), "continuing")
        row = await existing_row(self._store, self._key)
        self._log = row.log
        return await folded(self._store, row)

    async def payload(self, seq: int, kind: type[P]) -> P | None:
        read = self._store.read(self._key, after=seq - 1, before=seq + 1, log=self._log)
        found = [typed(event) async for event in read]
        return found[0] if found and isinstance(found[0], kind) else None

    async def append_at(self, event: NewEvent, head: int) -> bool:
        try:
            await self._store.append(self._key, [event], expected=head, log=self._log)
        except HeadMoved:
            return False
        return True


class Schedules:
    """The recurring schedules of one thread. They are durable: whichever process serves the agent
    sends their messages, each once."""

    def __init__(self, log: ScheduleLog, clock: Callable[[], int] = wall_clock) -> None:
        self._log, self._clock = log, clock

    async def set(
        self,
        name: str,
        *,
        message: str,
        cron: str | None = None,
        every: float | None = None,
        timezone: str | None = None,
        missed: Missed = "once",
        overlap: Overlap = "skip",
        metadata: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> Scheduled:
        """Send `message` at the times of a cron expression, by the clocks of `timezone` (default:
        UTC), or `every` so many seconds from now on. Replaces the schedule with this name; one that
        is the same already is left unchanged.

        `missed` says what happens with firings that no process made within a minute: `skip` them,
        send the message `once` for all of them, or for `all` of them. `overlap` says what happens
        while a run is open or an earlier message of the schedule is queued: `skip` the firing, or
        `queue` its message.
        """
        _check(name, message, missed, overlap, metadata)
        first, interval, zone = await asyncio.to_thread(
            first_time, cron, every, timezone, self._clock()
        )
        wanted = ev.TimerScheduled(
            name=name,
            text=message,
            next=first,
            cron=cron,
            every=interval,
            timezone=zone,
            metadata=dict(metadata or {}),
            missed=missed,
            overlap=overlap,
        )
        event = NewEvent.of("timer.scheduled", wanted, id=new_id(), actor=actor)
        while True:
            state = await self._log.state()
            if (known := state.schedules.get(name)) is not None:
                payload = await self._log.payload(known.seq, ev.TimerScheduled)
                if payload is not None and replace(payload, next=first) == wanted:
                    return _shown(payload, known)
            elif len(state.schedules) >= ENTRIES:
                problem = f"the thread already has {ENTRIES} schedules, the maximum"
                raise InvalidValue(
                    field="name", problem=problem, remedy="remove some first", limit=ENTRIES
                )
            if await self._log.append_at(event, state.head):
                return _shown(wanted, Schedule(0, first))

    async def list(self) -> list[Scheduled]:
        """Return the schedules, those that were set first at the beginning."""
        state = await self._log.state(changing=False)
        found = []
        for name, schedule in state.schedules.items():
            payload = await self._log.payload(schedule.seq, ev.TimerScheduled)
            if payload is None:  # it was erased; its next firing removes the schedule
                payload = ev.TimerScheduled(name=name, text="", next=schedule.next or 0)
            found.append(_shown(payload, schedule))
        return found

    async def pause(self, name: str, *, actor: str | None = None) -> Scheduled:
        """Stop a schedule until it is resumed."""
        return await self._switch(name, True, actor)

    async def resume(self, name: str, *, actor: str | None = None) -> Scheduled:
        """Resume a paused schedule with its next time after now."""
        return await self._switch(name, False, actor)

    async def remove(self, name: str, *, actor: str | None = None) -> bool:
        """Remove a schedule. Returns False if there is none with this name."""
        check_name("name", name, limit=NAME)
        while True:
            state = await self._log.state()
            if (known := state.schedules.get(name)) is None:
                return False
            payload, id = ev.TimerUnscheduled(name=name), ids.unscheduled_id(known.seq)
            event = NewEvent.of("timer.unscheduled", payload, id=id, actor=actor)
            if await self._log.append_at(event, state.head):
                return True

    async def _switch(self, name: str, paused: bool, actor: str | None) -> Scheduled:
        check_name("name", name, limit=NAME)
        id = new_id()
        while True:
            state = await self._log.state()
            known = state.schedules.get(name)
            payload = None
            if known is not None:
                payload = await self._log.payload(known.seq, ev.TimerScheduled)
            if known is None or payload is None:
                problem = f"no schedule has the name {name!r}"
                raise InvalidValue(field="name", problem=problem, remedy="list the schedules")
            if known.paused == paused:
                return _shown(payload, known)
            coming = known.next
            if not paused:
                coming = await asyncio.to_thread(time_after, payload, self._clock())
            change = ev.TimerPaused(name=name, paused=paused, next=None if paused else coming)
            event = NewEvent.of("timer.paused", change, id=id, actor=actor)
            if await self._log.append_at(event, state.head):
                return _shown(payload, replace(known, paused=paused, next=coming))


def _check(name: Any, message: Any, missed: Any, overlap: Any, metadata: Any) -> None:
    check_name("name", name, limit=NAME)
    if not isinstance(message, str):
        problem = f"is {type(message).__name__}"
        raise InvalidValue(field="message", problem=problem, remedy="pass a str")
    check_choice("missed", missed, MISSED)
    check_choice("overlap", overlap, OVERLAP)
    if missed == "all" and overlap == "skip":
        problem = "is 'all', and overlap='skip' would drop all messages but the first"
        raise InvalidValue(field="missed", problem=problem, remedy="pass overlap='queue'")
    strings = metadata is None or (
        isinstance(metadata, Mapping) and all(isinstance(key, str) for key in metadata)
    )
    if not strings:
        problem = f"is {type(metadata).__name__}"
        raise InvalidValue(field="metadata", problem=problem, remedy="pass a mapping with str keys")


def _shown(payload: ev.TimerScheduled, schedule: Schedule) -> Scheduled:
    return Scheduled(
        name=payload.name,
        message=payload.text,
        cron=payload.cron,
        every=None if payload.every is None else payload.every / 1000,
        timezone=payload.timezone,
        missed=payload.missed,
        overlap=payload.overlap,
        metadata=payload.metadata,
        paused=schedule.paused,
        next=None if schedule.paused else schedule.next,
        last=schedule.due,
    )

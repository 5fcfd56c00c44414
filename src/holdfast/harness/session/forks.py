"""Threads that go on differently: forks of a thread at a place where nothing is open, and what is
made of them."""

from __future__ import annotations

import contextlib
from typing import Any, Generic

import msgspec
from msgspec.structs import replace

from ...errors import HoldfastError, InvalidValue, SessionExists, SessionNotFound, UnsafePoint
from ...log import events as ev
from ...log.catalog import Parent, Row
from ...log.codec import check_name
from ...log.events import Key, NewEvent, ids, key, new_id
from ...log.state import VERSION, State, fold
from ...stores.port import Snapshot, Store
from ..live.inputs import check_text
from ..live.log import Live
from ..live.log_loader import SNAPSHOT
from .base import S, SessionCore, SessionPart
from .regenerate import regeneration_of
from .views import StateView


class Forks(SessionPart, Generic[S]):
    """What branches off from one thread. Each fork is a live session of its own."""

    _core: SessionCore[S]

    def __init__(self, core: SessionCore[S]) -> None:
        super().__init__(core)

    @property
    def id(self) -> str:
        """The name of this thread."""
        return self._core.key.thread

    async def clone(
        self,
        title: str | None = None,
        *,
        id: str | None = None,
        source: str | None = None,
        at: int | None = None,
        actor: str | None = None,
    ) -> S:
        """A fork of this thread, or of `source`, at event `at`, or at the last place where
        nothing is open. Mode, model and settings are its parent's, its usage is none."""
        if source is not None and source != self.id:
            other = await self._open(source)
            return await Forks(other).clone(title, id=id, at=at, actor=actor)
        try:
            return await self.fork(at=at, thread=id, title=title, actor=actor)
        except UnsafePoint as unsafe:
            if at is not None:
                raise
            return await self.fork(at=unsafe.nearest, thread=id, title=title, actor=actor)

    async def fork(
        self,
        *,
        at: int | None = None,
        thread: str | None = None,
        title: str | None = None,
        actor: str | None = None,
    ) -> S:
        """A thread of its own that shares all up to event `at`, and goes on differently. The
        parent is not touched. `UnsafePoint` where something is open. `actor` is who wants it."""
        core, live = self._core, self._core.live
        core.check()
        where = self._key(new_id() if thread is None else thread)
        place = live.state.head if at is None else at
        then = await _safe(live, place)
        forked = ev.ThreadForked(
            parent=live.key.thread, at=place, agent=core.config.agent.key, title=title
        )
        first = NewEvent.of("thread.forked", forked, actor=actor)
        await live.store.fork(live.key, where.thread, at=place, first=first)
        if then.settings:  # so that lists can be filtered by them
            event = NewEvent.of("metadata.changed", ev.MetadataChanged(set=then.settings))
            await live.store.append(where, [event])
        if place >= SNAPSHOT:
            with contextlib.suppress(HoldfastError):  # then whoever drives it keeps one
                await _keep(core, where, then)
        return (await core.host.open(where.session, where.thread)).session

    async def edit(
        self, seq: int, text: str, *, actor: str | None = None, thread: str | None = None
    ) -> S:
        """Go back to before message `seq` was read and send other words, with all else that it
        came with, in a thread of its own, called `thread`; with the same name twice it is done
        once. The words are `actor`'s, or of whoever sent it. `InvalidValue` where `seq` is no
        message."""
        check_text("text", text)
        return await self._again(seq, text, actor, thread)

    async def regenerate(
        self, seq: int, *, actor: str | None = None, thread: str | None = None
    ) -> S:
        """Ask message `seq` again, with all that it came with, in a thread of its own, as `edit`
        does, which is `actor`'s wish; the words stay those of whoever sent it. `InvalidValue`
        where `seq` is no message."""
        return await self._again(seq, actor=actor, thread=thread)

    async def restore(self, id: str) -> S:
        """Go on from a checkpoint, in a thread of its own: mode, model and state as they were."""
        core, seq = self._core, self._state.checkpoints.get(id)
        core.check_open()
        made = None if seq is None else await core.live.payload(seq, ev.CheckpointMade)
        if seq is None or made is None:
            raise InvalidValue(
                field="id", problem=f"there is no checkpoint {id!r}", remedy="list them"
            )
        where, head = (core.live, seq) if made.shared is None else (core.shared, made.shared)
        forked = await self.fork(at=seq)
        then = State()
        async for event in where.store.read(where.key, before=head + 1, log=where.log):
            then = fold((event,), then)
        if core.shared.state.data != then.data:
            await StateView(core).replace(then.data)
        return forked

    async def _again(
        self,
        seq: int,
        text: str | None = None,
        actor: str | None = None,
        thread: str | None = None,
    ) -> S:
        """With a `thread` that was begun for this before, it is gone on with, and not doubled
        (`SessionExists` where it is another's)."""
        core, outputs = self._core, self._core.host.runtime.outputs
        core.check()
        back = await regeneration_of(core.live, seq)
        where = self._key(new_id() if thread is None else thread)
        try:
            await self.fork(at=back.at, thread=where.thread, actor=actor)
        except SessionExists:
            row = await row_of(core.host.store, where)
            if row.parent != Parent(core.key.thread, back.at):
                raise
        forked = await core.host.open(where.session, where.thread)
        told = enumerate(back.events(text, actor))
        events = [replace(event, id=ids.again_id(where.thread, n)) for n, event in told]
        last = await forked.append(*events)
        for number, one in enumerate(reversed(back.asked)):
            if (known := outputs.get((core.live.log, one.seq))) is not None:
                outputs[forked.live.log, last - number] = known
        return forked.session

    async def _open(self, thread: str) -> SessionCore[S]:
        """Another thread of this session, open; `SessionNotFound` if it does not exist."""
        self._core.check()
        return await self._core.host.open(self._core.key.session, self._key(thread).thread)

    def _key(self, thread: str | None) -> Key:
        here = self._core.key
        if thread is None:
            return here
        check_name("thread", thread)
        return key(here.session, thread, here.tenant)


async def row_of(store: Store, where: Key) -> Row:
    """What lists show of a thread; `SessionNotFound` where there is none."""
    row = await store.row(where)
    if row is None:
        raise SessionNotFound(tenant=where.tenant, session=where.session, thread=where.thread)
    return row


async def _keep(core: SessionCore[Any], where: Key, then: State) -> None:
    """A snapshot of a fork, so that who opens it does not read all that it shares."""
    store = core.host.store
    row = await row_of(store, where)
    async for event in store.read(where, after=then.head, log=row.log):
        then = fold((event,), then)
    text = msgspec.Raw(msgspec.json.encode(then))
    kept = Snapshot(log=row.log, seq=then.head, version=VERSION, state=text)
    lease = await store.acquire(where, core.config.owner, ttl=core.config.ttl)
    try:
        await store.save_snapshot(where, kept, fence=lease)
    finally:
        await store.release(lease)


async def _safe(live: Live, place: int) -> State:
    """The state at an event; refused where something is open."""
    if place == live.state.head and live.state.safe:
        return live.state
    state, nearest = State(), 1
    async for event in live.store.read(live.key, before=place + 1, log=live.log):
        state = fold((event,), state)
        nearest = event.seq if state.safe else nearest
    if not state.safe:
        raise UnsafePoint(session=live.key.session, at=place, nearest=nearest)
    return state

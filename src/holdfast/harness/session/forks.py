"""Forks of a thread at a safe point, and the operations that use them: clone, edit, regenerate and
restore."""

from __future__ import annotations

import contextlib
from typing import Any, Generic

import msgspec
from msgspec.structs import replace

from ...errors import HoldfastError, InvalidValue, SessionExists, UnsafePoint
from ...log import events as ev
from ...log.catalog import Parent
from ...log.codec import check_name
from ...log.events import Key, NewEvent, ids, key, new_id
from ...log.state import VERSION, State, fold
from ...stores.pages import existing_row
from ...stores.port import Snapshot
from ..live.inputs import check_text
from ..live.log import Live
from ..live.log_loader import SNAPSHOT
from .base import S, SessionCore, SessionPart
from .regenerate import regeneration_of
from .views import StateView


class Forks(SessionPart, Generic[S]):
    """The forks of one thread. Each fork is a live session."""

    _core: SessionCore[S]

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
        """Fork this thread, or the thread `source`, at event `at` (default: the last safe point).
        The fork has the mode, model and settings of its parent, and no usage yet."""
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
        """Create a thread that shares all events up to `at` and continues separately. The parent is
        not changed. Raises `UnsafePoint` if a call or an item is open at that point. `actor` is the
        user who requested the fork."""
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
            with contextlib.suppress(HoldfastError):  # otherwise the first driver writes one
                await _keep(core, where, then)
        return (await core.host.open(where.session, where.thread)).session

    async def edit(
        self, seq: int, text: str, *, actor: str | None = None, thread: str | None = None
    ) -> S:
        """Replace the text of message `seq`, and run the message again in a fork named `thread`. If
        the call is repeated with the same name, nothing is duplicated. The rest of the message,
        such as attachments, is kept. The sender of the new text is `actor`, by default the original
        sender. Raises `InvalidValue` if event `seq` is not a message."""
        check_text("text", text)
        return await self._again(seq, text, actor, thread)

    async def regenerate(
        self, seq: int, *, actor: str | None = None, thread: str | None = None
    ) -> S:
        """Send message `seq` again, unchanged, in a fork named `thread`. `actor` is the user who
        requested it; the sender of the message stays the same. Raises `InvalidValue` if event `seq`
        is not a message."""
        return await self._again(seq, actor=actor, thread=thread)

    async def restore(self, id: str) -> S:
        """Fork this thread at a checkpoint. Mode, model and user state are those at the
        checkpoint."""
        core, seq = self._core, self._state.checkpoints.get(id)
        core.check_open()
        made = None if seq is None else await core.live.payload(seq, ev.CheckpointMade)
        if seq is None or made is None:
            raise InvalidValue(
                field="id",
                problem=f"checkpoint {id!r} does not exist",
                remedy="use an id that checkpoints.list returns",
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
        """Fork this thread before message `seq`, and send the message again in the fork, with
        `text` as its new text. If `thread` was created for the same request before, that thread is
        continued and nothing is duplicated. Raises `SessionExists` if it was created by a different
        request."""
        core, outputs = self._core, self._core.host.runtime.outputs
        core.check()
        back = await regeneration_of(core.live, seq)
        where = self._key(new_id() if thread is None else thread)
        try:
            await self.fork(at=back.at, thread=where.thread, actor=actor)
        except SessionExists:
            row = await existing_row(core.host.store, where)
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
        """Open another thread of this session. Raises `SessionNotFound` if it does not exist."""
        self._core.check()
        return await self._core.host.open(self._core.key.session, self._key(thread).thread)

    def _key(self, thread: str | None) -> Key:
        here = self._core.key
        if thread is None:
            return here
        check_name("thread", thread)
        return key(here.session, thread, here.tenant)


async def _keep(core: SessionCore[Any], where: Key, then: State) -> None:
    """Write a snapshot of a fork, so that opening the fork does not read all shared events."""
    store = core.host.store
    row = await existing_row(store, where)
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
    """Return the state at event `place`. Raises `UnsafePoint` if a call or an item is open
    there."""
    if place == live.state.head and live.state.safe:
        return live.state
    state, nearest = State(), 1
    async for event in live.store.read(live.key, before=place + 1, log=live.log):
        state = fold((event,), state)
        nearest = event.seq if state.safe else nearest
    if not state.safe:
        raise UnsafePoint(session=live.key.session, at=place, nearest=nearest)
    return state

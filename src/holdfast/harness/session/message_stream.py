"""What becomes of one message, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Unpack

from ...cancellation import ended
from ...errors import HarnessClosed, InvalidValue
from ...log.events import Event
from ...log.state import Run
from ...stores.port import wall_clock
from ...values.options import Content, SendOptions, check_options
from ...values.result import Result
from ...values.stream_items import Item, Trouble
from ...values.watch import Watch
from ..live.log import Listener, Live
from ..loop.decide import asks_within, at_rest, delegates
from ..loop.typed_output import convert
from .base import SessionCore, SessionPart
from .pending_answers import asks
from .subagents import Subagents
from .views import Queue


class Streaming(SessionPart):
    """What runs do, as it happens: call it with a message to see what becomes of that."""

    def __call__(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> Stream:
        """Send a message and see everything that its run does, as it happens."""
        check_options(options)
        return Stream(self._core, content, output_type, options)

    @property
    def active_run_id(self) -> str | None:
        """The run that is going, or waits."""
        run = self._state.active
        return run.id if run is not None else None

    @property
    def is_active(self) -> bool:
        return self._state.active is not None

    async def abort(self, reason: str | None = None) -> None:
        """Stop it."""
        await self._core.abort(reason)


class Stream:
    """What becomes of one message: events and deltas, in order, until its run waits or has
    ended; then `result`. Leaving the loop stops nothing; `cancel` does."""

    def __init__(
        self, core: SessionCore[Any], content: Content, kind: Any, options: SendOptions
    ) -> None:
        self._core, self._content, self._kind, self._options = core, content, kind, options
        self._result: Result | None = None
        self.seq: int | None = None
        self._watch: Watch | None = None
        self._cancelled = self._asked = False

    @property
    def result(self) -> Result:
        if self._result is None:
            raise InvalidValue(
                field="result",
                problem="is not there before the stream was read to its end",
                remedy="read it with `async for` until it ends, or use send",
            )
        return self._result

    def __aiter__(self) -> AsyncGenerator[Item, None]:
        return self._items()

    async def cancel(self, reason: str | None = None) -> None:
        """Stop this run, and no other; if it has not begun, take the message out of the queue.
        What is not sent yet is not sent at all."""
        core = self._core
        if self.seq is None:
            self._cancelled = True
        elif any(q.seq == self.seq for q in core.live.state.queue):
            await Queue(core).remove(self.seq)
        elif (run := await self._run()) is not None:
            await core.abort(reason, run=run)

    async def _run(self) -> str | None:
        """The run that took the message up, also where nobody has read so far."""
        watch = Watch(self._core.key, self.seq or 0)
        self._core.check_open()
        live = self._core.live
        async for event in live.store.read(live.key, after=watch.input - 1, log=live.log):
            watch.see(event)
        return watch.run

    def _asks_within(self, item: Item) -> bool:
        """Whether the run waits for a person within a call, and all before that was shown."""
        state, watch = self._core.live.state, self._watch
        shown = isinstance(item, Event) and item.seq == state.head
        mine = watch is not None and state.run is not None and watch.run == state.run.id
        return shown and mine and asks_within(state)

    def _goes_on(self) -> bool:
        """Whether a run that was seen to wait does not wait any more: what it waited for was
        settled or has expired, and the events that follow from that are yet to come."""
        core, watch = self._core, self._watch
        if watch is None or watch.end is None or watch.end[0] != "waiting":
            return False
        state = core.live.state
        if state.active is None or state.active.id != watch.run:
            return True
        return not (at_rest(state, core.config.bounds, wall_clock()) or asks_within(state))

    def _behind(self) -> bool:
        """Whether the message waits for its turn, and only a person can bring that about."""
        core, watch = self._core, self._watch
        state = core.live.state
        if watch is None or not any(item.seq == self.seq for item in state.queue):
            return False
        if not self._asked and not at_rest(state, core.config.bounds, wall_clock()):
            return False
        watch.end = ("queued", None, None, state.head)
        return True

    async def _items(self) -> AsyncGenerator[Item, None]:
        core = self._core
        core.check()
        if self._cancelled:
            never = Watch(core.key, 0)
            never.end = ("removed", None, None, core.live.state.head)
            self._result = await result_of(core, never)
            return
        listener = core.live.listen()
        asked: asyncio.Task[None] | None = None
        try:
            self.seq = await core.post(self._content, output_type=self._kind, **self._options)
            before = 0
            if self.seq <= listener.after:  # an idempotent repeat: it happened before
                listener.close()
                before = core.live.state.head
                listener = core.live.listen(self.seq - 1)
            self._watch = watch = Watch(core.key, self.seq)
            if self._behind():
                self._result = await result_of(core, watch, self._kind)
                return
            asked = asyncio.create_task(self._until_asked(listener))
            async with contextlib.aclosing(aiter(listener)) as items:
                async for item in items:
                    if watch.see(item):
                        yield item
                    if watch.end is None and self._asks_within(item):
                        watch.end = ("waiting", None, None, core.live.state.head)
                    if _was(item, before):
                        continue  # it may have waited then, and gone on since
                    if (watch.end is not None and not self._goes_on()) or self._behind():
                        break
                    if core.live.stuck is not None and isinstance(item, Trouble):
                        raise core.live.stuck
            self._conclude(watch, asked)
            self._result = await result_of(core, watch, self._kind)
        finally:
            listener.close()
            if asked is not None:
                await ended(asked)

    def _conclude(self, watch: Watch, asked: asyncio.Task[None]) -> None:
        """Say why there is nothing more to read, where no event did."""
        core = self._core
        if self._goes_on():
            watch.end = None
        if watch.end is None and asked.done():
            asked.result()  # a sub-agent that cannot go on is told of here
            if not self._behind():
                watch.end = ("waiting", None, None, core.live.state.head)
        if watch.end is None:
            raise core.live.failure or HarnessClosed(what=f"session {core.key.session!r}")

    async def _until_asked(self, listener: Listener) -> None:
        """Read no further once a sub-agent of the run waits for a person."""
        core = self._core
        try:
            while not self._asked:
                await core.live.until(lambda: delegates(core.live.state))
                self._asked = await Subagents(core).asked()
        finally:
            listener.end()


def _was(item: Item, head: int) -> bool:
    """Whether more of what happened up to event `head` is to come after this."""
    return isinstance(item, Event) and item.seq < head


async def wait(core: SessionCore[Any], output_type: Any = None) -> Result:
    """Wait until the current or last run waits for a person or has ended, and the queue is
    empty. Its typed answer is of `output_type`, else of the type that its message asked for in
    this process, else plain JSON."""
    core.check()
    live = core.live
    while True:
        asked = await _until_it_waits(core)
        run, head = live.state.run, live.state.head
        watch = await _watched(live, run, head)
        ended = watch.end is not None and watch.end[0] != "waiting"
        if ended or asked or live.state.head == head:
            break  # otherwise the pending item may have been settled while the log was read
    if watch.end is None and (asked or asks_within(live.state)):
        watch.end = ("waiting", None, None, live.state.head)
    if output_type is None and run is not None and run.output is not None:
        output_type = core.host.runtime.outputs.get((live.log, run.output), Any)
    return await result_of(core, watch, output_type)


async def _watched(live: Live, run: Run | None, head: int) -> Watch:
    """What became of a run up to event `head`."""
    watch = Watch(live.key, -1)
    start = run.seq if run is not None else 1
    async for event in live.store.read(live.key, after=start - 1, before=head + 1, log=live.log):
        watch.run = run.id if run is not None else None
        watch.see(event)
    return watch


async def _until_it_waits(core: SessionCore[Any]) -> bool:
    """Wait until there is nothing to do in this thread, nor in the sub-agents that it waits for.
    Returns whether one of those waits for a person."""
    live, bounds = core.live, core.config.bounds

    def waits() -> bool:
        state = live.state
        return at_rest(state, bounds, wall_clock()) or asks_within(state) or delegates(state)

    while True:
        await live.until(lambda: live.stuck is not None or waits())
        if live.stuck is not None:
            raise live.stuck
        if not delegates(live.state):
            return False
        if await Subagents(core).asked():
            return True


async def result_of(core: SessionCore[Any], watch: Watch, type: Any = None) -> Result:
    """The result of a message, as far as it was watched."""
    config = core.config
    kind = type if type is not None else config.agent.output_type
    mode = config.mode(core.live.state).name
    read = None if kind is None else partial(convert, type=kind)
    return watch.result(await asks(core), config.agent.key, mode, read, core.live.failures)

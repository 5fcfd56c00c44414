"""The stream of one message: the events and deltas of its run, while it is running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Unpack

from ...cancellation import ended
from ...errors import HarnessClosed
from ...log.events import Event
from ...log.state import Run
from ...values.options import Content, SendOptions, check_options
from ...values.result import Result, StreamResult
from ...values.stream_items import Item, Trouble
from ...values.watch import Conclusion, MessageWatch, delegates
from ..live.log import Listener, Live
from ..loop.typed_output import convert
from .base import SessionCore, SessionPart
from .pending_answers import asks
from .subagents import Subagents
from .views import Queue


class Streaming(SessionPart):
    """Call `session.stream(message)` to send a message and stream its run."""

    def __call__(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> MessageStream:
        """Send a message, and stream the events and deltas of its run."""
        check_options(options)
        return MessageStream(self._core, content, output_type, options)

    @property
    def active_run_id(self) -> str | None:
        """The id of the active run, running or waiting."""
        run = self._state.active
        return run.id if run is not None else None

    @property
    def is_active(self) -> bool:
        return self._state.active is not None

    async def abort(self, reason: str | None = None) -> None:
        """Abort the active run."""
        await self._core.abort(reason)


class MessageStream(StreamResult):
    """Iterator over the events and deltas of one message, in order, until its run waits or has
    ended; then `result` is available. Leaving the loop does not stop the run; `cancel` does."""

    def __init__(
        self, core: SessionCore[Any], content: Content, kind: Any, options: SendOptions
    ) -> None:
        self._core, self._content, self._kind, self._options = core, content, kind, options
        self.seq: int | None = None
        self._cancelled = self._asked = False

    def __aiter__(self) -> AsyncGenerator[Item, None]:
        return self._items()

    async def cancel(self, reason: str | None = None) -> None:
        """Abort this run, and no other. If it has not started, remove the message from the queue. A
        message that was not sent yet is not sent at all."""
        core = self._core
        if self.seq is None:
            self._cancelled = True
        elif any(q.seq == self.seq for q in core.live.state.queue):
            await Queue(core).remove(self.seq)
        elif (run := await self._run()) is not None:
            await core.abort(reason, run=run)

    async def _run(self) -> str | None:
        """Return the run that took the message from the queue, or None. It is found in the log,
        even if the stream has not been read that far."""
        self._core.check_open()
        live, seq = self._core.live, self.seq or 1
        watch = MessageWatch(live.key, seq)
        async for event in live.store.read(live.key, after=seq - 1, log=live.log):
            watch.see(event)
        return watch.run

    def _is_done(self, watch: MessageWatch, item: Item | None = None) -> bool:
        """Return whether this item is the last item of the message."""
        core, state = self._core, self._core.live.state
        newest = isinstance(item, Event) and item.seq == state.head
        return watch.is_done(state, core.rest, asked=self._asked, newest=newest)

    async def _items(self) -> AsyncGenerator[Item, None]:
        core = self._core
        core.check()
        if self._cancelled:
            never = MessageWatch(core.key)
            never.end = Conclusion("removed", core.live.state.head)
            self._result = await result_of(core, never)
            return
        listener = core.live.listen()
        asked: asyncio.Task[None] | None = None
        try:
            self.seq = await core.post(self._content, output_type=self._kind, **self._options)
            before = 0
            if self.seq <= listener.after:  # a repeated key: its events are in the log
                listener.close()
                before = core.live.state.head
                listener = core.live.listen(self.seq - 1)
            watch = MessageWatch(core.key, self.seq)
            if self._is_done(watch):
                self._result = await result_of(core, watch, self._kind)
                return
            asked = asyncio.create_task(self._until_asked(listener))
            async with contextlib.aclosing(aiter(listener)) as items:
                async for item in items:
                    if watch.see(item):
                        yield item
                    if _was(item, before):
                        continue  # the run may have waited at that point, and continued since
                    if self._is_done(watch, item):
                        break
                    if core.live.stuck is not None and isinstance(item, Trouble):
                        raise core.live.stuck
                else:
                    self._conclude(watch, asked)
            self._result = await result_of(core, watch, self._kind)
        finally:
            listener.close()
            if asked is not None:
                await ended(asked)

    def _conclude(self, watch: MessageWatch, asked: asyncio.Task[None]) -> None:
        """Raise the error that ended the stream, if no event contains the reason."""
        core = self._core
        if self._is_done(watch):
            return
        if not asked.done():
            raise core.live.failure or HarnessClosed(what=f"session {core.key.session!r}")
        asked.result()  # raises the error of a sub-agent that cannot continue
        watch.end = Conclusion("waiting", core.live.state.head)

    async def _until_asked(self, listener: Listener) -> None:
        """End the listener once a sub-agent of the run waits for user input."""
        try:
            await Subagents(self._core).until_asked()
            self._asked = True
        finally:
            listener.end()


def _was(item: Item, head: int) -> bool:
    """Return whether the item is an event that precedes event `head`."""
    return isinstance(item, Event) and item.seq < head


async def wait(core: SessionCore[Any], output_type: Any = None) -> Result:
    """Wait until the current or last run waits for user input or has ended, and the queue is empty.
    A typed answer is converted to `output_type`, or else to the type that its message requested in
    this process; otherwise it is plain JSON."""
    core.check()
    live = core.live
    while True:
        asked = await _until_it_waits(core)
        run, head = live.state.run, live.state.head
        watch = await _watched(live, run, head)
        state = live.state
        if watch.is_done(state, core.rest, asked=asked, newest=True) or state.head == head:
            break  # otherwise the pending item may have been decided while the log was read
    if output_type is None and run is not None and run.output is not None:
        output_type = core.host.runtime.outputs.get((live.log, run.output), Any)
    return await result_of(core, watch, output_type)


async def _watched(live: Live, run: Run | None, head: int) -> MessageWatch:
    """Return a `MessageWatch` that has seen the events of a run up to `head`."""
    watch = MessageWatch(live.key, run=run.id if run is not None else None)
    start = run.seq if run is not None else 1
    async for event in live.store.read(live.key, after=start - 1, before=head + 1, log=live.log):
        watch.see(event)
    return watch


async def _until_it_waits(core: SessionCore[Any]) -> bool:
    """Wait until nothing is left to do in this thread and in the sub-agents that it waits for.
    Returns whether one of these sub-agents waits for user input."""
    live = core.live

    def waits() -> bool:
        return live.stuck is not None or delegates(live.state) or core.rest() is not None

    while True:
        await live.until(waits)
        if live.stuck is not None:
            raise live.stuck
        if not delegates(live.state):
            return False
        if await Subagents(core).asked():
            return True


async def result_of(core: SessionCore[Any], watch: MessageWatch, type: Any = None) -> Result:
    """Return the result of a message, based on the events that `watch` has seen so far."""
    config = core.config
    kind = type if type is not None else config.agent.output_type
    mode = config.mode(core.live.state).name
    read = None if kind is None else partial(convert, type=kind)
    return watch.result(await asks(core), config.agent.key, mode, read, core.live.failures)

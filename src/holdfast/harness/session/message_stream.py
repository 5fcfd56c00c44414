"""What becomes of one message, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Unpack

from ...cancellation import ended
from ...errors import HarnessClosed, InvalidValue
from ...log.events import Event
from ...stores.port import wall_clock
from ...values.options import Content, SendOptions, check_options
from ...values.result import Result
from ...values.stream_items import Item, Trouble
from ...values.watch import Watch
from ..live.log import Listener
from ..loop.decide import asks_within, at_rest, delegates
from .state_views import Standing, result_of
from .views import View


class Streaming(View):
    """What runs do, as it happens: call it with a message to see what becomes of that."""

    _ground: Standing

    def __call__(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> Stream:
        """Send a message and see everything that its run does, as it happens."""
        check_options(options)
        return Stream(self._ground, content, output_type, options)

    @property
    def active_run_id(self) -> str | None:
        """The run that is going, or waits."""
        return self._ground.run.id

    @property
    def is_active(self) -> bool:
        return self._ground.run.id is not None

    async def abort(self, reason: str | None = None) -> None:
        """Stop it."""
        await self._ground.abort(reason)


class Stream:
    """What becomes of one message: events and deltas, in order, until its run waits or has
    ended; then `result`. Leaving the loop stops nothing; `cancel` does."""

    def __init__(
        self, session: Standing, content: Content, kind: Any, options: SendOptions
    ) -> None:
        self._session, self._content, self._kind, self._options = session, content, kind, options
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
        session = self._session
        if self.seq is None:
            self._cancelled = True
        elif any(q.seq == self.seq for q in session.live.state.queue):
            await session.queue.remove(self.seq)
        elif (run := await self._run()) is not None:
            await session.abort(reason, run=run)

    async def _run(self) -> str | None:
        """The run that took the message up, also where nobody has read so far."""
        watch = Watch(self._session.key, self.seq or 0)
        for event in await self._session.events(after=watch.input - 1):
            watch.see(event)
        return watch.run

    def _asks_within(self, item: Item) -> bool:
        """Whether the run waits for a person within a call, and all before that was shown."""
        state, watch = self._session.live.state, self._watch
        shown = isinstance(item, Event) and item.seq == state.head
        mine = watch is not None and state.run is not None and watch.run == state.run.id
        return shown and mine and asks_within(state)

    def _goes_on(self) -> bool:
        """Whether a run that was seen to wait does not wait any more: what it waited for was
        settled or has expired, and the events that follow from that are yet to come."""
        session, watch = self._session, self._watch
        if watch is None or watch.end is None or watch.end[0] != "waiting":
            return False
        state = session.live.state
        if state.active is None or state.active.id != watch.run:
            return True
        return not (at_rest(state, session.config.bounds, wall_clock()) or asks_within(state))

    def _behind(self) -> bool:
        """Whether the message waits for its turn, and only a person can bring that about."""
        session, watch = self._session, self._watch
        state = session.live.state
        if watch is None or not any(item.seq == self.seq for item in state.queue):
            return False
        if not self._asked and not at_rest(state, session.config.bounds, wall_clock()):
            return False
        watch.end = ("queued", None, None, state.head)
        return True

    async def _items(self) -> AsyncGenerator[Item, None]:
        session = self._session
        session.check()
        if self._cancelled:
            never = Watch(session.key, 0)
            never.end = ("removed", None, None, session.live.state.head)
            self._result = await result_of(session, never)
            return
        listener = session.live.listen()
        asked: asyncio.Task[None] | None = None
        try:
            self.seq = await session.post(self._content, output_type=self._kind, **self._options)
            before = 0
            if self.seq <= listener.after:  # an idempotent repeat: it happened before
                listener.close()
                before = session.live.state.head
                listener = session.live.listen(self.seq - 1)
            self._watch = watch = Watch(session.key, self.seq)
            if self._behind():
                self._result = await result_of(session, watch, self._kind)
                return
            asked = asyncio.create_task(self._until_asked(listener))
            async with contextlib.aclosing(aiter(listener)) as items:
                async for item in items:
                    if watch.see(item):
                        yield item
                    if watch.end is None and self._asks_within(item):
                        watch.end = ("waiting", None, None, session.live.state.head)
                    if _was(item, before):
                        continue  # it may have waited then, and gone on since
                    if (watch.end is not None and not self._goes_on()) or self._behind():
                        break
                    if session.live.stuck is not None and isinstance(item, Trouble):
                        raise session.live.stuck
            self._conclude(watch, asked)
            self._result = await result_of(session, watch, self._kind)
        finally:
            listener.close()
            if asked is not None:
                await ended(asked)

    def _conclude(self, watch: Watch, asked: asyncio.Task[None]) -> None:
        """Say why there is nothing more to read, where no event did."""
        session = self._session
        if self._goes_on():
            watch.end = None
        if watch.end is None and asked.done():
            asked.result()  # a sub-agent that cannot go on is told of here
            if not self._behind():
                watch.end = ("waiting", None, None, session.live.state.head)
        if watch.end is None:
            raise session.live.failure or HarnessClosed(what=f"session {session.key.session!r}")

    async def _until_asked(self, listener: Listener) -> None:
        """Read no further once a sub-agent of the run waits for a person."""
        session = self._session
        try:
            while not self._asked:
                await session.live.until(lambda: delegates(session.live.state))
                self._asked = await session.subagents.asked()
        finally:
            listener.end()


def _was(item: Item, head: int) -> bool:
    """Whether more of what happened up to event `head` is to come after this."""
    return isinstance(item, Event) and item.seq < head

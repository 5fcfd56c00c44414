"""The display of a session: the value that a user interface shows, and its changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ...errors import LogReplaced, SessionNotFound
from ...values.display import Display
from ...values.stream_items import Item
from .base import SessionPart

WINDOW = 0.016  # minimum seconds between two displays


class Bell:
    """A subscriber that ignores the content of items, and only wakes a coroutine when one
    arrives."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.ended = False

    def put(self, item: Item) -> None:
        self._rung.set()

    def end(self) -> None:
        self.ended = True
        self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()
        self._rung.clear()


class DisplayView(SessionPart):
    """The display of this thread, which contains everything that a user interface shows."""

    def get(self) -> Display:
        """Return the current display. It is an immutable value."""
        live, config = self._core.live, self._core.config
        agent, first = config.agent, config.agent.mode(None)
        live.stage.name(
            session=live.key.session,
            thread=live.key.thread,
            modes={mode.name: mode.model for mode in (first, *agent.modes)},
            default=agent.model or config.default_model,
        )
        return live.stage.now(live.in_flight.now())

    async def changes(self) -> AsyncGenerator[Display, None]:
        """Yield the current display, then a new display after each change. Updates are at least 16
        ms apart, and the last update is never skipped. Ends when the session is closed."""
        self._core.check()
        live, bell = self._core.live, Bell()
        live.subscribers.join(bell)
        self._core.host.subscribed(bell)
        try:
            shown: Display | None = None
            while not bell.ended:
                if (display := self.get()) != shown:
                    yield display
                    shown = display
                    await asyncio.sleep(WINDOW)
                await bell.wait()
            if isinstance(live.failure, (LogReplaced, SessionNotFound)):
                raise live.failure
            if self.get() != shown:
                yield self.get()
        finally:
            live.subscribers.leave(bell)

"""Showing a session: its display, now and as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ...errors import LogReplaced, SessionNotFound
from ...values.display import Display
from ...values.stream_items import Item
from .base import SessionPart

WINDOW = 0.016  # seconds between two displays, at least


class Bell:
    """Rings when something happens, and remembers that it rang."""

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
    """What a person is to see of this thread."""

    def get(self) -> Display:
        """The display at this moment. A value: it stays as it is, whatever happens next."""
        live, config = self._core.live, self._core.config
        agent, first = config.agent, config.agent.mode(None)
        live.stage.name(
            session=live.key.session,
            thread=live.key.thread,
            modes={mode.name: mode.model for mode in (first, *agent.modes)},
            default=agent.model or config.default_model,
        )
        return live.stage.now(live.speech.now())

    async def changes(self) -> AsyncGenerator[Display, None]:
        """The display now, and again whenever it is another one: at most every 16 ms, however
        much happens meanwhile, and the last is exact. Ends with the session."""
        self._core.check()
        live, bell = self._core.live, Bell()
        live.audience.join(bell)
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
            live.audience.leave(bell)

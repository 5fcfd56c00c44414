"""A process that is killed between two calls: `adk_writer URL STOP`. It makes the calls of `steps`
one by one, until it has made `STOP` of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.session import Session
from google.genai import types

from holdfast.adapters.adk import HoldfastSessionService

WHO: dict[str, Any] = {"app_name": "shop", "user_id": "u", "session_id": "s"}


def event(text: str, **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=delta)
    return Event(id=text, author="user", content=content, actions=actions, timestamp=1.0)


EVENTS = [event("one"), event("two", a=1), event("three", **{"user:b": 2, "app:c": 3})]
STATES: list[dict[str, Any]] = [{}, {}, {"a": 1}, {"a": 1, "user:b": 2, "app:c": 3}]


async def steps(service: HoldfastSessionService) -> AsyncGenerator[None, None]:
    """Make one call before each yield."""
    session: Session = await service.create_session(**WHO)
    yield
    for each in EVENTS:
        await service.append_event(session, each)
        yield
    await service.delete_session(**WHO)
    yield


async def main(url: str, stop: str) -> None:
    made = 0
    async for _ in steps(HoldfastSessionService(url)):
        made += 1
        if made == int(stop):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""What tests of webhooks do: sessions with events, and a deliverer that is quick."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import Store
from holdfast.events import Key, NewEvent
from holdfast.webhooks import Deliverer, HttpSender, networks

from .receiver import LOOPBACK

POLL = 0.02


async def say(store: Store, session: str, *texts: str, thread: str = "main", **created: Any) -> int:
    """Append messages to a session, which is created if needed. Returns the last number."""
    key, events = Key("main", session, thread), []
    if await store.row(key) is None:
        events.append(NewEvent.of("session.created", {"agent": "shop", **created}))
    events += [NewEvent.of("message.received", {"text": text}) for text in texts]
    return (await store.append(key, events, create=True)).head


def sender(**options: Any) -> HttpSender:
    """What sends to this machine."""
    return HttpSender(networks(LOOPBACK), **options)


@asynccontextmanager
async def delivering(store: Store, **options: Any) -> AsyncGenerator[Deliverer, None]:
    """A deliverer that looks often, and may send to this machine."""
    given = {"networks": LOOPBACK, "poll": POLL, **options}
    async with Deliverer(store, **given) as deliverer:
        yield deliverer

"""Leaves a session undone: drives it until it is killed, or only writes the message down.
`driver URL SESSION LATER drives|writes`; the clock of this process is LATER ms ahead."""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from holdfast import Agent, Harness, NewEvent, Store, connect, key
from holdfast.harness.session.session import core_of
from holdfast.models.scripted import Say, ScriptedModel

from .talk import hear, say


async def main(url: str, session: str, later: str, how: str) -> None:
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    real, ahead = time.time_ns, int(later) * 1_000_000
    time.time_ns = lambda: real() + ahead
    async with connect(url) as store:
        await (drives if how == "drives" else writes)(store, session)


async def drives(store: Store, session: str) -> None:
    agent, slow = (
        Agent("clerk", instructions="Help."),
        ScriptedModel([Say("Let me see.", delay=600)]),
    )
    async with Harness(agent, store=store, default_model=slow, ttl=5.0) as harness:
        opened = await harness.get_or_create(session)
        await opened.post("Hello")
        await core_of(opened).live.until(lambda: core_of(opened).live.state.active is not None)
        say(left=True)
        await asyncio.to_thread(hear)


async def writes(store: Store, session: str) -> None:
    created = NewEvent.of("session.created", {"agent": "clerk"})
    said = NewEvent.of("message.received", {"text": "Hello"})
    await store.append(key(session), [created, said], create=True)
    say(left=True)
    await asyncio.to_thread(hear)


asyncio.run(main(*sys.argv[1:]))

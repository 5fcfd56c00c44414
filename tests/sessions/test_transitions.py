"""Whoever follows a session is told each change of its phase, by whom and why."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from holdfast import SessionNotFound, Sessions
from holdfast.sessions import Transition

from .scene import WEB, Clock, row, say


async def test_the_history_of_a_session_is_told(sessions: Sessions, clock: Clock) -> None:
    made = await sessions.create("a", user="ann")
    at = [clock.go(1)]
    await sessions.touch("a", actor="ann", reason="wrote")
    await sessions.touch("a")  # no change of phase
    await sessions.attach_surface("a", *WEB)
    await sessions.update_metadata("a", {"x": 1})
    at.append(clock.go(1))
    await sessions.suspend("a", actor="ops")
    at.append(clock.go(1))
    await say(sessions.store, "a", "message.received", {"text": "hi"}, actor="ann")
    at.append(clock.go(1))
    await sessions.expire("a", reason="done")
    told = [t async for t in sessions.transitions("a", wait=False)]
    assert [(t.before, t.phase, t.kind, t.at, t.actor, t.reason) for t in told] == [
        ("created", "active", "session.touched", at[0], "ann", "wrote"),
        ("active", "suspended", "session.suspended", at[1], "ops", None),
        ("suspended", "active", "message.received", at[2], "ann", None),
        ("active", "expired", "session.expired", at[3], None, "done"),
    ]
    assert {t.session for t in told} == {made.session}
    assert told[-1].at == (await row(sessions, "a")).changed
    later = [t async for t in sessions.transitions("a", after=told[1].seq, wait=False)]
    assert later == told[2:]
    with pytest.raises(SessionNotFound):
        [t async for t in sessions.transitions("nobody", wait=False)]


async def test_a_follower_is_told_what_comes(sessions: Sessions) -> None:
    await sessions.create("a", user="ann")
    await sessions.touch("a")
    heard: list[Transition] = []
    first = asyncio.Event()

    async def listen() -> None:
        async with aclosing(sessions.transitions("a")) as transitions:
            async for transition in transitions:
                heard.append(transition)
                first.set()
                if transition.phase == "expired":
                    return

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(30):
        await first.wait()
        await sessions.suspend("a")
        await sessions.resume("a")
        await sessions.expire("a")
        await listening
    assert [t.phase for t in heard] == ["active", "suspended", "active", "expired"]

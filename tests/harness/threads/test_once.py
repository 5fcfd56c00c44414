"""Going back under a name: with the same name twice it is done once, however far it had come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import SessionExists, StoreUnavailable, connect
from holdfast.harness.session.session import Session
from holdfast.testing.faults import Fail, FaultyStore

from ..kernel.scene import PATIENCE, helper, script, serve


async def asked(session: Session) -> int:
    """The message that is gone back to."""
    await session.send("one")
    await session.send("two")
    return (await session.events(kinds=("message.received",)))[1].seq


async def said(session: Session) -> list[tuple[str, str]]:
    async with asyncio.timeout(PATIENCE):
        await session.wait()
    return [(message.role, message.text) for message in await session.transcript()]


@pytest.mark.parametrize("verb", ["edit", "regenerate"])
@pytest.mark.parametrize("lost", [None, "append"], ids=["done", "forked"])
async def test_what_is_gone_back_to_twice_under_a_name_is_one_thread(
    verb: str, lost: str | None
) -> None:
    async with connect("memory:") as inner:
        store = FaultyStore(inner)
        model = script("ok", repeat=True)
        async with serve(helper(), default_model=model, store=store) as harness:
            session = await harness.get_or_create("s")
            seq = await asked(session)
            words: tuple[Any, ...] = ("other",) if verb == "edit" else ()
            again = getattr(session.thread, verb)
            if lost is None:
                await said(await again(seq, *words, thread="back"))
            else:  # the thread was begun, and nothing was said in it
                store.plan.append(Fail(method="append", call=store.calls["append"] + 1))
                with pytest.raises(StoreUnavailable):
                    await again(seq, *words, thread="back")
            forked = await again(seq, *words, thread="back")
            assert forked.key.thread == "back"
            text = "other" if words else "two"
            assert (await said(forked))[2:] == [("user", text), ("assistant", "ok")]
            assert len(model.calls) == 3
            assert len((await session.threads.list()).items) == 2


async def test_a_thread_that_stands_for_something_else_is_not_spoken_in() -> None:
    async with serve(helper(), default_model=script("ok", repeat=True)) as harness:
        session = await harness.get_or_create("s")
        seq = await asked(session)
        await session.threads.create(id="mine")
        before = await said(session)
        for name in ("main", "mine"):
            with pytest.raises(SessionExists):
                await session.thread.regenerate(seq, thread=name)
        assert await said(session) == before
        assert await said(await harness.open("s", "mine")) == []

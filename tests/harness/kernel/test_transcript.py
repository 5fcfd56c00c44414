"""The conversation as people read it."""

from __future__ import annotations

import pytest

from holdfast import InvalidValue, tool
from holdfast.models.scripted import Say, Use

from .scene import helper, read, script, serve


@tool
async def look(order: str) -> str:
    """Look."""
    return f"order {order}"


@pytest.mark.parity("harness-kernel", 102)
async def test_messages_by_role_and_number() -> None:
    async with serve(helper(tools=[look]), Say(calls=[Use("look", order="7")]), "ok") as harness:
        session = await harness.get_or_create("s")
        await session.send("one", actor="ann")
        await session.send("two")
        await session.emit("my.note", {"hidden": True})
        whole = await session.transcript()
        assert [m.role for m in whole] == ["user", "assistant", "assistant"] * 2
        assert await session.transcript(limit=2) == whole[-2:]
        assert await session.transcript(limit=0) == []
        assert await session.transcript(limit=100) == whole
        mine = await session.transcript(roles=("user",))
        assert [(m.text, m.actor) for m in mine] == [("one", "ann"), ("two", None)]
        assert await session.transcript(roles=("assistant",), limit=1) == whole[-1:]
        (call,) = whole[1].calls
        assert (call.name, call.arguments) == ("look", {"order": "7"})
        assert call.outcome is not None
        assert (call.outcome.outcome, call.outcome.result) == ("ok", "order 7")
        side = await session.threads.fork(at=whole[2].seq + 1)
        await side.send("three")
        assert await session.transcript() == whole  # other threads are no part of it
        assert len(await side.transcript()) == 6


async def test_a_conversation_from_elsewhere_is_gone_on_with() -> None:
    model = script("and so on")
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.seed(
            [("user", "hello"), ("assistant", "hi"), ("user", "x"), ("assistant", "y")]
        )
        assert session.status.phase == "idle"
        assert (await session.send("more")).text == "and so on"
        with pytest.raises(InvalidValue):
            await session.seed([("system", "obey")])
    assert read(model.calls[0]) == [
        "user: hello",
        "model: hi",
        "user: x",
        "model: y",
        "user: more",
    ]

"""`Sessions.post`: messages from programs that have no agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, Harness, InvalidValue, PhaseError, Sessions, connect
from holdfast.errors import InvalidValue as Invalid
from holdfast.models import ScriptedModel

AGENT = Agent("clerk", instructions="Help.")
MODEL: Any = ScriptedModel(["done"], repeat=True)


async def test_a_message_is_stored_once_and_answered_by_a_harness() -> None:
    async with connect("memory:") as store:
        sessions = Sessions(store)
        about: Any = {"agent": "clerk", "user": "ann", "title": "Order 42", "labels": ["vip"]}
        posts = [sessions.post("s", "hi", key="k", **about) for _ in range(5)]
        seqs = await asyncio.gather(*posts)
        assert {*seqs} == {2}
        row = await sessions.get("s")
        assert row is not None
        assert (row.user, row.title, row.agent) == ("ann", "Order 42", "clerk")
        async with Harness(AGENT, default_model=MODEL, store=store) as harness:
            session = await harness.open("s")
            assert (await session.wait()).text == "done"
            assert await sessions.post("s", "hi", key="k", agent="clerk") == 2
            more = await sessions.post("s", "more", agent="clerk", metadata={"from": "mail"})
            assert more > 2


async def test_a_key_with_another_text_is_rejected() -> None:
    async with connect("memory:") as store:
        sessions = Sessions(store)
        await sessions.post("s", "hi", agent="clerk", key="k")
        with pytest.raises(InvalidValue, match="'k' was used for another message"):
            await sessions.post("s", "other", agent="clerk", key="k")


async def test_another_agent_and_an_expired_session_are_rejected() -> None:
    async with connect("memory:") as store:
        sessions = Sessions(store)
        await sessions.post("s", "hi", agent="clerk")
        with pytest.raises(InvalidValue, match="belongs to 'clerk'"):
            await sessions.post("s", "hi", agent="shop")
        await sessions.expire("s")
        with pytest.raises(PhaseError):
            await sessions.post("s", "hi", agent="clerk")
        for text, agent in ((3, "clerk"), ("hi", ""), (None, "clerk")):
            with pytest.raises(Invalid):
                await sessions.post("new", text, agent=agent)  # type: ignore[arg-type]
        assert await sessions.get("new") is None


async def test_an_unknown_filter_names_the_valid_ones() -> None:
    async with (
        connect("memory:") as store,
        Harness(AGENT, default_model=MODEL, store=store) as harness,
    ):
        calls: list[Any] = [Sessions(store).find, harness.list, harness.pending]
        for call in calls:
            with pytest.raises(InvalidValue, match=r"usr.* is not a filter.*user") as caught:
                await call(usr="ann")
            assert caught.value.field == "usr"

"""What an earlier version left waiting for a person goes on with this one: the stores of `waiting`
were written by a harness of a version before runs, rows and items had all that they have now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Agent, Harness, PendingQuery, connect, key, tool
from holdfast.harness.live.decisions import settle_pending
from holdfast.harness.session.session import core_of
from holdfast.models.scripted import Say, ScriptedModel, Use

from .write import STORES, copy

WAITING = Path(__file__).parent / "waiting"
PATIENCE = 30.0


def shop(url: str, refunded: list[str]) -> Harness:
    @tool(approval="ask")
    def refund(order: str) -> str:
        """Refund an order."""
        refunded.append(order)
        return f"refunded {order}"

    use = Say("One moment.", calls=[Use("refund", order="42")])
    model = ScriptedModel.by_input({"Refund": [use, "Done."], "And then": "That was all."})
    return Harness(Agent("shop", "Help.", tools=[refund]), default_model=model, store=url)


@pytest.mark.parity("user-demand", 50)
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("answer", ["approved", "denied"])
async def test_it_is_listed_answered_and_gone_on_with(
    kind: str, answer: str, tmp_path: Path
) -> None:
    copy(WAITING / STORES[kind], tmp_path / STORES[kind])
    refunded: list[str] = []
    url = f"{kind}:{tmp_path / STORES[kind]}"
    harness = shop(url, refunded)
    async with connect(url) as store:
        items = (await store.pending(PendingQuery(tenant="main", user="ann"))).items
        (item,) = [item for item in items if item.session == "customer"]
        assert (item.title, item.approvals) == ("refund(order='42')", 1)
        await settle_pending(store, key("customer"), item.id, answer, actor="bob")  # type: ignore[arg-type]
    async with harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("customer")
        while core_of(session).live.state.queue or core_of(session).live.state.active is not None:
            await session.wait()
        said = [message.text for message in await session.transcript()]
        assert said == ["Refund 42.", "One moment.", "And then?", "Done.", "That was all."]
        assert refunded == (["42"] if answer == "approved" else [])
        assert [damage async for damage in harness.store.verify()] == []

"""Kill -9 of the process that delivers, at each step of a story in which a delivery fails once and
others succeed. Another process takes over: nothing is lost, and the order is kept."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.webhooks import Webhooks
from holdfast.webhooks import log_delivery as back_off
from tests import servers

from .receiver import Delivery, receiving
from .scene import delivering, say

MOMENTS = 12  # before and after: three requests, and what is written after each


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_killed_deliverer_loses_nothing_and_keeps_the_order(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_off, "FIRST", 0.05)
    url = f"sqlite:{tmp_path / 'a.db'}" if kind == "sqlite" else servers.url(kind, tmp_path)
    refused: set[str] = set()

    def answer(got: Delivery) -> int:
        if got.place[2] == 2 and got.id not in refused:
            refused.add(got.id)
            return 500
        return 200

    async with receiving(answer) as receiver, holdfast.connect(url) as store:
        await Webhooks(store).add(receiver.url, kinds=["message.received"])
        for moment in range(1, MOMENTS + 1):
            session = f"s{moment}"
            await say(store, session, "1", "2")
            dying = [sys.executable, "-m", "tests.webhooks.dying", url, str(moment)]
            child = await asyncio.create_subprocess_exec(*dying)
            assert await asyncio.wait_for(child.wait(), 60) == -9, f"it lives on at {moment}"
            async with delivering(store, ttl=1):
                await receiver.until(lambda it, s=session: it.places()[-1:] == [(s, "main", 3)])  # type: ignore[misc]
            mine = [one.place[2] for one in receiver.accepted if one.place[0] == session]
            assert list(dict.fromkeys(mine)) == [2, 3], f"killed at moment {moment}: {mine}"
            assert len(mine) <= 3, "one delivery at most is made again"
        assert [damage async for damage in store.verify()] == []

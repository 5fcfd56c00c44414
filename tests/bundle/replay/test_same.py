"""What was recorded comes again: with the program's agent, and with one made from the log; out of
a store, out of a bundle of each mode, and out of every prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Agent, Appended, Harness, Key, NewEvent, PendingQuery, tool
from holdfast.bundle import Mode, export_bundle, replay
from holdfast.models import Say, Use
from holdfast.models.scripted import ScriptedModel, Step
from holdfast.store import wall_clock
from holdfast.stores.memory import MemoryStore

from .scenes import KEY, SCENES, SCOPE, shop, talk

MODES: list[Mode] = ["local", "sanitized", "replay_only"]
TOKEN = "sk-live-4eC39HqLyjWDarjtT1zdp7dc"


@pytest.mark.parity("user-demand", 79)
@pytest.mark.parametrize("whole", [False, True], ids=["from the log", "with its agent"])
@pytest.mark.parametrize("name", SCENES)
async def test_a_session_replays_as_it_was(name: str, whole: bool) -> None:
    store = MemoryStore()
    agent = await SCENES[name](store)
    found = await replay((store, SCOPE), agent if whole else None)
    assert found.first is None
    assert (found.same, found.stopped) == (True, "end")
    assert found.steps >= 1
    assert found.compared >= 3


@pytest.mark.parity("user-demand", 63, 79)
@pytest.mark.parametrize("name", SCENES)
async def test_a_bundle_of_any_mode_replays(name: str) -> None:
    store = MemoryStore()
    agent = await SCENES[name](store)
    for mode in MODES:
        bundle = await export_bundle((store, SCOPE), mode)
        for who in (None, agent):
            found = await replay(bundle, who)
            assert found.first is None, mode
            assert (found.same, found.mode) == (True, mode)


@pytest.mark.parametrize("name", ["edited", "subagents", "aborted", "repeated", "handed_over"])
async def test_every_prefix_replays(name: str) -> None:
    store = MemoryStore()
    agent = await SCENES[name](store)
    row = await store.row(KEY)
    assert row is not None
    for upto in range(1, row.head + 1):
        bundle = await export_bundle((store, SCOPE), "local", threads=["main"], upto=upto)
        for who in (None, agent):
            found = await replay(bundle, who)
            assert found.first is None, upto


async def test_a_copy_whose_run_was_ended_by_whoever_made_it_replays() -> None:
    store = MemoryStore()
    agent = await SCENES["waiting"](store)
    bundle = await export_bundle((store, SCOPE), "local", purpose="copy")
    assert bundle.thread().added > 0
    assert (await replay(bundle, agent)).same


class Slow(MemoryStore):
    """A store that writes a waiting run only once the item that it waits for runs out."""

    async def append(self, key: Key, events: Sequence[NewEvent], **options: Any) -> Appended:
        if any(event.kind == "run.waiting" for event in events):
            (item,) = (await self.pending(PendingQuery(tenant=key.tenant))).items
            assert item.expires is not None
            await asyncio.sleep((item.expires - wall_clock() + 1) / 1000)
        return await super().append(key, events, **options)


async def test_a_run_that_was_written_late_as_waiting_is_not_taken_for_one_handed_over() -> None:
    @tool(approval="ask", expires=0.05)
    async def soon() -> str:
        """Soon."""
        return "soon"

    store, agent = Slow(), shop(tools=[soon])
    model = ScriptedModel([Say(calls=[Use("soon")]), "Done."], per_turn=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.send("Go.")
        await session.wait()
    for who in (None, agent):
        found = await replay((store, SCOPE), who)
        assert found.first is None


def judging() -> Agent:
    """An agent that decides by the arguments."""

    @tool(approval=lambda token: token.startswith("sk-"))
    async def spend(token: str) -> str:
        """Spend."""
        return f"spent with {token}"

    return shop(tools=[spend])


@pytest.mark.parity("user-demand", 63)
async def test_what_was_redacted_still_pairs_and_replays() -> None:
    store = MemoryStore()
    agent = judging()
    steps: list[Step] = [Say(f"With {TOKEN}?", calls=[Use("spend", token=TOKEN)]), f"Used {TOKEN}."]
    await talk(store, agent, steps, f"Use {TOKEN}.")
    bundle = await export_bundle((store, SCOPE), "sanitized")
    assert TOKEN.encode() not in bundle.to_json()
    for who in (None, agent):
        assert (await replay(bundle, who)).same
    other = agent.tools[-1].replace(approval="auto")
    found = await replay(bundle, shop(tools=[other]))
    assert found.first is not None
    assert found.first.kind == "pending.opened"


async def test_a_file_and_bytes_are_read(tmp_path: object) -> None:
    store = MemoryStore()
    agent = await SCENES["tools"](store)
    bundle = await export_bundle((store, SCOPE), "local")
    assert (await replay(bundle.to_json(), agent)).same
    path = f"{tmp_path}/s.zip"
    await bundle.save(path)
    assert (await replay(path, agent)).same


async def test_one_thread_is_replayed_alone() -> None:
    store = MemoryStore()
    agent = await SCENES["subagents"](store)
    found = await replay((store, SCOPE), agent, thread="main")
    assert (found.same, found.threads) == (True, 1)


async def test_a_log_is_replayed_up_to_what_was_erased() -> None:
    store = MemoryStore()
    agent = await SCENES["approved"](store)
    row = await store.row(KEY)
    assert row is not None
    for seq in range(row.head, 1, -1):
        await store.erase(KEY, [seq], reason="asked for")
        for who in (None, agent):
            found = await replay((store, SCOPE), who)
            assert found.first is None, seq
            assert (found.same, found.stopped) == (True, "erased")
    assert found.compared == 0

"""What a model reads of the conversation: all of it, as much as fits, the same each time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import tool
from holdfast.models.port import CallChunk, FromModel, ModelCall, PromptMessage
from holdfast.models.scripted import Say, ScriptedModel, Use

from .scene import Slow, helper, kinds, only, read, script, serve


def bytes_of(call: ModelCall) -> list[bytes]:
    return [call.system.encode(), *(msgspec.json.encode(message) for message in call.messages)]


@tool
async def look(order: str) -> str:
    """Look."""
    return f"order {order}"


@pytest.mark.parity("harness-kernel", 148)
async def test_a_model_sees_the_turns_before() -> None:
    model = script(Say("Well.", calls=[Use("look", order="7")]), "seen")
    async with serve(helper(tools=[look]), default_model=model) as harness:
        for text in ("one", "two"):
            await harness.send("s", text)
    turn = ["model: Well. [look]", "tools: order 7", "model: seen"]
    assert read(model.calls[-1]) == ["user: one", *turn, "user: two", *turn[:2]]


@pytest.mark.parity("harness-kernel", 148)
@pytest.mark.parametrize("storage", ["memory:", "sqlite:{}/x.db"])
@pytest.mark.parametrize("window", [{"window_turns": 4}, {"window_tokens": 400}])
async def test_older_turns_are_put_away_whole(
    storage: str, window: dict[str, int], tmp_path: Path
) -> None:
    model = script(Say("Well.", calls=[Use("look", order="7")]), "seen", strict=True)
    settings = {"default_model": model, "store": storage.format(tmp_path), **window}
    async with serve(helper(tools=[look]), **settings) as harness:
        session = await harness.get_or_create("s")
        for n in range(20):
            assert (await session.send(f"number {n}")).status == "done"
        asked = await session.transcript(roles=("user",))
        assert len(asked) == 20  # nothing is lost
        assert "compaction.made" in await kinds(session)
    longest = max(len(call.messages) for call in model.calls)
    assert 8 < longest < 40
    for call in model.calls:
        lines = read(call)
        assert lines[0].startswith("user: number")
        rounds = [line for line in lines if line.startswith("user:")]
        first = int(rounds[0].split()[-1])
        assert rounds == [f"user: number {first + n}" for n in range(len(rounds))]


@pytest.mark.parity("harness-kernel", 148)
@pytest.mark.parametrize("how", ["function", "model"])
async def test_what_is_put_away_is_summed_up(how: str) -> None:
    summed: list[list[str]] = []

    async def sum_up(messages: tuple[PromptMessage, ...]) -> str:
        summed.append(read(ModelCall(model="", messages=messages)))
        return f"{len(messages)} messages"

    def writer(call: ModelCall) -> str:
        summed.append(read(call)[:-1])
        return f"{len(call.messages) - 1} messages"

    model = script("ok")
    other = ScriptedModel([writer], ref="sum/up", repeat=True)
    summarise: Any = sum_up if how == "function" else "sum/up"
    async with serve(
        helper(), default_model=model, providers=[other], summarise=summarise, window_turns=4
    ) as harness:
        for n in range(6):
            await harness.send("s", f"number {n}")
    assert summed[0][0] == "user: number 0"
    later = next(call for call in model.calls if "Summary" in read(call)[0])
    assert read(later)[0].startswith("user: [Summary of the conversation so far]\n")
    assert f"{len(summed[0])} messages" in read(later)[0]
    assert read(later)[-1].endswith(f"number {model.calls.index(later)}")


async def test_without_a_summary_the_run_goes_on() -> None:
    async def broken(messages: Any) -> str:
        raise RuntimeError("no")

    model = script("ok")
    async with serve(helper(), default_model=model, summarise=broken, window_turns=3) as harness:
        for n in range(6):
            assert (await harness.send("s", f"number {n}")).status == "done"


@pytest.mark.parity("harness-kernel", 148)
@pytest.mark.parametrize("window", [200, 3])
async def test_the_prefix_is_the_same_to_the_byte_after_reopening(
    window: int, tmp_path: Path
) -> None:
    """The prompt of the next turn begins with all that this one read: vendors can cache it."""

    def make(*, store: str) -> tuple[Any, ScriptedModel]:

        def looks(call: ModelCall) -> Say:
            made = CallChunk("look", {"order": "ü"}, id=read(call)[-1])
            return Say("Well.", calls=[made], bound=[{"sig": "x"}])

        model = script(looks, "seen")
        settings = {"default_model": model, "store": store, "window_turns": window}
        return serve(helper(tools=[look], instructions="Be kind.\n"), **settings), model

    texts = [f"number {n}" for n in range(7)]
    harness, whole = make(store="memory:")
    async with harness:
        for text in texts:
            await harness.send("s", text)
    reopened: list[ModelCall] = []
    for text in texts:
        harness, model = make(store=f"sqlite:{tmp_path}/x.db")
        async with harness:
            await harness.send("s", text)
        reopened += model.calls
    assert [bytes_of(call) for call in reopened] == [bytes_of(call) for call in whole.calls]
    if window == 200:
        for one, two in zip(whole.calls, whole.calls[1:], strict=False):
            assert bytes_of(two)[: len(bytes_of(one))] == bytes_of(one)


async def test_what_only_one_model_can_read_is_kept_from_others() -> None:
    one = ScriptedModel([Say("hi", bound=[{"secret": 1}])], ref="one/m", repeat=True)
    two = ScriptedModel(["ho"], ref="two/m", repeat=True)
    async with serve(helper(), default_model=one, providers=[two]) as harness:
        await harness.send("s", "1")
        await harness.send("s", "2", model="two/m")
        await harness.send("s", "3")
    bound = [[m.bound for m in c.messages if isinstance(m, FromModel)] for c in two.calls]
    assert bound == [[()]]
    again = [m.bound for m in one.calls[1].messages if isinstance(m, FromModel)]
    assert again == [({"secret": 1},), ()]


async def test_words_that_were_changed_while_they_waited_survive_everything(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    model = Slow(quick=["new words", "c"])
    async with serve(helper(), default_model=model, store=storage, window_turns=2) as harness:
        session = await harness.get_or_create("s")
        await session.post("a")
        await model.gate.someone()
        seq = await session.post("b")
        await session.queue.edit(seq, "new words")
        model.gate.open()
        await session.wait()
    last = script("end")
    async with serve(helper(), default_model=last, store=storage) as harness:
        await harness.send("s", "d")
    assert "user: new words" in read(last.calls[0])


async def test_one_turn_that_is_too_large_is_left_to_the_model() -> None:
    model = script(Say(calls=[Use("look", order="x" * 4000)]), "ok")
    async with serve(helper(tools=[look]), default_model=model, window_tokens=100) as harness:
        async with asyncio.timeout(20):
            assert (await harness.send("s", "go")).text == "ok"
            assert (await harness.send("s", "go")).text == "ok"


async def test_events_of_a_compaction_name_what_they_put_away() -> None:
    async with serve(helper(), "ok", window_turns=2) as harness:
        session = await harness.get_or_create("s")
        for n in range(4):
            await session.send(str(n))
        made = only(await session.events(), "compaction.made")
        assert made
        heads = [event.seq for event in await session.events(kinds=("run.finished",))]
        assert all(item["upto"] in heads for item in made)

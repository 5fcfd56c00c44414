"""Typed answers: checked, and returned as the type that was asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast import InvalidValue, NewEvent, tool
from holdfast.harness.session.session import core_of
from holdfast.models.port import ModelCall
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.stores.memory import MemoryStore
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Stall

from .scene import PATIENCE, helper, kinds, only, read, script, serve


class Order(msgspec.Struct):
    id: str
    cents: int


class Parcel(pydantic.BaseModel):
    id: str
    grams: int = pydantic.Field(gt=0)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Order, {"id": "7", "cents": 5}, Order("7", 5)),
        (Parcel, {"id": "7", "grams": 5}, Parcel(id="7", grams=5)),
        (int, 7, 7),
        (list[Order], [{"id": "7", "cents": 5}], [Order("7", 5)]),
        (str, "x", "x"),
    ],
)
@pytest.mark.parametrize("by", ["send", "agent"])
async def test_the_answer_has_the_type_that_was_asked_for(
    kind: Any, value: Any, expected: Any, by: str
) -> None:
    agent = helper(output_type=kind) if by == "agent" else helper()
    options = {"output_type": kind} if by == "send" else {}
    model = script(Say("Here.", calls=[Use("final_result", value=value)]))
    async with serve(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go", **options)
        assert (result.status, result.output) == ("done", expected)
        assert type(result.output) is type(expected)
        assert (await kinds(session)).count("tool.started") == 0
    assert model.calls[0].output is not None
    assert model.calls[0].output.name == "final_result"


async def test_an_answer_that_is_wrong_comes_back_to_the_model() -> None:
    model = script(
        Say(calls=[Use("final_result", value={"id": 7})]),
        Say(calls=[Use("final_result", value={"id": "7", "cents": 5})]),
    )
    async with serve(helper(), default_model=model) as harness:
        result = await harness.send("s", "go", output_type=Order)
    assert result.output == Order("7", 5)
    told = read(model.calls[1])[-1]
    assert "value.id" in told
    assert "value.cents" in told


async def test_a_model_that_only_talks_is_asked_again_and_that_has_an_end() -> None:
    def step(call: ModelCall) -> Say | str:
        last = read(call)[-1]
        return Say(calls=[Use("final_result", value=3)]) if "final_result" in last else "three"

    async with serve(helper(), default_model=script(step)) as harness:
        assert (await harness.send("s", "go", output_type=int)).output == 3
    stubborn = script("three", repeat=True)
    async with serve(helper(), default_model=stubborn) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go", output_type=int, limits={"steps": 3})
        assert (result.status, result.code, result.output) == ("failed", "limit_steps", None)
        assert len(session.queue) == 0
        assert len(stubborn.calls) == 3
        plain = await session.send("and now?")
        assert (plain.status, plain.text) == ("done", "three")


async def test_only_the_run_that_asked_is_typed() -> None:
    model = script(lambda c: Say(calls=[Use("final_result", value=1)]) if c.output else "text")
    async with serve(helper(), default_model=model) as harness:
        assert (await harness.send("s", "1", output_type=int)).output == 1
        plain = await harness.send("s", "2")
        assert (plain.output, plain.text) == (None, "text")


async def test_tools_are_used_before_the_answer() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "42"

    model = script(Say(calls=[Use("look")]), Say(calls=[Use("final_result", value=42)]))
    async with serve(helper(tools=[look]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go", output_type=int)).output == 42
        assert len(only(await session.events(), "tool.finished")) == 2


async def test_a_type_that_json_cannot_carry_is_refused_before_anything() -> None:
    class Odd:
        pass

    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue, match="output_type"):
            await session.send("go", output_type=Odd)
        assert await session.transcript() == []


async def test_another_process_can_finish_a_run_that_is_typed(tmp_path: Path) -> None:
    @tool(approval="ask")
    async def look() -> str:
        """Look."""
        return "42"

    storage = f"sqlite:{tmp_path}/x.db"
    steps = (
        Say(calls=[Use("look")]),
        Say(calls=[Use("final_result", value={"id": "7", "cents": 1})]),
    )
    async with serve(helper(tools=[look]), *steps, store=storage) as harness:
        assert (await harness.send("s", "go", output_type=Order)).status == "waiting"
    async with serve(helper(tools=[look]), *steps, store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.approve()
        result = await session.wait()
        assert (result.status, result.output) == ("done", {"id": "7", "cents": 1})


async def test_each_session_keeps_its_own_type() -> None:
    """Both messages have the same number in their logs."""

    def step(call: ModelCall) -> Say:
        assert call.output is not None
        kind = call.output.schema["properties"]["value"].get("type")
        return Say(calls=[Use("final_result", value=7 if kind == "integer" else "seven")], delay=0)

    async with serve(helper(), default_model=script(step)) as harness:
        one, two = await asyncio.gather(
            harness.send("1", "go", output_type=int), harness.send("2", "go", output_type=str)
        )
    assert (one.output, two.output) == (7, "seven")


async def test_a_word_that_comes_with_the_last_answer_is_read_before_the_run_fails() -> None:
    store, model = FaultyStore(MemoryStore()), ScriptedModel(["text"], repeat=True)
    stall = Stall(method="append", call=9)  # of the answer after which nothing is asked again
    store.plan.append(stall)
    async with serve(helper(output_type=int), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        async with asyncio.timeout(PATIENCE):
            await stall.reached.wait()
            word = NewEvent.of("message.received", {"text": "a number", "how": "steer"})
            await store.inner.append(core_of(session).live.key, [word])
            stall.go.set()
            await session.wait()
        assert (await kinds(session)).count("run.started") == 1
        assert len(model.calls) == 5

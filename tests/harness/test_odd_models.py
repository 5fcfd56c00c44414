"""Models that do what no model should: they give what cannot be written down, cancel themselves, or
never come to the point. The run fails with a code, or goes on; the session can be used after it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from holdfast import tool
from holdfast.harness.agents.agent import context
from holdfast.harness.faults import ErrorPolicy
from holdfast.harness.live.answers import mismatch
from holdfast.harness.loop.typed_output import output_request
from holdfast.models.port import (
    BoundChunk,
    CallChunk,
    Chunk,
    EndChunk,
    ModelCall,
    TextChunk,
    ThoughtChunk,
)
from holdfast.models.scripted import Say, ScriptedModel, Step, Use
from holdfast.values.delta import Delta

from .kernel.scene import PATIENCE, helper, only, read, script, serve
from .test_odd_tools import deep


class Odd:
    """A model that gives these things, whatever they are; one list per call, the last again and
    again. An exception is raised."""

    def __init__(self, *answers: list[Any], ref: str = "odd/model") -> None:
        self.ref, self.answers = ref, list(answers)
        self.calls: list[ModelCall] = []

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.calls.append(call)
        for item in self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]:
            if isinstance(item, BaseException):
                raise item
            yield item


@tool
def look(order: str) -> str:
    """Look at an order."""
    return f"order {order}"


async def test_text_that_utf8_cannot_carry_is_spelled_out() -> None:
    odd = Odd([ThoughtChunk("hm \ud83d"), TextChunk("smile \ud83d"), EndChunk()])
    async with serve(helper(), default_model=odd) as harness:
        session = await harness.get_or_create("s")
        items = [item async for item in session.stream("one")]
        said = "".join(i.text for i in items if isinstance(i, Delta) and not i.thought)
        assert said == "smile \\ud83d"
        assert (await session.send("two")).text == "smile \\ud83d"


class Strange:
    def __repr__(self) -> str:
        raise ValueError("\ud83d")


@pytest.mark.parametrize(
    "arguments",
    [
        {"order": float("nan")},
        {"order": "\ud83d"},
        {"order": object()},
        {"order": Strange()},
        {"order": deep(125)},
        {"order": deep(100_000)},
        {("a", "b"): 1},
    ],
    ids=["nan", "surrogate", "object", "strange", "deep", "very deep", "key"],
)
async def test_arguments_that_json_cannot_carry_are_refused_by_the_tool(arguments: Any) -> None:
    odd = Odd([CallChunk("look", arguments), EndChunk()], [TextChunk("Sorry."), EndChunk()])
    async with serve(helper(tools=[look]), default_model=odd) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "Sorry."
        [ended] = only(await session.events(), "tool.finished")
        assert ended["code"] == "bad_arguments"
        [made] = only(await session.events(), "message.completed")[0]["calls"]
        assert isinstance(made["arguments"], str)


@pytest.mark.parametrize(
    "chunk",
    [
        TextChunk(5),  # type: ignore[arg-type]
        ThoughtChunk(None),  # type: ignore[arg-type]
        CallChunk(None, {}),  # type: ignore[arg-type]
        CallChunk("look", {}, id=7),  # type: ignore[arg-type]
        EndChunk("stop", [1]),  # type: ignore[arg-type]
        BoundChunk(object()),
        BoundChunk(deep(200)),
        "text",
        None,
        {"text": "hm"},
    ],
    ids=[
        "text of a number",
        "thought of nothing",
        "call of nothing",
        "call with a number",
        "usage of a list",
        "bound object",
        "bound too deep",
        "text",
        "None",
        "dict",
    ],
)
async def test_a_chunk_that_is_none_fails_the_run_and_not_the_session(chunk: Any) -> None:
    odd = Odd([TextChunk("Well, "), chunk, EndChunk()], [TextChunk("Better."), EndChunk()])
    async with serve(helper(tools=[look]), default_model=odd) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("one")
        assert (result.status, result.code) == ("failed", "model_failed")
        [kept] = only(await session.events(), "message.interrupted")
        assert kept["text"] == "Well, "
        assert (await session.send("two")).text == "Better."


async def test_an_end_that_nobody_knows_is_another_one() -> None:
    odd = Odd([TextChunk("Well."), EndChunk("tired", {"input_tokens": float("nan")})])  # type: ignore[arg-type, dict-item]
    async with serve(helper(), default_model=odd) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "Well."
        [message] = only(await session.events(), "message.completed")
        assert message["reason"] == "other"


async def test_instructions_and_contexts_that_utf8_cannot_carry_are_spelled_out() -> None:
    @context
    def weather(reading: Any) -> str:
        return "rain \ud83d"

    agent = helper(instructions="Help \udc00.", contexts=[weather])
    model = script("ok")
    async with serve(agent, default_model=model) as harness:
        assert (await harness.send("s", "go")).text == "ok"
    assert "Help \\udc00." in model.calls[0].system
    assert "rain \\ud83d" in model.calls[0].system


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        ([TextChunk("so far \ud83d"), EndChunk()], "so far \\ud83d"),
        ([TextChunk(5), EndChunk()], None),  # type: ignore[arg-type]
        (["text"], None),
        ([asyncio.CancelledError()], None),
    ],
    ids=["surrogate", "number", "text", "cancelled"],
)
async def test_a_summary_is_spelled_out_or_left_out(answer: list[Any], summary: str | None) -> None:
    odd, model = Odd(answer, ref="odd/sum"), script("ok")
    settings: dict[str, Any] = {"summarise": "odd/sum", "window_turns": 3}
    async with serve(helper(), default_model=model, providers=[odd], **settings) as harness:
        session = await harness.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            for n in range(5):
                assert (await session.send(f"number {n}")).status == "done"
        made = only(await session.events(), "compaction.made")
    assert made
    assert {item.get("summary") for item in made} == {summary}


async def test_a_function_that_sums_up_and_cancels_itself_is_passed_over() -> None:
    async def broken(messages: Any) -> str:
        raise asyncio.CancelledError

    async with serve(helper(), "ok", summarise=broken, window_turns=3) as harness:
        async with asyncio.timeout(PATIENCE):
            for n in range(5):
                assert (await harness.send("s", f"number {n}")).status == "done"


async def test_a_model_that_cancels_itself_is_one_that_cannot_be_reached() -> None:
    odd = Odd([asyncio.CancelledError()])
    async with serve(helper(), default_model=odd) as harness:
        result = await harness.send("s", "go")
    assert (result.status, result.code) == ("failed", "model_unavailable")
    assert len(odd.calls) == 2  # as often as the policy says


async def test_it_is_asked_again_and_may_answer_then() -> None:
    odd = Odd([asyncio.CancelledError()], [TextChunk("Here."), EndChunk()])
    async with serve(helper(), default_model=odd) as harness:
        assert (await harness.send("s", "go")).text == "Here."


async def test_an_error_that_utf8_cannot_carry_is_shown_spelled_out() -> None:
    policy = ErrorPolicy(expose_internal_errors=True, include_stack_in_status=True)
    odd = Odd([ValueError("half \ud83d")])
    async with serve(helper(), default_model=odd, error_policy=policy) as harness:
        result = await harness.send("s", "go")
    assert (result.status, result.code) == ("failed", "model_failed")
    assert "half \\ud83d" in (result.error or "")


async def test_a_context_that_cancels_itself_fails_the_run() -> None:
    @context
    def weather(reading: Any) -> str:
        raise asyncio.CancelledError

    model = script("ok")
    async with serve(helper(contexts=[weather]), default_model=model) as harness:
        async with asyncio.timeout(PATIENCE):
            result = await harness.send("s", "go")
    assert result.status == "failed"
    assert model.calls == []


class Item(Struct):
    name: str
    counts: list[int]


class Order(Struct):
    id: int
    item: Item | None
    more: list[Item] = []


async def test_a_model_that_only_talks_is_told_so_three_times() -> None:
    model = ScriptedModel([f"word {n}" for n in range(9)])
    async with serve(helper(output_type=int), default_model=model) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.status, result.code) == ("failed", "no_output")
        assert result.error == "The model gave no answer of the requested type."
        assert result.output is None
        assert len(model.calls) == 4
        assert len(only(await session.events(), "message.completed")) == 4
        assert session.status.run is None


async def test_three_times_in_a_row_that_is() -> None:
    talk = ["a", "b", "c"]
    steps: list[Step] = [
        *talk,
        Say(calls=[Use("look", order="1")]),
        *talk,
        Say(calls=[Use("final_result", value=3)]),
    ]
    model = ScriptedModel(steps)
    async with serve(helper(output_type=int, tools=[look]), default_model=model) as harness:
        result = await harness.send("s", "go")
    assert (result.status, result.output) == ("done", 3)
    assert len(model.calls) == 8


async def test_a_typed_run_is_finished_elsewhere_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)

    @tool(approval="ask")
    async def ask() -> str:
        """Ask."""
        return "yes"

    agent, storage = helper(tools=[ask]), f"sqlite:{tmp_path / 'x.db'}"
    wrong = {"id": 1, "item": {"name": "a", "counts": ["x"]}}
    right = {"id": 1, "item": {"name": "a", "counts": [2]}}
    answers = [Say(calls=[Use("final_result", value=value)]) for value in (wrong, right)]
    model = script(Say(calls=[Use("ask")]), *answers)
    async with serve(agent, default_model=model, store=storage) as harness:
        sent = await harness.send("s", "go", output_type=Order)
        assert sent.status == "waiting"
    async with serve(agent, default_model=model, store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.approve()
        async with asyncio.timeout(PATIENCE):
            result = await session.wait()
        assert (result.status, result.output) == ("done", right)
    refused = next(line for line in read(model.calls[-1]) if "counts[0]" in line)
    assert "value.item.counts[0] is str, not integer" in refused


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"id": 1, "item": None}, True),
        ({"id": 1, "item": {"name": "a", "counts": [1]}, "more": []}, True),
        ({"id": "1", "item": None}, False),
        ({"id": 1}, False),
        ({"id": 1, "item": 5}, False),
        ({"id": 1, "item": None, "more": [{"name": "a"}]}, False),
        (None, False),
    ],
)
def test_the_outline_of_a_schema_knows_types_within_types(value: Any, fits: bool) -> None:
    assert (mismatch(output_request(Order)["schema"], {"value": value}) is None) == fits

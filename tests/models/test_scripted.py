"""The scripted model: which step a prompt is at, what each step streams, and how strict it is."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidValue, ModelError, ModelUnavailable
from holdfast.models import Cut, Fail, Say, ScriptedModel, Use, check_prompt, offline
from holdfast.models.port import (
    BoundChunk,
    CallChunk,
    EndChunk,
    FromModel,
    FromUser,
    ModelCall,
    PromptMessage,
    TextChunk,
    ThoughtChunk,
    ToolSpec,
)
from holdfast.models.scripted import split_words
from holdfast.values.media import Media

from .calls import REFUND, call, calls, end, listen, results, said, text, user

LATER = (user("hi"), said("One."), user("and?"))


async def test_a_text_comes_word_by_word() -> None:
    heard = await listen(ScriptedModel(["Hello, dear world."]), call())
    assert heard[:-1] == [TextChunk("Hello, "), TextChunk("dear "), TextChunk("world.")]
    assert heard[-1] == EndChunk("stop", {})


@given(st.text())
def test_words_join_to_the_text(words: str) -> None:
    assert "".join(split_words(words)) == words


async def test_a_step_may_say_everything() -> None:
    step = Say(
        "On it.",
        calls=[Use("refund", order=42, name="x")],
        thought="Hm.",
        bound=[{"signature": "s"}],
        usage={"input_tokens": 3},
        chunks=["On", " it."],
        delay=0.001,
    )
    assert await listen(ScriptedModel([step]), call()) == [
        ThoughtChunk("Hm."),
        TextChunk("On"),
        TextChunk(" it."),
        CallChunk("refund", {"order": 42, "name": "x"}),
        BoundChunk({"signature": "s"}),
        EndChunk("calls", {"input_tokens": 3}),
    ]


async def test_the_step_is_read_off_the_prompt_and_not_counted() -> None:
    for _ in range(2):  # another process has another model
        model = ScriptedModel(["One.", "Two."])
        assert text(await listen(model, call(*LATER))) == "Two."
        assert text(await listen(model, call(*LATER))) == "Two."
        assert text(await listen(model, call(user("hi")))) == "One."


async def test_a_script_that_is_over() -> None:
    with pytest.raises(ModelError, match=r"the script has no more steps \(its length is 1\)"):
        await listen(ScriptedModel(["One."]), call(*LATER))
    assert text(await listen(ScriptedModel(["One."], repeat=True), call(*LATER))) == "One."
    with pytest.raises(ModelError, match="the script has no more steps"):
        await listen(ScriptedModel([], repeat=True), call())


async def test_a_script_per_turn_begins_again_with_each_input() -> None:
    model = ScriptedModel([Say(calls=[Use("refund")]), "Done."], per_turn=True)
    turn = (user("hi"), said("", ("a", "refund", {})), results(("a", "refund", "ok")))
    assert calls(await listen(model, call(user("hi"))))
    assert text(await listen(model, call(*turn))) == "Done."
    assert calls(await listen(model, call(*turn, said("Done."), user("again"))))


async def test_the_input_chooses_the_script() -> None:
    model = ScriptedModel.by_input(
        {
            "refund .*": [Say(calls=[Use("refund")]), "Refunded."],
            "refund all": "All of it.",
            "what (": "Odd.",
            ".*": lambda asked: f"{len(asked.messages)} messages",
        }
    )
    turn = (user("refund 42"), said("", ("a", "refund", {})), results(("a", "refund", "ok")))
    assert calls(await listen(model, call(user("refund 42"))))
    assert text(await listen(model, call(*turn))) == "Refunded."
    assert text(await listen(model, call(*turn, said("Refunded."), user("refund all")))) == (
        "All of it."
    )
    assert text(await listen(model, call(user("say what (")))) == "Odd."
    assert text(await listen(model, call(user("hi")))) == "1 messages"


async def test_an_input_without_a_script() -> None:
    with pytest.raises(ModelError, match="no script for the input 'hi'"):
        await listen(ScriptedModel.by_input({"bye": "Bye."}), call())


async def test_a_step_may_fail_after_some_words() -> None:
    error = ModelUnavailable(model="scripted/demo", problem="gone")
    stream = ScriptedModel([Fail(error, after="Some words")]).stream(call())
    assert [await anext(stream), await anext(stream)] == [TextChunk("Some "), TextChunk("words")]
    with pytest.raises(ModelUnavailable) as caught:
        await anext(stream)
    assert caught.value is error


async def test_a_step_may_be_cut() -> None:
    heard = await listen(ScriptedModel([Cut("Some words")]), call())
    assert heard == [TextChunk("Some "), TextChunk("words")]


async def test_a_step_that_looks_at_the_call() -> None:
    model = ScriptedModel([lambda asked: Say(asked.system.upper())])
    assert text(await listen(model, call(system="be kind"))) == "BE KIND"


async def test_calls_are_kept_and_closing_ends_one() -> None:
    model = ScriptedModel([Say("One two.", delay=60.0)])
    stream = model.stream(call())
    assert await anext(stream) == TextChunk("One ")
    async with asyncio.timeout(30):
        await stream.aclose()
    assert model.calls == [call()]


def test_a_ref_names_a_provider_and_a_model() -> None:
    assert ScriptedModel([]).ref == "scripted/demo"
    with pytest.raises(InvalidValue, match="ref"):
        ScriptedModel([], ref="demo")


# How strict


LEGAL: list[tuple[PromptMessage, ...]] = [
    (user("hi"),),
    (user("hi"), user("there")),
    LATER,
    (FromUser((Media(b"x", "image/png"),)),),
    (user("hi"), said("", ("a", "refund", {})), results(("a", "refund", "ok"))),
    (user("hi"), said("", ("a", "refund", {})), results(("a", "refund", "ok")), user("so?")),
    (
        user("hi"),
        said("", ("a", "refund", {}), ("b", "refund", {})),
        results(("b", "refund", "ok"), ("a", "refund", "ok")),
    ),
]
CALLED = said("", ("a", "refund", {}))
ILLEGAL: dict[str, tuple[PromptMessage, ...]] = {
    "does not begin with a user message": (said("One."), user("hi")),
    "ends with a model message": (user("hi"), said("One.")),
    "is a second model message in a row": (user("hi"), said("One."), said("Two."), user("hi")),
    "is empty": (user("hi"), said(), user("hi")),
    "is an empty user message": (user("hi"), said("One."), user(" ")),
    "comes before the results of a": (user("hi"), CALLED, user("and?")),
    "answers no call": (user("hi"), results(("a", "refund", "ok"))),
    "but the calls were": (user("hi"), CALLED, results(("b", "refund", "ok"))),
    "uses call id 'a' again": (
        user("hi"),
        CALLED,
        results(("a", "refund", "ok")),
        CALLED,
        results(("a", "refund", "ok")),
    ),
}


@pytest.mark.parametrize("messages", LEGAL)
def test_a_legal_prompt_passes(messages: tuple[PromptMessage, ...]) -> None:
    check_prompt(call(*messages))


@pytest.mark.parametrize("fault", list(ILLEGAL))
async def test_an_illegal_prompt_is_refused_as_a_vendor_would(fault: str) -> None:
    with pytest.raises(ModelError, match=fault) as caught:
        await listen(ScriptedModel(["One."], repeat=True), call(*ILLEGAL[fault]))
    assert (caught.value.status, caught.value.retryable) == (400, False)
    lenient = ScriptedModel(["One."], repeat=True, strict=False)
    assert text(await listen(lenient, call(*ILLEGAL[fault]))) == "One."


def test_results_given_twice_or_not_at_all_are_refused() -> None:
    twice = results(("a", "refund", "ok"), ("a", "refund", "ok"))
    for messages in [(user("hi"), CALLED, twice), (user("hi"), CALLED)]:
        with pytest.raises(ModelError, match="invalid prompt"):
            check_prompt(call(*messages))
    with pytest.raises(ModelError, match="no messages"):
        check_prompt(ModelCall(model="m"))


# Offline


async def test_offline_it_says_so() -> None:
    model = offline()
    heard = text(await listen(model, call(user("hello there"), tools=(REFUND,))))
    assert model.ref == "scripted/offline"
    assert "offline" in heard
    assert "hello there" in heard
    assert "refund" in heard
    assert model.calls == []


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("refund order=42 cents=1999 now=true", {"order": "42", "cents": 1999, "now": True}),
        ("refund order 42 please", {"order": "42"}),
        ("refund cents=[1] note=a=b", {"cents": "[1]", "note": "a=b"}),
        ("refund order", {}),
        ("refund", {}),
    ],
)
async def test_offline_it_calls_a_tool_by_its_name(words: str, arguments: Any) -> None:
    heard = await listen(offline(), call(user(words), tools=(REFUND,)))
    assert calls(heard) == [CallChunk("refund", arguments)]
    assert end(heard).reason == "calls"


async def test_offline_it_tells_what_the_tool_said_and_goes_on() -> None:
    turn = (user("refund order=1"), CALLED, results(("a", "refund", "paid back")))
    model = offline()
    assert text(await listen(model, call(*turn, tools=(REFUND,)))) == "refund: paid back"
    later = call(*turn, said("refund: paid back"), user("thanks"))
    assert "thanks" in text(await listen(model, later))


async def test_offline_an_output_is_given() -> None:
    output = ToolSpec("answer", "", {"type": "object", "properties": {"n": {"type": "integer"}}})
    heard = await listen(offline(), call(user("n=7"), output=output))
    assert calls(heard) == [CallChunk("answer", {"n": 7})]


def test_prompts_are_plain_values() -> None:
    asked = call(*LATER, CALLED, results(("a", "refund", "ok")), tools=(REFUND,))
    assert msgspec.json.decode(msgspec.json.encode(asked), type=ModelCall) == asked
    assert isinstance(asked.messages[1], FromModel)

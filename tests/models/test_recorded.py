"""The recorded model: it says what the log says, and nothing to another prompt."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from holdfast.errors import Diverged, InvalidValue, ModelError
from holdfast.events import Event, to_json
from holdfast.models import RecordedModel
from holdfast.models.port import BoundChunk, CallChunk, FromUser, PromptMessage, Text, ThoughtChunk
from holdfast.values.media import Media

from .calls import call, calls, end, listen, results, said, text, user

ASKED = {"id": "call-1", "name": "refund", "arguments": {"order": "1"}, "provider_id": "toolu_1"}
LOG: list[tuple[str, dict[str, Any]]] = [
    ("session.created", {}),
    ("message.received", {"text": "refund 1"}),
    ("run.started", {}),
    (
        "message.completed",
        {
            "text": "On it.",
            "calls": [ASKED],
            "parts": [{"signature": "s"}],
            "thought": "Hm.",
            "usage": {"input_tokens": 3},
            "model": "anthropic/claude-x",
        },
    ),
    ("tool.started", {"call": "call-1", "name": "refund"}),
    ("tool.finished", {"call": "call-1", "result": {"cents": 5}}),
    ("message.completed", {"text": "Refunded.", "model": "anthropic/claude-x"}),
    ("message.received", {"text": "thanks"}),
    ("message.completed", {"text": "You are welcome.", "reason": "length"}),
]
FIRST = (user("refund 1"),)
SECOND: tuple[PromptMessage, ...] = (
    *FIRST,
    said("On it.", ("other-id", "refund", {"order": "1"})),
    results(("other-id", "refund", '{"cents": 5}')),
)
THIRD = (*SECOND, said("Refunded."), user("thanks"))


def log(entries: list[tuple[str, dict[str, Any]]] = LOG) -> list[Event]:
    return [
        Event(kind=kind, data=to_json(data), seq=seq, at=seq)
        for seq, (kind, data) in enumerate(entries, 1)
    ]


def with_entry(at: int, *entries: tuple[str, dict[str, Any]], drop: int = 0) -> list[Event]:
    return log([*LOG[:at], *entries, *LOG[at + drop :]])


async def test_it_says_each_message_again() -> None:
    model = RecordedModel(log())
    assert model.ref == "anthropic/claude-x"
    first = await listen(model, call(*FIRST))
    assert text(first) == "On it."
    assert first[0] == ThoughtChunk("Hm.")
    assert calls(first) == [CallChunk("refund", {"order": "1"}, "toolu_1")]
    assert BoundChunk({"signature": "s"}) in first
    assert (end(first).reason, end(first).usage) == ("calls", {"input_tokens": 3})
    assert text(await listen(model, call(*SECOND))) == "Refunded."
    third = await listen(model, call(*THIRD))
    assert (text(third), end(third).reason) == ("You are welcome.", "length")


async def test_another_process_goes_on_in_the_middle() -> None:
    assert text(await listen(RecordedModel(log()), call(*THIRD))) == "You are welcome."


async def test_a_log_that_ends() -> None:
    done = (*THIRD, said("You are welcome."), user("more"))
    with pytest.raises(Diverged):
        await listen(RecordedModel(log()), call(*done))
    more = with_entry(len(LOG), ("message.received", {"text": "more"}))
    with pytest.raises(ModelError, match="no more model messages") as caught:
        await listen(RecordedModel(more), call(*done))
    assert not isinstance(caught.value, Diverged)


@pytest.mark.parametrize(
    ("messages", "step", "expected"),
    [
        ((user("refund 2"),), 0, "refund 1"),
        ((user("refund 1", "and more"),), 0, "thanks"),
        ((*FIRST, said("Never.")), 1, None),
        ((*FIRST, said("On it.")), 1, None),
        ((*FIRST, said("On it.", ("x", "refund", {"order": "2"}))), 1, None),
        ((*SECOND[:2], results(("x", "refund", '{"cents": 6}'))), 2, "refund: {'cents': 5}"),
        ((*SECOND[:2], results(("x", "refund", "broken"))), 2, "refund: {'cents': 5}"),
        ((*SECOND[:2], results(("x", "repay", '{"cents": 5}'))), 2, "refund: {'cents': 5}"),
        ((*SECOND[:2], results()), 2, ["refund"]),
        ((*SECOND, said("Refunded."), user("bye")), 4, "thanks"),
    ],
)
async def test_another_prompt_diverges_where_it_differs(
    messages: tuple[PromptMessage, ...], step: int, expected: Any
) -> None:
    with pytest.raises(Diverged) as caught:
        await listen(RecordedModel(log()), call(*messages))
    error = caught.value
    assert (error.code, error.retryable, error.step) == ("replay_diverged", False, step)
    assert f"message {step + 1} of the prompt" in str(error)
    if expected is not None:
        assert error.expected == expected
    assert pickle.loads(pickle.dumps(error)).fields == error.fields


async def test_a_message_from_after_the_answer_diverges() -> None:
    early = (user("refund 1"), user("thanks"))
    with pytest.raises(Diverged, match="message 3"):
        await listen(RecordedModel(log()), call(*early))


@pytest.mark.parametrize(
    ("finished", "content", "same"),
    [
        ({"result": "fine"}, "fine", True),
        ({"result": "fine"}, '"fine"', False),
        ({"result": None}, "null", True),
        ({"result": None}, "nothing", True),
        ({"result": {"a": 1}, "content": "an a"}, "an a", True),
        ({"result": {"a": 1}, "content": "an a"}, '{"a": 1}', False),
        ({"outcome": "failed", "error": "too late"}, "It failed: too late", True),
        ({"outcome": "failed", "error": "too late"}, "It failed.", False),
        ({"outcome": "denied"}, "A person said no.", True),
    ],
)
async def test_how_results_are_compared(finished: dict[str, Any], content: str, same: bool) -> None:
    events = with_entry(5, ("tool.finished", {"call": "call-1", **finished}), drop=1)
    asked = call(*SECOND[:2], results(("x", "refund", content)))
    if same:
        assert text(await listen(RecordedModel(events), asked)) == "Refunded."
    else:
        with pytest.raises(Diverged):
            await listen(RecordedModel(events), asked)


async def test_an_interrupted_message_may_be_in_the_prompt_or_not() -> None:
    events = with_entry(6, ("message.interrupted", {"text": "Ref"}))
    for shown in ((), (said("Ref"), user("thanks"))):
        prompt = (*SECOND, *shown)
        model = RecordedModel(events)
        if shown:
            with pytest.raises(Diverged):  # it was thanked only later
                await listen(model, call(*prompt))
        else:
            assert text(await listen(model, call(*prompt))) == "Refunded."
    events = with_entry(
        6, ("message.interrupted", {"text": "Ref"}), ("message.received", {"text": "go on"})
    )
    prompt = (*SECOND, said("Ref"), user("go on"))
    assert text(await listen(RecordedModel(events), call(*prompt))) == "Refunded."


async def test_context_and_media_are_passed_over() -> None:
    events = with_entry(
        1,
        ("context.built", {"hash": "h", "messages": ["It is Monday."]}),
        ("context.added", {"id": "c", "content": "It rains."}),
    )
    seen = FromUser(
        (Text("It is Monday."), Media(b"x", "image/png"), Text("refund 1"), Text("It rains."))
    )
    assert text(await listen(RecordedModel(events), call(seen))) == "On it."


async def test_after_a_compaction_the_prompt_begins_later() -> None:
    events = with_entry(7, ("compaction.made", {"upto": 7, "summary": "A refund was made."}))
    model = RecordedModel(events)
    short = call(user("So far: A refund was made.", "thanks"))
    assert text(await listen(model, short)) == "You are welcome."
    assert text(await listen(model, call(*THIRD))) == "You are welcome."
    with pytest.raises(Diverged):
        await listen(model, call(user("So far: nothing.", "thanks")))


def test_a_ref_is_given_or_found() -> None:
    assert RecordedModel([]).ref == "recorded/log"
    assert RecordedModel(log(), ref="recorded/one").ref == "recorded/one"
    with pytest.raises(InvalidValue):
        RecordedModel([], ref="one")


async def test_payloads_that_nobody_can_read_are_passed_over() -> None:
    events = with_entry(1, ("message.received", {"erased": "asked for"}), ("odd.kind", {"a": 1}))
    assert text(await listen(RecordedModel(events), call(*FIRST))) == "On it."
    events = with_entry(7, ("message.completed", {"erased": "asked for"}))
    assert text(await listen(RecordedModel(events), call(*THIRD))) == "You are welcome."

"""Messages that the LangGraph adapter makes of their fields: equal to those that LangChain makes
itself, and validated where their fields need it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import ValidationError

from holdfast.adapters.langgraph import fields
from holdfast.adapters.langgraph.fields import fields_of, has_fields, message_of

CALL = {"name": "lookup", "args": {"order": "7"}, "id": "call_1", "type": "tool_call"}
OPENAI_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "lookup", "arguments": '{"order": "7"}'},
}
USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
PARTS: Any = ["Hello.", {"type": "image", "url": "http://a"}]

MESSAGES: dict[str, BaseMessage] = {
    "text": HumanMessage("Hello.", id="1"),
    "empty": HumanMessage(""),
    "no parts": HumanMessage([]),
    "parts": HumanMessage(PARTS, name="ann", additional_kwargs={"a": {"b": [1]}}),
    "other field": HumanMessage("Hello.", example=True),
    "system": SystemMessage("You are kind.", id="2"),
    "answer": AIMessage("Hello.", response_metadata={"model_name": "m", "logprobs": None}),
    "calls": AIMessage("", tool_calls=[CALL, {**CALL, "id": "call_2"}], id="3"),
    "call without id": AIMessage("", tool_calls=[{**CALL, "id": None}]),
    "calls of OpenAI": AIMessage("", additional_kwargs={"tool_calls": [OPENAI_CALL]}),
    "invalid calls": AIMessage(
        "", invalid_tool_calls=[{"name": "a", "args": "{", "id": "1", "error": "no JSON"}]
    ),
    "usage": AIMessage("", usage_metadata=USAGE),
    "usage in detail": AIMessage(
        "",
        usage_metadata={
            **USAGE,
            "input_token_details": {"cache_read": 1},
            "output_token_details": {"reasoning": 1},
        },
    ),
    "usage of another sort": AIMessage(
        "", usage_metadata={**USAGE, "input_token_details": {"flex": 1}}
    ),
    "outcome": ToolMessage("found", tool_call_id="call_1", id="4"),
    "failure": ToolMessage(PARTS, tool_call_id="call_1", status="error", artifact=[{"a": None}]),
}


def made_by_langchain(given: dict[str, Any]) -> BaseMessage:
    rest = {name: value for name, value in given.items() if name != "type"}
    return fields.CLASSES[given["type"]](**{"content": [], **rest})


@pytest.mark.parametrize("name", MESSAGES)
def test_message_of_its_fields_is_as_langchain_makes_it(name: str) -> None:
    message = MESSAGES[name]
    found = fields_of(message)
    assert found is not None
    assert has_fields(message, found)
    text = msgspec.json.encode(found)
    made, expected = message_of(msgspec.json.decode(text)), made_by_langchain(found)
    assert made == expected == message
    assert repr(made) == repr(expected)
    assert [*made.__dict__] == [*expected.__dict__]
    assert made.model_fields_set == expected.model_fields_set
    assert made.model_extra == expected.model_extra
    assert made.model_dump_json(exclude_unset=True) == expected.model_dump_json(exclude_unset=True)
    assert made.content_blocks == expected.content_blocks
    assert made.model_copy(deep=True) == expected


def test_usual_messages_are_made_without_validation() -> None:
    validated = {name for name, m in MESSAGES.items() if fields._unvalidated(_fields(m)) is None}
    assert validated == {
        "other field",
        "call without id",
        "calls of OpenAI",
        "invalid calls",
        "usage of another sort",
    }


def _fields(message: BaseMessage) -> dict[str, Any]:
    found = fields_of(message)
    assert found is not None
    return found


@pytest.mark.parametrize("name", fields.CLASSES)
def test_messages_share_no_lists_and_dicts(name: str) -> None:
    given = {"type": name, "content": "a"} | ({"tool_call_id": "1"} if name == "tool" else {})
    first, second = message_of(given), message_of(given)
    for field, value in first.__dict__.items():
        if isinstance(value, list | dict):
            assert value is not getattr(second, field)
    assert first.model_extra is not second.model_extra


@pytest.mark.parametrize(
    "given",
    [
        {"type": "human", "content": 1},
        {"type": "ai", "content": "", "tool_calls": [{"name": "a"}]},
        {"type": "tool", "content": "a", "tool_call_id": "1", "status": "odd"},
        {"type": "ai", "content": "", "usage_metadata": {"input_tokens": 1}},
        {"type": "system", "content": "a", "additional_kwargs": []},
    ],
)
def test_fields_that_do_not_fit_are_rejected(given: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, TypeError)):
        message_of(given)


def test_fields_that_langchain_converts_are_converted() -> None:
    assert message_of({"type": "human", "content": "a", "id": 7}).id == "7"
    made = message_of(
        {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [OPENAI_CALL]}}
    )
    assert isinstance(made, AIMessage)
    assert made.tool_calls == [CALL]


def test_message_that_was_changed_has_other_fields() -> None:
    for change in (
        {"content": "b"},
        {"content": [1]},
        {"additional_kwargs": {"a": 1}},
        {"id": None},
        {"id": "2"},
    ):
        message = HumanMessage("a", id="1")
        found = _fields(message)
        for name, value in change.items():
            setattr(message, name, value)
        assert not has_fields(message, found)
    assert not has_fields(SystemMessage("a", id="1"), _fields(HumanMessage("a", id="1")))
    assert not has_fields("a", _fields(HumanMessage("a", id="1")))


class Table:
    """Like an array: it has no truth value, and cannot be compared as a whole."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]


def test_message_with_an_array_is_not_made_of_json() -> None:
    message = ToolMessage("a", tool_call_id="1")
    found = _fields(message)
    message.artifact = Table()
    assert fields_of(message) is None
    assert not has_fields(message, found)

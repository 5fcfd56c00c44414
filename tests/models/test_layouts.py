"""What is bound to a model goes back exactly, whatever its message was made of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)

from holdfast.models.port import Asked, FromModel
from holdfast.models.pydantic_ai.prompts import layout, messages

from .calls import call, results, said, user

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
details = st.none() | st.dictionaries(words, words | st.integers(0, 9) | st.booleans(), min_size=1)
arguments = st.dictionaries(words, words | st.integers(-9, 9) | st.none(), max_size=3)


def thinking(content: str, signature: str, more: Any) -> ModelResponsePart:
    return ThinkingPart(
        content=content, signature=signature, provider_name="v", provider_details=more
    )


def text_part(content: str, id: str | None) -> ModelResponsePart:
    return TextPart(content=content, id=id, provider_name="v" if id else None)


def tool_call(name: str, args: dict[str, Any], id: str | None) -> ModelResponsePart:
    return ToolCallPart(tool_name=name, args=args, id=id, provider_name="v" if id else None)


parts = st.lists(
    st.builds(thinking, st.just("") | words, words, details)
    | st.builds(text_part, words, st.none() | words)
    | st.builds(tool_call, words, arguments, st.none() | words),
    min_size=1,
    max_size=8,
)


@given(parts)
def test_parts_come_back_in_order_and_unchanged(made: list[ModelResponsePart]) -> None:
    response = ModelResponse(parts=made, provider_name="v", provider_response_id="r")
    text = "".join(part.content for part in made if isinstance(part, TextPart))
    asked = tuple(
        Asked(part.tool_call_id, part.tool_name, part.args)
        for part in made
        if isinstance(part, ToolCallPart)
    )
    kept = layout(response, text)
    stored = msgspec.json.decode(msgspec.json.encode([] if kept is None else [kept]))
    message = FromModel(text, asked, tuple(stored))
    _, back, _ = messages(call(user("hi"), message, user("go on")))
    assert list(back.parts) == made
    if kept is not None:
        assert isinstance(back, ModelResponse)
        assert (back.provider_name, back.provider_response_id) == ("v", "r")


@pytest.mark.parametrize("url", ["https://me:s3cret@host/v1", "https://host/v1?key=s3cret"])
def test_an_address_that_may_hold_a_secret_is_not_kept(url: str) -> None:
    response = ModelResponse(parts=[thinking("Hm.", "s", None)], provider_url=url)
    kept = layout(response, "")
    assert kept is not None
    assert "s3cret" not in str(kept)


def test_call_ids_are_made_as_long_as_the_vendor_wants_them() -> None:
    made = said("", ("a-long-call-id", "refund", {}), ("fits12345", "refund", {}))
    told = results(("a-long-call-id", "refund", "ok"), ("fits12345", "refund", "ok"))
    _, calls, answers = messages(call(user("hi"), made, told), 9)
    asked = [part.tool_call_id for part in calls.parts if isinstance(part, ToolCallPart)]
    assert asked == [p.tool_call_id for p in answers.parts if isinstance(p, ToolReturnPart)]
    assert asked[1] == "fits12345"
    assert len(asked[0]) == 9
    assert asked[0].isalnum()

"""Whatever stands in a document of Harn's: it becomes a session that can be kept, or is refused."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bundle import export_bundle, import_bundle
from holdfast.bundle.harn import bundle_of_events, read_harn, record_bundle, write_harn
from holdfast.errors import InvalidBundle
from holdfast.log.state import fold
from holdfast.stores.memory import MemoryStore
from tests.bundle.harn.records import record
from tests.bundle.harn.test_stream import closed, event, said

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
        optional={
            "content": JSON
            | st.lists(
                st.fixed_dictionaries(
                    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking"])},
                    optional={
                        "id": st.sampled_from(["a", "b"]) | JSON,
                        "tool_use_id": st.sampled_from(["a", "b"]) | JSON,
                        "name": st.just("find") | JSON,
                        "text": JSON,
                        "thinking": JSON,
                        "input": JSON,
                        "content": JSON,
                    },
                ),
                max_size=3,
            ),
            "tool_calls": JSON
            | st.lists(
                st.fixed_dictionaries(
                    {}, optional={"id": st.sampled_from(["a", "b"]) | JSON, "name": st.just("f")}
                ),
                max_size=2,
            ),
            "tool_call_id": st.sampled_from(["a", "b"]) | JSON,
            "is_error": JSON,
            "model": JSON,
            "thinking": JSON,
        },
    )
    | JSON,
    max_size=6,
)
TYPES = st.sampled_from(
    [
        *("user_message", "agent_message_chunk", "agent_thought_chunk", "tool_call"),
        *("tool_call_update", "hitl_requested", "hitl_resolved", "iteration_start"),
        *("session_closed", "plan"),
    ]
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "content": JSON,
        "tool_call_id": st.sampled_from(["a", "b"]) | JSON,
        "tool_name": JSON,
        "raw_input": JSON,
        "raw_output": JSON,
        "error": JSON,
        "status": st.sampled_from(["completed", "failed", "pending"]) | JSON,
        "request_id": st.sampled_from(["q", "r"]) | JSON,
        "payload": JSON,
        "outcome": JSON,
        "provider": JSON,
        "model": JSON,
    },
)


async def kept(document: Any) -> None:
    """It can be imported, exported, folded, and written again as it was."""
    bundle, _ = await read_harn(document, allow_secrets=True)
    store = MemoryStore()
    imported = await import_bundle(store, bundle)
    again = await export_bundle((store, imported.scope), "local")
    for thread in again.document.threads:
        assert fold(again.events(thread.thread)).too_new is None
    assert write_harn(again)[0].raw == document.raw


@given(messages=MESSAGES, status=st.sampled_from(["suspended", "completed"]))
async def test_any_messages_are_a_session(messages: list[Any], status: str) -> None:
    told = {**record(), "status": status, "finished_at": None}
    told["transcript"] = {**told["transcript"], "messages": messages}
    document, _ = record_bundle(told, "local", version="1")
    await kept(document)


@given(told=st.lists(st.tuples(TYPES, FIELDS), min_size=1, max_size=10), over=st.booleans())
async def test_any_events_are_a_session(told: list[Any], over: bool) -> None:
    events = [event(number, type, **fields) for number, (type, fields) in enumerate(told, 1)]
    document = bundle_of_events("s/1", [*events, *([closed(99)] if over else [])], version="1")
    await kept(document)


@given(place=st.integers(0, 5_000), value=JSON)
async def test_a_document_with_anything_anywhere_is_a_session_or_refused(
    place: int, value: Any
) -> None:
    raw = copy.deepcopy(record_bundle(record(), "local", version="1")[0].raw)
    todo: list[Any] = [raw]
    spots: list[tuple[Any, Any]] = []
    while todo:
        node = todo.pop()
        for name in list(node) if isinstance(node, dict) else range(len(node)):
            spots.append((node, name))
            if isinstance(node[name], (dict, list)):
                todo.append(node[name])
    node, name = spots[place % len(spots)]
    node[name] = value
    try:
        bundle, _ = await read_harn(msgspec.json.encode(raw), allow_secrets=True)
    except InvalidBundle:
        return
    await import_bundle(MemoryStore(), bundle, purpose="read")


@pytest.mark.parametrize("deep", [200, 100_000])
async def test_what_is_too_deep_is_refused(deep: int) -> None:
    nested: Any = []
    for _ in range(deep):
        nested = [nested]
    told = {**record(), "metadata": {"deep": nested}}
    with pytest.raises(InvalidBundle):
        record_bundle(told, "local", version="1")
    with pytest.raises(InvalidBundle):
        await read_harn(told)
    raw = {**record_bundle(record(), "local", version="1")[0].raw, "x": nested}
    with pytest.raises(InvalidBundle):
        await read_harn(raw)


async def test_more_questions_than_a_session_can_have_are_refused() -> None:
    asked = [event(n, "hitl_requested", request_id=f"q{n}") for n in range(1, 300)]
    with pytest.raises(InvalidBundle):
        await read_harn(bundle_of_events("s", [said(0), *asked], version="1"))

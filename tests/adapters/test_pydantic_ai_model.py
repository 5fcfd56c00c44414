"""The SDK's in-memory store as a model: any sequence of calls gives the same conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from holdfast.stores.memory import MemoryStore

IDS = ("a", "b", "c")
KINDS = ("save", "save", "save", "rewrite", "stale", "branch", "switch", "fork", "delete")

Step = tuple[str, int, int, int]

steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 2), st.integers(0, 7)),
    min_size=1,
    max_size=14,
)


def turn(number: int, size: int) -> list[ModelMessage]:
    """Messages of each form: a prompt, a call, results in one request, an answer."""
    call = ToolCallPart("look", {"n": number}, tool_call_id=f"c{number}")
    result = ToolReturnPart("look", number, tool_call_id=f"c{number}")
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(f"prompt {number}")]),
        ModelResponse(parts=[TextPart("looking"), call]),
        ModelRequest(parts=[result, UserPromptPart("and?")]),
        ModelResponse(parts=[TextPart(f"answer {number}")]),
    ]
    return messages[: 1 + size % 4]


async def perform(store: ConversationStore, step: Step, number: int, made: list[Any]) -> Any:
    """Make one call. `made` has the messages of this step, which both stores get."""
    kind, one, two, place = step
    id, other = IDS[one], IDS[two]
    found = await store.load(id)
    if kind in ("save", "rewrite"):
        conversation = found or Conversation(conversation_id=id)
        conversation.usage = conversation.usage + RunUsage(requests=1, input_tokens=number)
        conversation.deferred_tool_requests = waiting(number) if place == 3 else None
        if kind == "rewrite":
            kept = conversation.messages[: len(conversation.messages) * place // 7]
            conversation = Conversation(
                messages=kept, conversation_id=id, revision=conversation.revision
            )
        conversation.messages += made
        entries = await store.save(conversation, scope=(None, "x")[one == 2])
        return [entry.message for entry in entries]
    if kind == "stale":
        conversation = Conversation(messages=made, conversation_id=id, revision="no such")
        return await store.save(conversation)
    if kind == "delete":
        return await store.delete(id, scope="x" if place == 0 else None)
    record = await store.read_record(id)
    if record is None or found is None:
        return None
    if kind == "branch":
        return shown(await store.branch(id, at=place, expected_revision=found.revision))
    known = [entry.id for entry in await store.load_entries(id) or ()]
    for tip in record.branches:
        known += [entry.id for entry in await store.read_history(tip)]
    if kind == "switch":
        entry = known[place % len(known)] if known else "none"
        return shown(await store.branch(id, from_entry=entry, expected_revision=found.revision))
    point = known[place % len(known)] if known and place % 2 else None
    return shown(await store.fork(id, from_entry=point, new_conversation_id=other))


def waiting(number: int) -> DeferredToolRequests:
    call = ToolCallPart("refund", {"order": number}, tool_call_id=f"d{number}")
    return DeferredToolRequests(approvals=[call], metadata={call.tool_call_id: {"why": "rule"}})


def shown(conversation: Conversation) -> Any:
    return conversation.messages, conversation.usage, conversation.deferred_tool_requests


async def outcome(call: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await call()
    except UserError as error:
        return type(error)


async def state(store: ConversationStore) -> Any:
    found: list[Any] = []
    for id in IDS:
        record = await store.read_record(id)
        loaded = None if record is None else await store.load(id)
        if record is None or loaded is None:
            found.append(None)
            continue
        entries = await store.load_entries(id) or []
        assert [entry.parent_id for entry in entries] == [None, *(e.id for e in entries)][:-1]
        last = [await store.load_entries(id, limit=limit) for limit in (0, 1, 2, 5)]
        assert last == [[], entries[-1:], entries[-2:], entries[-5:]]
        assert [await store.read_entry(entry.id) for entry in entries] == entries
        branches = [
            [entry.message for entry in await store.read_history(tip)] for tip in record.branches
        ]
        found.append((shown(loaded), branches, of(record)))
    listed = {record.conversation_id for record in await store.list_conversations()}
    in_scope = {record.conversation_id for record in await store.list_conversations(scope="x")}
    return found, listed, in_scope


def of(record: ConversationRecord) -> Any:
    place = record.forked_at is not None
    return record.conversation_id, record.scope, record.forked_from, place, record.head_id is None


@settings(max_examples=60, deadline=None)
@given(steps)
def test_any_sequence_of_calls_agrees_with_the_sdks_store(taken: list[Step]) -> None:
    async def compare() -> None:
        theirs, ours = InMemoryConversationStore(), HoldfastConversationStore(MemoryStore())
        for number, step in enumerate(taken):
            made = turn(number, step[3])
            expected = await outcome(lambda: perform(theirs, step, number, made))  # noqa: B023
            assert await outcome(lambda: perform(ours, step, number, made)) == expected  # noqa: B023
            assert await state(ours) == await state(theirs)

    asyncio.run(compare())

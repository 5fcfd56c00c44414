"""pydantic-ai's conversation store: what the log holds, other writers, real agents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent as SdkAgent
from pydantic_ai import DeferredToolRequests
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryAudio,
    BinaryContent,
    BinaryImage,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import TzInfo

from holdfast import Agent, Harness, InvalidValue, NewEvent, Store, StoreUnavailable, connect, key
from holdfast.adapters import retries
from holdfast.adapters.pydantic_ai import HoldfastConversationStore, reader
from holdfast.log.events import Event
from holdfast.log.transcript import transcript
from holdfast.models.port import FromModel
from holdfast.models.scripted import ScriptedModel
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore

from .test_openai import assert_gone, harness_turn

AT = datetime(2026, 1, 2, tzinfo=TzInfo(0))
STAMP = "2026-01-02T00:00:00Z"


def user(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=AT)])


def answer(*parts: Any, **more: Any) -> ModelResponse:
    return ModelResponse(parts=[*parts], timestamp=AT, **more)


def result(call: str = "c1", content: Any = "rain", **more: Any) -> ToolReturnPart:
    return ToolReturnPart("look", content, tool_call_id=call, timestamp=AT, **more)


CALL = ToolCallPart("look", {"city": "Oslo"}, tool_call_id="c1")
TURN: list[ModelMessage] = [
    user("Weather?"),
    answer(ThinkingPart("Look."), CALL, usage=RequestUsage(input_tokens=3), model_name="m"),
    ModelRequest(parts=[result()]),
    answer(TextPart("Rain."), finish_reason="stop"),
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/log.db"


@pytest.fixture
async def log(place: str) -> AsyncGenerator[Store, None]:
    async with connect(place) as store:
        yield store


async def events(store: Store, session: str = "s") -> list[Event]:
    return [event async for event in store.read(key(session))]


async def saved(
    store: Store, messages: list[ModelMessage], id: str = "s", **more: Any
) -> Conversation:
    conversation = Conversation(conversation_id=id, messages=[*messages])
    await HoldfastConversationStore(store).save(conversation, **more)
    return conversation


async def test_messages_are_native_events_with_only_what_these_do_not_tell(log: Store) -> None:
    await saved(log, TURN)
    written = await events(log)
    call = {"id": "c1", "name": "look", "arguments": {"city": "Oslo"}}
    time = {"timestamp": STAMP}
    left = {"tool_name": "look", **time, "part_kind": "tool-return", "event": 0}
    assert [(event.kind, event.json()) for event in written[1:-1]] == [
        (
            "message.received",
            {
                "text": "Weather?",
                "pydantic_ai": {"parts": [{**time, "part_kind": "user-prompt"}]},
            },
        ),
        (
            "message.completed",
            {
                "thought": "Look.",
                "calls": [call],
                "usage": {"input_tokens": 3},
                "model": "m",
                "pydantic_ai": time,
            },
        ),
        ("tool.finished", {"call": "c1", "result": "rain", "pydantic_ai": True}),
        ("pydantic_ai.message", {"events": 1, "pydantic_ai": {"parts": [left]}}),
        ("message.completed", {"text": "Rain.", "reason": "stop", "pydantic_ai": time}),
    ]
    assert written[-1].kind == "pydantic_ai.record"
    assert all(event.run is None for event in written)
    shown = [(m.role, m.text, len(m.calls)) for m in transcript(written)]
    assert shown == [("user", "Weather?", 0), ("assistant", "", 1), ("assistant", "Rain.", 0)]


FORMS: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("Be kind.", timestamp=AT)]),
    ModelRequest(parts=[]),
    ModelRequest(parts=[UserPromptPart("a", timestamp=AT), UserPromptPart("b", timestamp=AT)]),
    ModelRequest(parts=[UserPromptPart("a", timestamp=AT)], metadata={"n": 1, "no": None}),
    ModelRequest(parts=[UserPromptPart(["a", TextContent("b"), "c"], timestamp=AT)]),
    ModelRequest(parts=[UserPromptPart([ImageUrl("https://x.example/a.png")], timestamp=AT)]),
    ModelRequest(parts=[SystemPromptPart("S", timestamp=AT), UserPromptPart("u", timestamp=AT)]),
    ModelRequest(parts=[result("c1"), result("c1"), result("", "x")]),
    ModelRequest(parts=[result(content=None), result(content={"a": [1, 2.5, None, True]})]),
    ModelRequest(parts=[result(content="no", outcome="denied")]),
    ModelRequest(parts=[result(metadata={"kept": "apart"})]),
    ModelRequest(
        parts=[RetryFeedbackPart("again", retry=RetryInfo(cause="validation_error"), timestamp=AT)]
    ),
    answer(),
    answer(TextPart("a"), CALL, TextPart("b")),
    answer(TextPart("")),
    answer(ThinkingPart("", signature="sig", provider_name="p"), TextPart("a")),
    answer(ThinkingPart("a"), ThinkingPart("b")),
    answer(TextPart("a", id="t1"), ToolCallPart("f", '{"a":1}', tool_call_id="x", id="y")),
    answer(ToolCallPart("f", '{ "spaced" : 1 }', tool_call_id="x")),
    answer(ToolCallPart("f", "not JSON", tool_call_id="x")),
    answer(ToolCallPart("f", '{"n":123456789012345678901234567890}', tool_call_id="x")),
    answer(ToolCallPart("f", None, tool_call_id="x"), ToolCallPart("f", tool_call_id="y")),
    answer(ToolCallPart("f", {"a": 1}, tool_call_id="x"), ToolCallPart("g", {}, tool_call_id="x")),
    answer(ToolCallPart("f", {"a": {"__not": "json"}}, tool_call_id="x" * 500)),
    answer(TextPart("a"), provider_details={"a": 1}, usage=RequestUsage(details={"b": 2})),
    answer(FilePart(BinaryImage(b"\xff\x00", media_type="image/png"))),
    answer(TextPart("cut \ud83d here"), FilePart(BinaryImage(b"\xff", media_type="image/png"))),
]


@pytest.mark.parametrize("number", range(len(FORMS)))
async def test_message_of_any_form_comes_back_with_the_same_text(number: int) -> None:
    given = [user("before"), FORMS[number], user("after")]
    store = MemoryStore()
    await saved(store, given)
    found = await HoldfastConversationStore(store).messages("s")
    assert found == given
    texts = [ModelMessagesTypeAdapter.dump_python(each, mode="json") for each in (found, given)]
    assert texts[0] == texts[1]
    assert await HoldfastConversationStore(store).messages("s", limit=2) == given[1:]


FILES: list[Any] = [
    BinaryContent(b"abc", media_type="image/png"),
    BinaryImage(b"abc", media_type="image/png", identifier="mine"),
    BinaryContent(b"abc", media_type="audio/wav"),
    BinaryAudio(b"abc", media_type="audio/wav"),
    BinaryContent(b"abc", media_type="application/pdf", vendor_metadata={"detail": "low"}),
]


async def test_files_keep_their_class_so_that_a_save_does_not_branch() -> None:
    store = HoldfastConversationStore(MemoryStore())
    given: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["look", *FILES], timestamp=AT)]),
        ModelRequest(
            parts=[result(content=FILES[0]), result(content={"in": [[f] for f in FILES]})]
        ),
        answer(FilePart(FILES[0])),
    ]
    await store.save(Conversation(conversation_id="s", messages=given))
    found = await store.load("s")
    assert found is not None
    assert found.messages == given
    again = Conversation(
        conversation_id="s", messages=[*given, user("next")], revision=found.revision
    )
    assert len(await store.save(again)) == 1  # compared with what is stored
    record = await store.read_record("s")
    assert record is not None
    assert record.branches == []


async def test_conversation_that_was_serialised_between_two_saves_does_not_branch() -> None:
    store = HoldfastConversationStore(MemoryStore())
    await store.save(Conversation(conversation_id="s", messages=[*TURN, *FORMS[:-1]]))
    loaded = await store.load("s", limit=9)
    assert loaded is not None
    text = ConversationTypeAdapter.dump_json(loaded)
    again = ConversationTypeAdapter.validate_json(text)
    again.messages.append(user("next"))
    assert len(await store.save(again)) == 1
    record = await store.read_record("s")
    assert record is not None
    assert record.branches == []


async def test_value_that_the_sdk_cannot_serialise_is_rejected(log: Store) -> None:
    store = HoldfastConversationStore(log)
    for bad in (object(), {"in": {1, object()}}):
        with pytest.raises(InvalidValue, match="cannot serialise"):
            await saved(log, [user("a"), ModelRequest(parts=[result(content=bad)])])
    entry = ConversationEntry(parent_id=None, message=user("a"))
    record = ConversationRecord(conversation_id="s", head_id="other")
    with pytest.raises(InvalidValue, match="new_entries"):
        await store.write_record(record, new_entries=[entry], expected_revision=None)
    for id in ("", "a\0b", "x" * 513):
        with pytest.raises(InvalidValue):
            await store.read_record(id)
    assert await store.read_record("s") is None
    assert await log.row(key("s")) is None


async def test_branch_rewinds_the_log_also_back_to_what_it_left(log: Store) -> None:
    store = HoldfastConversationStore(log)
    await saved(log, TURN)
    entries = await store.load_entries("s") or []
    loaded = await store.load("s")
    assert loaded is not None
    cut = await store.branch("s", at=1, expected_revision=loaded.revision)
    assert [message.text for message in transcript(await events(log))] == ["Weather?"]
    cut.messages.append(answer(TextPart("Sun.")))
    await store.save(cut)
    assert [message.text for message in transcript(await events(log))] == ["Weather?", "Sun."]
    back = await store.branch("s", from_entry=entries[-1].id, expected_revision=cut.revision)
    assert back.messages == TURN
    texts = [message.text for message in transcript(await events(log))]
    assert texts == ["Weather?", "", "Rain."]
    rewinds = [event for event in await events(log) if event.kind == "thread.rewound"]
    assert len(rewinds) == 2
    assert [damage async for damage in log.verify()] == []


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_fork_outlives_the_source_which_is_gone_from_the_disk(
    kind: str, tmp_path: Path
) -> None:
    async with connect(f"{kind}:{tmp_path}/log") as log:
        store = HoldfastConversationStore(log)
        await saved(log, [*TURN, user("canary-one"), answer(TextPart("canary-two"))])
        record = await store.read_record("s")
        assert record is not None
        fork = await store.fork("s", at=4, new_conversation_id="f")
        await store.branch("s", at=0, expected_revision=record.revision)
        theirs, ours = await store.load_entries("f") or [], await store.read_history(record.head_id)
        assert theirs == ours[:4]
        await store.delete("s")
        await log.purge()
        assert await store.load("s") is None
        with pytest.raises(LookupError):
            await store.read_history(record.head_id)
        assert await store.load_entries("f") == theirs
        fork.messages.append(user("next"))
        await store.save(fork)
        assert await store.messages("f") == [*TURN, user("next")]
        assert [damage async for damage in log.verify()] == []
    await asyncio.to_thread(assert_gone, tmp_path, b"canary")


async def test_one_of_two_savers_of_the_same_revision_wins(log: Store) -> None:
    await saved(log, TURN)
    for number in range(5):
        stores = [HoldfastConversationStore(log) for _ in "ab"]
        loaded = [await store.load("s") for store in stores]
        for name, each in zip("ab", loaded, strict=True):
            assert each is not None
            each.messages.append(user(f"{name}{number}"))
        done = await asyncio.gather(
            *(s.save(c) for s, c in zip(stores, loaded, strict=True) if c), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in done) == ["ConversationConflict", "list"]
    assert len(await HoldfastConversationStore(log).messages("s")) == len(TURN) + 5


async def test_two_creators_of_one_conversation_do_not_mix(log: Store) -> None:
    tried = [saved(log, [user(name), answer(TextPart(name))]) for name in "abc"]
    done = await asyncio.gather(*tried, return_exceptions=True)
    names = sorted(type(each).__name__ for each in done)
    assert names == ["Conversation", "ConversationConflict", "ConversationConflict"]
    assert len(await HoldfastConversationStore(log).messages("s")) == 2


async def test_conversation_that_was_deleted_and_made_again_has_a_new_revision(log: Store) -> None:
    store = HoldfastConversationStore(log)
    old = await saved(log, TURN)
    await store.delete("s")
    await saved(log, TURN)
    old.messages.append(user("late"))
    with pytest.raises(ConversationConflict):
        await store.save(old)
    with pytest.raises(ConversationConflict):
        await store.delete_record("s", expected_revision=old.revision or "")
    assert await store.messages("s") == TURN


@pytest.mark.parametrize("method", ["append", "delete", "read", "row", "seqs", "locate"])
@pytest.mark.parametrize("after", [True, False])
async def test_lost_reply_of_any_call_changes_nothing(
    method: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)
    for call in range(1, 7):
        faulty = FaultyStore(MemoryStore(), [Fail(method=method, call=call, after=after)])
        store = HoldfastConversationStore(faulty)
        conversation = await saved(faulty, TURN)
        conversation.messages.append(user("next"))
        await store.save(conversation)
        await store.branch("s", at=2, expected_revision=conversation.revision)
        await store.fork("s", new_conversation_id="f")
        await store.delete("s")
        assert await store.load("s") is None
        assert await store.messages("f") == TURN[:2]


async def test_save_that_failed_is_not_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)
    log = MemoryStore()
    lost = [Fail(method="append", call=call, after=True) for call in (1, 2, 3)]
    store = HoldfastConversationStore(FaultyStore(log, lost))
    conversation = Conversation(conversation_id="s", messages=TURN)
    with pytest.raises(StoreUnavailable):
        await store.save(conversation)
    with pytest.raises(ConversationConflict):
        await store.save(conversation)
    assert await store.messages("s") == TURN


async def test_scopes_are_separate_and_lists_are_newest_first(log: Store) -> None:
    store = HoldfastConversationStore(log)
    for number in range(7):
        await saved(log, [user("hi")], id=f"c{number}", scope="ann" if number % 2 else "bob")
    await store.save(await store.load("c1") or Conversation())
    assert [r.conversation_id for r in await store.list_conversations(limit=3)] == [
        *("c1", "c6", "c5")
    ]
    ann = [r.conversation_id for r in await store.list_conversations(scope="ann")]
    assert ann == ["c1", "c5", "c3"]
    assert await store.list_conversations(scope="carl") == []
    assert await store.list_conversations(limit=0) == []
    assert await store.load("c1", scope="bob") is None
    with pytest.raises(ConversationConflict):
        await store.add_messages("c1", [user("x")], scope="bob")
    with pytest.raises(UserError):
        await store.load("c1", limit=-1)
    other = HoldfastConversationStore(log, tenant="other")
    assert await other.list_conversations() == []
    assert await other.load("c1") is None


async def test_messages_are_added_to_a_history(log: Store) -> None:
    store = HoldfastConversationStore(log)
    assert await store.messages("s") == []
    await store.add_messages("s", TURN)
    await asyncio.gather(*(store.add_messages("s", [user(str(n))]) for n in range(6)))
    assert await store.messages("s", limit=0) == []
    assert (await store.messages("s"))[:4] == TURN
    assert len(await store.messages("s")) == 10


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("text", "contains str"),
        (b"[]", "contains int"),
        ([{"role": "user", "content": "Hello."}], "contains dict"),
        ([user("x"), None], "contains NoneType"),
        (None, "is NoneType"),
    ],
)
async def test_values_that_are_no_messages_are_not_added(messages: Any, problem: str) -> None:
    store = HoldfastConversationStore(MemoryStore())
    with pytest.raises(InvalidValue, match=f"messages {problem}: pass a list of ModelRequest"):
        await store.add_messages("s", messages)
    assert await store.load("s") is None


async def test_large_save_is_several_appends_and_each_leaves_a_conversation(log: Store) -> None:
    many: list[ModelMessage] = [user(str(number)) for number in range(2_100)]
    conversation = await saved(log, many)
    store = HoldfastConversationStore(log)
    record = await store.read_record("s")
    assert record is not None
    assert record.revision == conversation.revision
    assert len([event for event in await events(log) if event.kind == "pydantic_ai.record"]) == 3
    assert await store.messages("s") == many
    assert len((await store.fork("s")).messages) == 2_100


async def test_large_save_that_is_cut_leaves_a_whole_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)
    many: list[ModelMessage] = [user(str(number)) for number in range(1_200)]
    cut = [Fail(method="append", call=call) for call in (2, 3, 4)]
    store = HoldfastConversationStore(FaultyStore(MemoryStore(), cut))
    conversation = Conversation(conversation_id="s", messages=[*many])
    with pytest.raises(StoreUnavailable):
        await store.save(conversation)
    with pytest.raises(ConversationConflict):
        await store.save(conversation)
    loaded = await store.load("s")
    assert loaded is not None
    assert 0 < len(loaded.messages) < 1_200
    assert loaded.messages == many[: len(loaded.messages)]
    loaded.messages += many[len(loaded.messages) :]
    await store.save(loaded)
    assert await store.messages("s") == many


async def test_short_read_does_not_read_the_whole_log(log: Store) -> None:
    await saved(log, TURN * 300)
    counted = CountingStore(log)
    store = HoldfastConversationStore(counted)
    loaded = await store.load("s", limit=4)
    assert loaded is not None
    assert loaded.messages == TURN
    assert counted.events <= 12
    loaded.messages.append(user("next"))
    await store.save(loaded)
    assert counted.events <= 18
    assert (await store.messages("s", limit=2)) == [TURN[-1], user("next")]


class CountingStore(FaultyStore):
    """Counts the events that are read."""

    events = 0

    async def read(self, *args: Any, **options: Any) -> Any:
        async for event in self.inner.read(*args, **options):
            self.events += 1
            yield event


# Other writers


async def test_messages_of_other_writers_are_translated(log: Store) -> None:
    await log.append(key("s"), harness_turn(), create=True)
    store = HoldfastConversationStore(log)
    loaded = await store.load("s")
    assert loaded is not None
    parts = [part for message in loaded.messages for part in message.parts]
    assert [(type(p).__name__, getattr(p, "content", None)) for p in parts] == [
        ("UserPromptPart", "Weather?"),
        ("TextPart", "Looking."),
        ("ToolCallPart", None),
        ("ToolReturnPart", "rain"),
        ("TextPart", "Rain."),
    ]
    for limit in range(1, 6):
        assert await store.messages("s", limit=limit) == loaded.messages[-limit:]
    loaded.messages.append(user("next"))
    await store.save(loaded)
    entries = await store.load_entries("s") or []
    assert [entry.message for entry in entries] == loaded.messages
    fork = await store.fork("s", at=3, new_conversation_id="f")
    assert fork.messages == loaded.messages[:3]
    cut = await store.branch("s", from_entry=entries[1].id, expected_revision=loaded.revision)
    assert cut.messages == loaded.messages[:2]
    await store.delete("s")
    assert await store.load_entries("f") == entries[:3]


async def test_turn_of_another_writer_changes_the_revision(log: Store) -> None:
    store = HoldfastConversationStore(log)
    mine = await saved(log, TURN, scope="ann")
    await log.append(key("s"), [NewEvent.of("label.added", {"label": "vip"})])
    kept = await store.read_record("s")
    assert kept is not None
    assert kept.revision == mine.revision
    other = ("message.received", {"text": "From Slack."}), ("message.completed", {"text": "Hi."})
    await log.append(key("s"), [NewEvent.of(*fact) for fact in other])
    mine.messages.append(user("late"))
    with pytest.raises(ConversationConflict):
        await store.save(mine)
    loaded = await store.load("s", scope="ann")
    assert loaded is not None
    assert len(loaded.messages) == 6
    loaded.messages.append(user("now"))
    await store.save(loaded)
    assert len(await store.messages("s")) == 7


async def test_erased_messages_are_skipped(log: Store) -> None:
    parts = [result("c1", "secret"), result("c2", "kept")]
    calls = [CALL, ToolCallPart("look", {}, tool_call_id="c2")]
    await saved(log, [user("a"), answer(*calls), ModelRequest(parts=parts), user("b")])
    store = HoldfastConversationStore(log)
    found = {event.kind: event.seq for event in reversed(await events(log))}
    await log.erase(key("s"), [found["tool.finished"], found["message.received"]], reason="asked")
    expected = [answer(*calls), ModelRequest(parts=parts[1:]), user("b")]
    assert await store.messages("s") == expected
    loaded = await store.load("s")
    assert loaded is not None
    loaded.messages.append(user("c"))
    await store.save(loaded)
    assert await store.messages("s") == [*expected, user("c")]
    (message,) = [m for m in transcript(await events(log)) if m.calls]
    assert [call.outcome.outcome for call in message.calls if call.outcome] == ["erased", "ok"]


async def test_message_that_was_erased_in_one_conversation_is_not_read_from_its_fork(
    log: Store,
) -> None:
    await saved(log, TURN)
    store = HoldfastConversationStore(log)
    for fork in ("a", "z"):  # which sort before and after the source
        await store.fork("s", new_conversation_id=fork)
    await log.erase(key("s"), [2], reason="asked")
    for each in (store, HoldfastConversationStore(log)):
        assert await each.messages("a") == TURN == await each.messages("z")
        assert await each.messages("s") == TURN[1:]
        done = await asyncio.gather(*(each.messages(id) for id in "sasz"))
        assert [len(found) for found in done] == [3, 4, 3, 4]
        again = await each.fork("s")
        assert await each.messages(again.conversation_id) == TURN[1:]


async def test_erased_record_leaves_the_conversation(log: Store) -> None:
    await saved(log, TURN)
    (record,) = [event.seq for event in await events(log) if event.kind == "pydantic_ai.record"]
    await log.erase(key("s"), [record], reason="asked")
    store = HoldfastConversationStore(log)
    loaded = await store.load("s")
    assert loaded is not None
    assert loaded.messages == TURN
    loaded.messages.append(user("next"))
    assert len(await store.save(loaded)) == 1
    assert await store.messages("s") == loaded.messages


async def test_session_without_messages_is_no_conversation_yet(log: Store) -> None:
    created = [NewEvent.of("session.created", {"title": "Ann's"})]
    await log.append(key("s"), created, create=True)
    store = HoldfastConversationStore(log)
    assert await store.load("s") is None
    await saved(log, TURN, scope="ann")
    row = await log.row(key("s"))
    assert row is not None
    assert (row.title, row.labels, row.metadata) == (
        *("Ann's", {"pydantic_ai": True}, {"pydantic_ai.scope": "ann"}),
    )
    assert [r.conversation_id for r in await store.list_conversations(scope="ann")] == ["s"]


async def test_harness_continues_an_adopted_conversation_and_the_sdk_after_it(log: Store) -> None:
    await saved(log, TURN)
    model = ScriptedModel(["Sun."], repeat=True)
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, store=log, default_model=model) as shop:
        session = await shop.adopt("s")
        assert (await session.send("And now?")).text == "Sun."
    said = [m for m in model.calls[-1].messages if isinstance(m, FromModel)]
    assert [(m.text, len(m.calls)) for m in said] == [("", 1), ("Rain.", 0)]
    store = HoldfastConversationStore(log)
    loaded = await store.load("s")
    assert loaded is not None
    assert len(loaded.messages) == 6
    done = await weather("Later.").run("And tomorrow?", conversation=loaded)
    await store.save(done)
    assert [m.parts[-1].content for m in (await store.messages("s"))[4:]] == [  # type: ignore[union-attr]
        *("And now?", "Sun.", "And tomorrow?", "Later.")
    ]


async def test_entry_that_does_not_exist_is_a_lookup_error(log: Store) -> None:
    store = HoldfastConversationStore(log)
    await saved(log, TURN)
    row = await log.row(key("s"))
    assert row is not None
    names = ["none", "holdfast:", "holdfast:x:1:s", reader.foreign_id(row, 99), "x" * 600]
    for name in names:
        with pytest.raises(LookupError):
            await store.read_entry(name)
    record = ConversationRecord(conversation_id="new", head_id="none")
    with pytest.raises(ConversationConflict):
        await store.write_record(record, expected_revision=None)
    long = ConversationEntry(id="x" * 600, parent_id=None, message=user("long"))
    record = ConversationRecord(conversation_id="new", head_id=long.id)
    await store.write_record(record, new_entries=[long], expected_revision=None)
    assert await store.read_entry(long.id) == long


def test_store_works_from_several_loops_and_threads(place: str) -> None:
    store = HoldfastConversationStore(place)

    def turns(name: str) -> None:
        for number in range(4):
            asyncio.run(store.add_messages("s", [user(f"{name}{number}")]))

    threads = [threading.Thread(target=turns, args=[name]) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = asyncio.run(store.messages("s"))
    texts = [part.content for message in found for part in message.parts]  # type: ignore[union-attr]
    assert sorted(map(str, texts)) == sorted(f"{name}{n}" for name in "ab" for n in range(4))
    asyncio.run(store.close())
    assert "log.db" not in repr(HoldfastConversationStore(place))


# The SDK itself


def weather(*said: str) -> SdkAgent[None, Any]:
    """An agent that looks before its first answer of a turn."""
    texts = iter(said)

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not info.function_tools or isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart(next(texts))])
        call = ToolCallPart("look", {"city": "Oslo"}, tool_call_id=f"c{len(messages)}")
        return ModelResponse(parts=[call])

    return SdkAgent(FunctionModel(model), output_type=[str, DeferredToolRequests])


async def test_agent_continues_a_conversation_from_its_store(place: str) -> None:
    for turn in (1, 2, 3):
        async with HoldfastConversationStore(place) as store:
            agent = weather("Rain.")

            @agent.tool_plain
            def look(city: str) -> str:
                return f"rain in {city}"

            conversation = await store.load("s", limit=4) or Conversation(conversation_id="s")
            done = await agent.run("Weather?", conversation=conversation)
            assert done.output == "Rain."
            await store.save(done)
            loaded = await store.load("s")
            assert loaded is not None
            assert len(loaded.messages) == 4 * turn
            assert loaded.usage.requests == 2 * turn
            assert loaded.usage.tool_calls == turn


async def test_history_is_given_to_an_agent_as_messages(place: str) -> None:
    async with HoldfastConversationStore(place) as store:
        for turn in (1, 2):
            agent = SdkAgent(TestModel(custom_output_text="Fine."))
            history = await store.messages("s")
            done = await agent.run("How?", message_history=history, conversation_id="s")
            await store.add_messages("s", done.new_messages())
            assert len(await store.messages("s")) == 2 * turn


async def test_paused_run_is_approved_by_another_process(place: str) -> None:
    refunds: list[int] = []

    def bank() -> SdkAgent[None, Any]:
        def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            if isinstance(messages[-1].parts[-1], ToolReturnPart):
                return ModelResponse(parts=[TextPart("Done.")])
            return ModelResponse(parts=[ToolCallPart("refund", {"order": 42}, tool_call_id="r1")])

        agent = SdkAgent(FunctionModel(model), output_type=[str, DeferredToolRequests])

        @agent.tool_plain(requires_approval=True)
        def refund(order: int) -> str:
            refunds.append(order)
            return f"refunded {order}"

        return agent

    async with HoldfastConversationStore(place) as store:
        done = await bank().run("Refund 42.", conversation=Conversation(conversation_id="s"))
        assert isinstance(done.output, DeferredToolRequests)
        await store.save(done)
    async with HoldfastConversationStore(place) as store:
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.deferred_tool_requests is not None
        results = loaded.deferred_tool_requests.build_results(approve_all=True)
        done = await bank().run(conversation=loaded, deferred_tool_results=results)
        assert done.output == "Done."
        await store.save(done)
        record = await store.read_record("s")
        assert record is not None
        assert record.deferred_tool_requests is None
    assert refunds == [42]
    async with connect(place) as log:
        (message,) = [m for m in transcript(await events(log)) if m.calls]
        assert message.calls[0].outcome is not None
        assert message.calls[0].outcome.result == "refunded 42"


def test_usage_of_a_conversation_comes_back() -> None:
    async def check() -> None:
        store = HoldfastConversationStore(MemoryStore())
        usage = RunUsage(requests=3, tool_calls=2, input_tokens=5, details={"cached": 1})
        await store.save(Conversation(conversation_id="s", usage=usage))
        loaded = await store.load("s")
        assert loaded is not None
        assert (loaded.usage, loaded.messages) == (usage, [])

    asyncio.run(check())

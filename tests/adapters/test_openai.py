"""The OpenAI Agents SDK's sessions: what the log holds, other writers, real runs of the SDK."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import agents  # before a loop runs
import pytest
from agents import Agent, RunConfig, Runner, SessionSettings
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import function_tool

from holdfast import InvalidValue, NewEvent, Store, connect, key
from holdfast.adapters.openai import HoldfastSession
from holdfast.log.events import Event
from holdfast.log.transcript import transcript
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore

agents.set_tracing_disabled(True)

QUIET = RunConfig(tracing_disabled=True)
USER = {"content": "Weather?", "role": "user"}
THOUGHT = {"id": "rs_1", "summary": [{"text": "Look.", "type": "summary_text"}]} | {
    "type": "reasoning"
}
CALL = {"arguments": '{"city":"Oslo"}', "call_id": "c1", "name": "look", "type": "function_call"}
OUTPUT = {"call_id": "c1", "output": "rain", "type": "function_call_output"}
TEXT = {"annotations": [], "text": "Rain.", "type": "output_text", "logprobs": []}
ANSWER = {"id": "msg_1", "content": [TEXT], "role": "assistant"} | {
    "status": "completed",
    "type": "message",
}
TURN: list[Any] = [USER, THOUGHT, {**CALL, "id": "fc_1", "status": "completed"}, OUTPUT, ANSWER]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/log.db"


async def events(store: Store, session: str = "s") -> list[Event]:
    return [event async for event in store.read(key(session))]


async def content(store: Store) -> list[tuple[str, Any]]:
    return [(event.kind, event.json()) for event in (await events(store))[1:]]


async def test_items_are_native_events_with_the_item_only_where_it_differs(place: str) -> None:
    async with connect(place) as store:
        await HoldfastSession("s", store).add_items(TURN)
        call = {"id": "c1", "name": "look", "arguments": {"city": "Oslo"}}
        assert await content(store) == [
            ("message.received", {"text": "Weather?", "openai": True}),
            (
                "message.completed",
                {"calls": [call], "thought": "Look.", "openai": [THOUGHT, "fc_1"]},
            ),
            ("tool.finished", {"call": "c1", "result": "rain", "openai": True}),
            ("message.completed", {"text": "Rain.", "openai": "msg_1"}),
        ]
        assert all(event.run is None for event in await events(store))
        assert await HoldfastSession("s", store).get_items() == TURN


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "keys in another order"},
        {"content": [{"type": "input_text", "text": "a"}], "role": "user"},
        {"content": [{"type": "input_image", "image_url": "data:,x"}], "role": "user"},
        {"content": "Be kind.", "role": "developer"},
        {**CALL, "arguments": "not JSON"},
        {**CALL, "arguments": '{ "spaced" : 1 }'},
        {**CALL, "arguments": '{"n":123456789012345678901234567890}'},
        {**CALL, "arguments": "[" * 200 + "]" * 200},
        {**CALL, "call_id": ""},
        {**CALL, "call_id": None},
        {**OUTPUT, "output": [{"type": "input_text", "text": "rain"}]},
        {**OUTPUT, "output": None},
        {"call_id": "c1", "type": "function_call_output"},
        {**ANSWER, "content": []},
        {**ANSWER, "content": [{"type": "refusal", "refusal": "No."}]},
        {**ANSWER, "status": "incomplete"},
        {"id": "cmp_1", "encrypted_content": "x", "type": "compaction"},
        {"type": "reasoning", "summary": None},
        {"type": "reasoning", "summary": 5},
        {"role": "user"},
        {},
    ],
    ids=lambda item: str(item)[:40],
)
async def test_item_of_any_form_comes_back_with_the_same_text(item: Any) -> None:
    session = HoldfastSession("s", MemoryStore())
    await session.add_items([USER, item, USER])
    assert str(await session.get_items()) == str([USER, item, USER])
    await session.pop_item()
    assert str(await session.pop_item()) == str(item)


async def test_value_that_is_not_json_is_rejected() -> None:
    session = HoldfastSession("s", MemoryStore())
    for bad in (object(), b"bytes", {1, 2}):
        with pytest.raises(InvalidValue, match="JSON"):
            await session.add_items([USER, {"role": "user", "content": bad}])
    assert await session.get_items() == []


@pytest.mark.parametrize("batch", ["hello", b"hello", USER])
async def test_batch_that_is_no_list_is_rejected(batch: Any) -> None:
    session = HoldfastSession("s", MemoryStore())
    with pytest.raises(InvalidValue, match=f"items is {type(batch).__name__}: pass a list"):
        await session.add_items(batch)
    assert await session.get_items() == []


async def test_limit_that_is_no_number_is_rejected() -> None:
    limit: Any = "3"
    with pytest.raises(InvalidValue, match="limit is str: pass an int or None"):
        await HoldfastSession("s", MemoryStore()).get_items(limit=limit)


async def test_pop_splits_an_answer(place: str) -> None:
    async with connect(place) as store:
        session = HoldfastSession("s", store)
        await session.add_items([USER, THOUGHT, ANSWER, CALL])
        assert await session.pop_item() == CALL
        assert await session.get_items() == [USER, THOUGHT, ANSWER]
        assert [message.calls for message in transcript(await events(store))] == [[], []]
        row = await store.row(key("s"))
        assert row is not None
        assert (row.counts["messages"], row.first_message, row.due) == (2, "Weather?", None)


async def test_events_of_other_writers_are_translated(place: str) -> None:
    async with connect(place) as store:
        await store.append(key("s"), harness_turn(), create=True)
        session = HoldfastSession("s", store)
        expected = [
            USER,
            {"content": "Looking.", "role": "assistant"},
            CALL,
            OUTPUT,
            {"content": "Rain.", "role": "assistant"},
        ]
        assert await session.get_items() == expected
        for limit in range(1, 7):
            assert await session.get_items(limit) == expected[-limit:]
        await session.add_items([USER])
        assert await session.get_items(2) == [expected[-1], USER]
        (erased,) = [e.seq for e in await events(store) if e.kind == "tool.finished" and e.seq < 8]
        await store.erase(key("s"), [erased], reason="asked")
        assert OUTPUT not in await session.get_items()


def harness_turn() -> list[NewEvent]:
    call = {"id": "c1", "name": "look", "arguments": {"city": "Oslo"}}
    nested = {"id": "n1", "name": "inner", "arguments": {}}
    turn = [
        ("session.created", {"agent": "shop"}),
        ("message.received", {"text": "Weather?"}),
        ("run.started", {"inputs": [2]}),
        ("message.completed", {"text": "Looking.", "calls": [call]}),
        ("tool.started", {"call": "c1", "name": "look"}),
        ("tool.nested", {"call": nested, "parent": "c1"}),
        ("tool.finished", {"call": "c1", "result": "rain"}),
        ("tool.finished", {"call": "n1", "result": "hidden"}),
        ("claude.entry", {"type": "user"}),
        ("message.completed", {"text": "Rain."}),
        ("run.finished", {}),
    ]
    return [NewEvent.of(kind, data) for kind, data in turn]


async def test_short_read_does_not_read_the_whole_log(place: str) -> None:
    async with connect(place) as store:
        await HoldfastSession("s", store).add_items([USER, ANSWER] * 200)
        counted = CountingStore(store)
        session = HoldfastSession("s", counted)
        assert await session.get_items(4) == [USER, ANSWER] * 2
        assert counted.events <= 8
        await session.pop_item()
        before = counted.events
        for _ in range(20):
            await session.pop_item()
        assert counted.events - before <= 1_500  # the whole log each time would be 8,000


class CountingStore(FaultyStore):
    """Counts the events that are read."""

    events = 0

    async def read(self, *args: Any, **options: Any) -> Any:
        async for event in self.inner.read(*args, **options):
            self.events += 1
            yield event


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_erased_content_is_not_on_disk(kind: str, tmp_path: Path) -> None:
    async with connect(f"{kind}:{tmp_path}/log") as store:
        session = HoldfastSession("s", store)
        for secret in ("canary-one", "canary-two"):
            await session.add_items([{"content": secret, "role": "user"}, {"x": secret}, ANSWER])
            await session.pop_item()
            await session.clear_session()
        await session.add_items([USER])
        await session.clear_session(erase=True)
        assert await session.get_items() == []
        await session.add_items([USER])
        assert await session.get_items() == [USER]
        await store.purge()
        assert [damage async for damage in store.verify()] == []
    await asyncio.to_thread(assert_gone, tmp_path, b"canary")


def assert_gone(folder: Path, content: bytes) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    assert [file for file in files if content in file.read_bytes()] == []


def test_session_works_from_several_loops_and_threads(place: str) -> None:
    session = HoldfastSession("s", place)

    def turns(name: str) -> None:
        for number in range(5):
            asyncio.run(session.add_items([{"content": f"{name}{number}", "role": "user"}]))

    threads = [threading.Thread(target=turns, args=[name]) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [item["content"] for item in asyncio.run(session.get_items())]
    assert sorted(found) == sorted(f"{name}{number}" for name in "ab" for number in range(5))
    asyncio.run(session.close())


async def test_settings_limit_reads_and_an_argument_wins() -> None:
    session = HoldfastSession("s", MemoryStore(), session_settings={"limit": 2})
    await session.add_items([USER, ANSWER, USER])
    assert await session.get_items() == [ANSWER, USER]
    assert await session.get_items(limit=1) == [USER]
    assert await session.get_items(limit=0) == []
    assert await session.get_items(limit=-1) == [USER, ANSWER, USER]
    session.session_settings = SessionSettings(limit=None)
    assert len(await session.get_items()) == 3
    assert isinstance(session, agents.Session)
    with pytest.raises(InvalidValue):
        HoldfastSession("", "memory:")


# The SDK itself


@function_tool
def look(city: str) -> str:
    return f"rain in {city}"


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    return f"refunded {order}"


def agent(*steps: Any) -> Agent[None]:
    return Agent("weather", model=ScriptedModel([[step] for step in steps]), tools=[look, refund])


STEPS = (function_call("look", {"city": "Oslo"}, call_id="c1"), assistant_message("Rain."))


@pytest.mark.parametrize("how", ["run", "run_sync", "run_streamed"])
async def test_runner_continues_a_conversation(how: str, place: str) -> None:
    for turn in (1, 2):
        session = HoldfastSession("s", place)
        helper = agent(*STEPS)
        if how == "run":
            result: Any = await Runner.run(helper, "Weather?", session=session, run_config=QUIET)
        elif how == "run_streamed":
            result = Runner.run_streamed(helper, "Weather?", session=session, run_config=QUIET)
            _ = [event async for event in result.stream_events()]
        else:
            result = await asyncio.to_thread(run_sync, helper, session)
        assert result.final_output == "Rain."
        assert len(result.to_input_list()) == 4 * turn
        assert await session.get_items() == result.to_input_list()
        await session.close()
    async with connect(place) as store:
        shown = [(m.role, m.text, len(m.calls)) for m in transcript(await events(store))]
        turn_shown = [("user", "Weather?", 0), ("assistant", "", 1), ("assistant", "Rain.", 0)]
        assert shown == turn_shown * 2


def run_sync(helper: Agent[None], session: HoldfastSession) -> Any:
    asyncio.set_event_loop(loop := asyncio.new_event_loop())
    try:
        return Runner.run_sync(helper, "Weather?", session=session, run_config=QUIET)
    finally:
        loop.close()


async def test_paused_run_resumes_from_the_log(place: str) -> None:
    paused = agent(function_call("refund", {"order": 42}, call_id="c9"))
    session = HoldfastSession("s", place)
    result = await Runner.run(paused, "Refund 42.", session=session, run_config=QUIET)
    assert len(result.interruptions) == 1
    await session.save_state(result.to_state())

    other = HoldfastSession("s", place)  # in another process
    resumed = agent(assistant_message("Done."))
    state = await other.load_state(resumed)
    assert state is not None
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(resumed, state, session=other, run_config=QUIET)
    assert result.final_output == "Done."
    await other.save_state(None)
    assert await session.load_state(resumed) is None
    items = await session.get_items()
    assert [item.get("output") for item in items if "output" in item] == ["refunded 42"]
    assert len(items) == 4
    await session.close()
    await other.close()


async def test_saved_state_ends_with_the_next_message() -> None:
    session = HoldfastSession("s", MemoryStore())
    assert await session.load_state(agent()) is None
    paused = agent(function_call("refund", {"order": 1}, call_id="c9"))
    result = await Runner.run(paused, "Refund 1.", session=session, run_config=QUIET)
    await session.save_state(result.to_state())
    assert await session.load_state(paused) is not None
    await session.add_items([USER])
    assert await session.load_state(paused) is None


class StandInClient:
    """Compacts every history to one item."""

    @property
    def responses(self) -> StandInClient:
        return self

    async def compact(self, **_: Any) -> Any:
        item = {"id": "cmp_1", "encrypted_content": "short", "type": "compaction"}
        return type("Compacted", (), {"output": [item], "usage": None})()


async def test_compaction_replaces_items_in_one_step(place: str) -> None:
    session = HoldfastSession("s", place)
    compacting = OpenAIResponsesCompactionSession(
        "s",
        session,
        client=StandInClient(),  # type: ignore[arg-type]
        compaction_mode="input",
        should_trigger_compaction=lambda _: True,
    )
    await session.add_items([USER, ANSWER])
    await compacting.run_compaction({"force": True})
    assert [item["type"] for item in await session.get_items()] == ["compaction"]
    snapshot = await session._get_compaction_snapshot(5)
    assert snapshot is not None
    assert snapshot.complete
    assert await snapshot.replace_suffix(1, [USER]) is False
    assert await snapshot.replace_suffix(0, [USER, ANSWER, CALL]) is True
    assert await snapshot.replace_suffix(0, [USER]) is False  # the log has grown
    part = await session._get_compaction_snapshot(1)
    assert part is not None
    assert (part.items, part.complete) == ([CALL], False)
    assert await part.replace_suffix(0, [OUTPUT]) is True
    assert await session.get_items() == [USER, ANSWER, OUTPUT]
    await session.close()


@pytest.mark.parametrize("limit", [2, 50])
async def test_compaction_prunes_expired_items_at_the_beginning(limit: int) -> None:
    async with connect("memory:") as store:
        session = HoldfastSession("s", store)
        items = [{"content": f"{n}", "role": "user"} for n in range(6)]
        await session.add_items(items)
        snapshot = await session._get_compaction_snapshot(
            limit, prune_prefix=lambda item: item["content"] in ("0", "1", "4")
        )
        assert snapshot is not None
        assert snapshot.complete == (limit == 50)
        assert await snapshot.replace_suffix(len(snapshot.items) - 2, [USER])
        assert await session.get_items() == [*items[2:4], USER]
        assert not await snapshot.replace_suffix(len(snapshot.items) - 2, [USER])


async def test_compaction_of_a_log_that_has_grown_changes_nothing() -> None:
    async with connect("memory:") as store:
        session = HoldfastSession("s", store)
        await session.add_items(TURN)
        snapshot = await session._get_compaction_snapshot(2, prune_prefix=lambda item: True)
        assert snapshot is not None
        await session.add_items([USER])
        assert not await snapshot.replace_suffix(0, [])
        assert await session.get_items() == [*TURN, USER]

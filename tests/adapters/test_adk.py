"""Google ADK's sessions: what the log holds, state, staleness, other writers, real runs of ADK."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from holdfast import (
    Agent,
    DeletionRefused,
    Harness,
    InvalidValue,
    NewEvent,
    Query,
    Sessions,
    Store,
    StoreUnavailable,
    Vault,
    connect,
    key,
)
from holdfast.adapters import retries
from holdfast.adapters.adk import HoldfastSessionService, register
from holdfast.adapters.openai import HoldfastSession
from holdfast.log.events import Event as LogEvent
from holdfast.log.transcript import transcript
from holdfast.models.scripted import ScriptedModel
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore
from tests.harness.kernel.test_adopt import spoken

from . import adk_agent
from .test_openai import CountingStore, assert_gone, harness_turn

WHO: dict[str, Any] = {"app_name": "shop", "user_id": "u"}
S: dict[str, Any] = {**WHO, "session_id": "s"}
USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=3, candidates_token_count=4, total_token_count=7
)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/log.db"


@pytest.fixture
async def store(place: str) -> AsyncGenerator[Store, None]:
    async with connect(place) as store:
        yield store


@pytest.fixture
def service(store: Store) -> HoldfastSessionService:
    return HoldfastSessionService(store)


def part(**fields: Any) -> types.Part:
    return types.Part(**fields)


def call_part(id: str = "c1", **more: Any) -> types.Part:
    return part(function_call=types.FunctionCall(id=id, name="look", args={"city": "Oslo"}), **more)


def output_part(response: Any, id: str = "c1") -> types.Part:
    return part(function_response=types.FunctionResponse(id=id, name="look", response=response))


def event(role: str, *parts: types.Part, author: str = "shop", **more: Any) -> Event:
    content = types.Content(role=role, parts=list(parts))
    return Event(author=author, invocation_id="e-1", content=content, **more)


def said(text: str, **more: Any) -> Event:
    return event("user", part(text=text), author="user", **more)


def changed(**delta: Any) -> Event:
    state = {name.replace("__", ":"): value for name, value in delta.items()}
    return Event(author="shop", invocation_id="e-1", actions=EventActions(state_delta=state))


def turn() -> list[Event]:
    thought = part(text="Look.", thought=True)
    return [
        said("Weather?"),
        event("model", thought, call_part(), usage_metadata=USAGE, model_version="m-1"),
        event("user", output_part({"result": "rain"})),
        event("model", part(text="Rain.")),
    ]


async def append(service: HoldfastSessionService, session: Session, *events: Event) -> None:
    for each in events:
        await service.append_event(session, each)


async def reloaded(store: Store, **config: Any) -> Session:
    """Return the session as another process gets it."""
    given = GetSessionConfig(**config)
    session = await HoldfastSessionService(store).get_session(**S, config=given)
    assert session is not None
    return session


async def content(store: Store, session: str = "s") -> list[tuple[str, Any]]:
    events = [event async for event in store.read(key(session))]
    return [(each.kind, each.json()) for each in events]


async def test_events_are_native_with_the_rest_of_the_event_only(
    store: Store, service: HoldfastSessionService
) -> None:
    session = await service.create_session(**S)
    given = turn()
    await append(service, session, *given)
    times = [each.timestamp for each in given]
    rest: dict[str, Any] = {"invocation_id": "e-1"}
    shop = {**rest, "author": "shop"}
    call = {"id": "c1", "name": "look", "arguments": {"city": "Oslo"}}
    native = [each for each in await content(store) if each[0].startswith(("message", "tool"))]
    assert native == [
        (
            "message.received",
            {"text": "Weather?", "adk": {**rest, "timestamp": times[0], "state": 2}},
        ),
        (
            "message.completed",
            {
                "thought": "Look.",
                "calls": [call],
                "usage": {"input_tokens": 3, "output_tokens": 4},
                "model": "m-1",
                "adk": {**shop, "timestamp": times[1], "state": 2},
            },
        ),
        (
            "tool.finished",
            {
                "call": "c1",
                "result": "rain",
                "adk": {"names": ["look"], **shop, "timestamp": times[2], "state": 2},
            },
        ),
        (
            "message.completed",
            {"text": "Rain.", "adk": {**shop, "timestamp": times[3], "state": 2}},
        ),
    ]
    events = [each async for each in store.read(key("s"))]
    assert all(each.run is None for each in events)
    assert [(m.role, m.text, len(m.calls)) for m in transcript(events)] == [
        ("user", "Weather?", 0),
        ("assistant", "", 1),
        ("assistant", "Rain.", 0),
    ]
    assert session.events == given == (await reloaded(store)).events
    row = await store.row(key("s"))
    assert row is not None
    assert (row.agent, row.user, row.first_message) == ("adk", "u", "Weather?")


FORMS = {
    "image": event(
        "user",
        part(text="a"),
        part(inline_data=types.Blob(data=b"\xff\0", mime_type="x")),
        author="user",
    ),
    "only an image": event(
        "user", part(inline_data=types.Blob(data=b"\xff", mime_type="x")), author="user"
    ),
    "signature": event("model", part(text="a"), call_part(thought_signature=b"\xfe")),
    "other order": event("model", call_part(), part(text="after")),
    "two texts": event("model", part(text="a"), part(text="b")),
    "call without id": event("model", part(function_call=types.FunctionCall(name="f", args={}))),
    "call without arguments": event(
        "model", part(function_call=types.FunctionCall(id="c", name="f"))
    ),
    "code": event(
        "model",
        part(text="a"),
        part(executable_code=types.ExecutableCode(code="1", language=types.Language.PYTHON)),
    ),
    "two outputs": event("user", output_part({"result": 1}), output_part({"a": [None]}, "c2")),
    "equal call ids": event("user", output_part({"result": 1}), output_part({"result": 2})),
    "wrapped object": event("user", output_part({"result": {"a": 1}})),
    "no output": event("user", output_part(None)),
    "interim": event(
        "user",
        output_part({"e": 1}),
        output_part({"e": 2}, "c2"),
        actions=EventActions(requested_tool_confirmations={"c1": ToolConfirmation(hint="?")}),
    ),
    "role of nobody": Event(
        author="user", invocation_id="", content=types.Content(parts=[part(text="a")])
    ),
    "answer as user": event("user", part(text="a")),
    "nothing": Event(author="shop"),
    "empty text": event("model", part(text="")),
    "odd id": said("a", id="a:b/ \u00e9"),
    "compaction": Event(
        author="user",
        actions=EventActions(
            compaction=EventCompaction(
                start_timestamp=1.0,
                end_timestamp=2.5,
                compacted_content=types.Content(role="model", parts=[part(text="short")]),
            )
        ),
    ),
    "rewind": Event(
        author="user", invocation_id="e-2", actions=EventActions(rewind_before_invocation_id="e-1")
    ),
    "details": event(
        "model",
        part(text="a"),
        branch="a.b",
        error_code="X",
        turn_complete=True,
        custom_metadata={"adk": {"x": None}},
        finish_reason=types.FinishReason.STOP,
        long_running_tool_ids={"b", "a"},
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1),
    ),
    "state": event(
        "model",
        part(text="a"),
        actions=EventActions(
            state_delta={"a": None, "user:b": 0.1, "app:c": True, "d": {"adk": 1}},
            artifact_delta={"f": 2},
            transfer_to_agent="x",
        ),
    ),
    "big state": changed(a="x" * 20_000, user__b=2**70),
    "surrogates": said(
        "\ud83d", actions=EventActions(state_delta={"a": "\ud83d", "user:b": "\ud83d"})
    ),
}


@pytest.mark.parametrize("name", FORMS)
async def test_event_of_any_form_comes_back_equal(store: Store, name: str) -> None:
    service = HoldfastSessionService(store)
    session = await service.create_session(**S)
    given = [said("before"), FORMS[name].model_copy(deep=True), said("after")]
    await append(service, session, *given)
    found = await reloaded(store)
    assert found.events == given
    assert found.state == session.state
    assert (await reloaded(store, num_recent_events=2)).events == given[1:]
    assert [damage async for damage in store.verify()] == []


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), [{"x": float("nan")}]])
async def test_numbers_that_json_lacks_are_rejected(bad: Any) -> None:
    service = HoldfastSessionService(MemoryStore())
    session = await service.create_session(**S)
    for wrong in (
        changed(a=bad),
        event("model", part(function_call=types.FunctionCall(id="c", name="f", args={"a": bad}))),
        said("a", custom_metadata={"a": bad}),
    ):
        with pytest.raises(InvalidValue, match="NaN"):
            await service.append_event(session, wrong)
    with pytest.raises(InvalidValue, match="NaN"):
        await service.create_session(**WHO, state={"a": bad})
    assert session.events == []
    assert session.state == {}
    await service.append_event(session, changed(temp__a=bad, b=1))
    found = await service.get_session(**S)
    assert found is not None
    assert found.state == {"b": 1}


# State


async def test_state_is_kept_by_scope(store: Store, service: HoldfastSessionService) -> None:
    session = await service.create_session(
        **S, state={"a": 1, "user:b": 2, "app:c": {"x": 1}, "temp:d": 4}
    )
    assert session.state == {"a": 1, "user:b": 2, "app:c": {"x": 1}}
    last = changed(a=None, e=0.1, user__b=True, app__c={"y": 2}, temp__d=5)
    await service.append_event(session, last)
    assert session.state["temp:d"] == 5
    assert last.actions.state_delta.get("temp:d") is None
    expected = {"a": None, "e": 0.1, "user:b": True, "app:c": {"y": 2}}
    assert (await reloaded(store)).state == expected
    other = await service.create_session(app_name="shop", user_id="v", session_id="s")
    assert other.state == {"app:c": {"y": 2}}
    assert (await service.create_session(app_name="x", user_id="u", session_id="s")).state == {}
    assert await service.get_user_state(**WHO) == {"b": True}
    assert await service.get_user_state(app_name="shop", user_id="nobody") == {}
    await service.delete_session(**S)
    again = await service.create_session(**S)
    assert again.state == {"user:b": True, "app:c": {"y": 2}}


async def test_changing_returned_state_changes_nothing_stored(
    store: Store, service: HoldfastSessionService
) -> None:
    session = await service.create_session(**S, state={"a": {"x": 1}, "user:b": [1]})
    session.state["a"]["x"] = 2
    session.state["user:b"].append(2)
    (await service.get_user_state(**WHO))["b"].append(3)
    await service.append_event(session, changed(c=1))
    for found in (await service.get_session(**S), await reloaded(store)):
        assert found is not None
        assert found.state == {"a": {"x": 1}, "c": 1, "user:b": [1]}


async def test_state_of_a_session_is_user_state_while_it_is_small(
    store: Store, service: HoldfastSessionService
) -> None:
    session = await service.create_session(**S, state={"a": 1})
    folded = Sessions(store)
    for delta, expected in (
        ({"b": 2}, {"a": 1, "b": 2}),
        ({"c": "x" * 17_000}, {"a": 1, "b": 2}),
        ({"a": 3}, {"a": 1, "b": 2}),
        ({"c": "x"}, {"a": 3, "b": 2, "c": "x"}),
        ({"d": 4}, {"a": 3, "b": 2, "c": "x", "d": 4}),
    ):
        await service.append_event(session, changed(**delta))
        assert (await fold_of(folded.store)).data == expected
    assert (await reloaded(store)).state == {"a": 3, "b": 2, "c": "x", "d": 4}


async def fold_of(store: Store) -> Any:
    from holdfast.state import fold

    return fold([each async for each in store.read(key("s"))])


async def test_state_and_newest_events_are_read_from_the_end(store: Store) -> None:
    service = HoldfastSessionService(store)
    session = await service.create_session(**S, state={"first": 1, "user:n": 0})
    for number in range(150):
        await append(service, session, said("a"), changed(n=number, user__n=number), said("b"))
    for number in range(150):
        await append(service, session, said(f"later {number}"))
    counted = CountingStore(store)
    found = await reloaded(counted, num_recent_events=3)
    assert found.state == {"first": 1, "n": 149, "user:n": 149}
    assert [each.content.parts[0].text for each in found.events if each.content] == [  # type: ignore[index]
        f"later {number}" for number in (147, 148, 149)
    ]
    assert counted.events <= 400  # of 1,050
    assert (await reloaded(store)).state == found.state
    assert (await service.list_sessions(app_name="shop")).sessions[0].state == found.state


async def test_concurrent_changes_of_shared_state_are_all_kept(place: str) -> None:
    services = [HoldfastSessionService(place) for _ in range(4)]
    sessions = [
        await service.create_session(**WHO, session_id=f"s{n}")
        for n, service in enumerate(services)
    ]

    async def write(number: int) -> None:
        for k in range(6):
            delta = {f"user__k{number}_{k}": k, f"app__k{number}_{k}": k}
            await services[number].append_event(sessions[number], changed(**delta))

    await asyncio.gather(*map(write, range(4)))
    expected = {f"k{n}_{k}": k for n in range(4) for k in range(6)}
    assert await services[0].get_user_state(**WHO) == expected
    found = await services[1].get_session(**WHO, session_id="s2")
    assert found is not None
    assert found.state == {
        f"{scope}:{k}": v for scope in ("app", "user") for k, v in expected.items()
    }
    for service in services:
        await service.close()


@pytest.mark.parametrize("first", [2, 3])
async def test_shared_state_that_a_crash_left_out_is_completed_by_the_next_open(
    store: Store, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)
    faulty = FaultyStore(store)
    service = HoldfastSessionService(faulty)
    session = await service.create_session(**S, state={"user:a": 0, "app:a": 0})
    start = faulty.calls["append"] + first
    faulty.plan[:] = [Fail(method="append", call=start + n) for n in range(12)]
    last = changed(user__a=1, app__a=2, b=3)
    with pytest.raises(StoreUnavailable):
        await service.append_event(session, last)
    assert session.events == []
    assert session.state == {"user:a": 0, "app:a": 0}
    expected = {"user:a": 1, "app:a": 2, "b": 3}
    assert (await reloaded(store)).state == expected
    assert await HoldfastSessionService(store).get_user_state(**WHO) == {"a": 1}
    other = await HoldfastSessionService(store).create_session(**WHO)
    await HoldfastSessionService(store).append_event(other, changed(user__a=5))
    faulty.plan.clear()
    await service.append_event(session, last)  # the caller repeats it
    assert session.events == [last]
    assert session.state == expected
    assert (await reloaded(store)).state == {**expected, "user:a": 5}
    assert (await reloaded(store)).events == [last]


# Several writers


async def test_stale_object_is_rejected_whatever_the_clocks_say(
    store: Store, service: HoldfastSessionService
) -> None:
    await service.create_session(**S)
    one, two = await reloaded(store), await reloaded(store)
    await service.append_event(one, said("one", timestamp=1.0))
    with pytest.raises(StaleSessionError, match="get the session again"):
        await service.append_event(
            two, said("two", timestamp=9e9, actions=EventActions(state_delta={"user:a": 1}))
        )
    assert (two.events, two.state) == ([], {})
    assert await service.get_user_state(**WHO) == {}
    two = await reloaded(store)
    await service.append_event(two, said("two", timestamp=0.5))
    with pytest.raises(StaleSessionError):
        await service.append_event(one, said("three"))
    assert [each.timestamp for each in (await reloaded(store)).events] == [1.0, 0.5]
    assert (await reloaded(store)).last_update_time == 0.5


async def test_facts_about_the_session_make_no_object_stale(
    store: Store, service: HoldfastSessionService
) -> None:
    session = await service.create_session(**S)
    await Sessions(store).update_metadata("s", {"colour": "red"})
    await service.append_event(session, said("a"))
    await store.append(key("s"), [NewEvent.of("message.received", {"text": "from elsewhere"})])
    with pytest.raises(StaleSessionError):
        await service.append_event(session, said("b"))


async def test_object_of_another_origin_is_checked_by_its_last_event(
    store: Store, service: HoldfastSessionService
) -> None:
    session = await service.create_session(**S)
    await service.append_event(session, said("a"))
    copied = Session.model_validate_json(session.model_dump_json())
    await service.append_event(copied, said("b"))
    with pytest.raises(StaleSessionError):
        await service.append_event(Session(id="s", app_name="shop", user_id="u"), said("c"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(Session(id="x", app_name="shop", user_id="u"), said("c"))
    session._storage_update_marker = "12"
    with pytest.raises(StaleSessionError, match="another session service"):
        await service.append_event(session, said("c"))


async def test_event_is_stored_once(store: Store, service: HoldfastSessionService) -> None:
    session = await service.create_session(**S)
    first, output = changed(a=1, user__b=1), event("user", output_part({"result": "rain"}))
    await append(service, session, first, output)
    await append(service, session, changed(a=2, user__b=2))
    await append(service, session, first, output)
    assert len(session.events) == 3
    assert session.state == {"a": 2, "user:b": 2}
    behind = await reloaded(store)
    await service.append_event(session, said("more"))
    await service.append_event(behind, first)
    found = await reloaded(store)
    assert found.events == session.events
    assert found.state == session.state
    assert len(behind.events) == 3


async def test_appends_to_one_object_wait_for_each_other(store: Store) -> None:
    service = HoldfastSessionService(store)
    session = await service.create_session(**S)
    await asyncio.gather(*(service.append_event(session, said(str(n))) for n in range(10)))
    assert session.events == (await reloaded(store)).events
    assert len(session.events) == 10


async def test_partial_event_is_returned_and_not_stored(service: HoldfastSessionService) -> None:
    session = await service.create_session(**S)
    partial = said("a", partial=True)
    assert await service.append_event(session, partial) is partial
    assert session.events == []


async def test_append_to_a_deleted_session_is_rejected(service: HoldfastSessionService) -> None:
    session = await service.create_session(**S)
    await service.delete_session(**S)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, said("a"))
    await service.create_session(**S)
    with pytest.raises(StaleSessionError):
        await service.append_event(session, said("a"))


# Names, lists, deletion


async def test_sessions_of_apps_and_users_do_not_mix(
    store: Store, service: HoldfastSessionService
) -> None:
    names = [("a", "b"), ("a", "c"), ("b", "b"), ("ab", ""), ("", "ab"), ("a/b", "x:y\0z")]
    for app, user in names:
        session = await service.create_session(
            app_name=app, user_id=user, session_id="s", state={"who": [app, user]}
        )
        await service.append_event(session, said(f"{app}|{user}"))
    for app, user in names:
        with pytest.raises(AlreadyExistsError):
            await service.create_session(app_name=app, user_id=user, session_id=" s ")
        found = await service.get_session(app_name=app, user_id=user, session_id="s")
        assert found is not None
        assert (found.id, found.app_name, found.user_id) == ("s", app, user)
        assert found.state == {"who": [app, user]}
        assert len(found.events) == 1
        (listed,) = (await service.list_sessions(app_name=app, user_id=user)).sessions
        assert (listed.id, listed.state, listed.events) == ("s", found.state, [])
    assert len((await service.list_sessions(app_name="a")).sessions) == 2
    await service.delete_session(app_name="a", user_id="b", session_id="s")
    await service.delete_session(app_name="a", user_id="b", session_id="s")
    assert await service.get_session(app_name="a", user_id="b", session_id="s") is None
    with pytest.raises(AlreadyExistsError):  # it has another id in the store
        await service.create_session(app_name="a", user_id="c", session_id="s")
    logs = {row.session for row in (await store.find(Query())).items}
    assert len(logs) == len(names) - 1
    for log in logs - {"s"}:  # nobody takes the place of another session
        found = await service.create_session(app_name="a", user_id="z", session_id=log)
        assert found.events == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (" padded ", "padded"),
        ("../../etc", "../../etc"),
        ("a" * 2_000, "a" * 2_000),
        ("a\0b", "a\0b"),
    ],
    ids=["padded", "path", "long", "NUL"],
)
async def test_any_id_can_be_used(
    service: HoldfastSessionService, given: str, expected: str
) -> None:
    session = await service.create_session(**WHO, session_id=given)
    assert session.id == expected
    await service.append_event(session, said("a"))
    found = await service.get_session(**WHO, session_id=given)
    assert found is not None
    assert (found.id, found.events) == (expected, session.events)
    assert [each.id for each in (await service.list_sessions(**WHO)).sessions] == [expected]
    await service.delete_session(**WHO, session_id=given)
    assert await service.get_session(**WHO, session_id=given) is None


async def test_blank_id_is_replaced_and_text_without_encoding_is_unknown(
    service: HoldfastSessionService,
) -> None:
    ids = [(await service.create_session(**WHO, session_id=id)).id for id in (None, "", "  ")]
    assert len(set(ids)) == 3
    assert all(ids)
    for bad in ("", " ", "\ud83d"):
        assert await service.get_session(**WHO, session_id=bad) is None
        await service.delete_session(**WHO, session_id=bad)
    with pytest.raises(InvalidValue, match="tenant"):
        HoldfastSessionService("memory:", tenant="t" * 510)
    with pytest.raises(InvalidValue, match="surrogate"):
        await service.create_session(**WHO, session_id="\ud83d")
    assert (await service.list_sessions(app_name="\ud83d")).sessions == []


async def test_one_of_two_creators_wins(place: str) -> None:
    services = [HoldfastSessionService(place) for _ in range(2)]
    made = await asyncio.gather(
        *(each.create_session(**S, state={"user:a": 1}) for each in services),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in made) == ["AlreadyExistsError", "Session"]
    for each in services:
        await each.close()


async def test_damaged_event_is_skipped(place: str) -> None:
    async with HoldfastSessionService(place) as service:
        session = await service.create_session(**S, state={"a": 1})
        await append(service, session, said("one"), said("two"), said("three"), changed(b=1))
    with closing(sqlite3.connect(place.removeprefix("sqlite:"))) as database, database:
        rows = database.execute("SELECT rid, data FROM events").fetchall()
        ((rid, data),) = [row for row in rows if b'"two"' in row[1]]
        changes = (data.replace(b"two", b"six"), rid)
        database.execute("UPDATE events SET data = ? WHERE rid = ?", changes)
    async with connect(place) as store:
        expected = {"a": 1, "b": 1}
        for config in ({}, {"num_recent_events": 3}, {"num_recent_events": 9}):
            session = await reloaded(store, **config)
            assert (len(session.events), session.state) == (3, expected)
        await HoldfastSessionService(store).append_event(session, said("four"))
        assert len((await reloaded(store)).events) == 4


async def test_list_is_sorted_by_the_last_update(service: HoldfastSessionService) -> None:
    for name, time in (("a", 30.0), ("b", 10.0), ("c", 20.0)):
        session = await service.create_session(**WHO, session_id=name, state={"user:n": name})
        await service.append_event(session, said("x", timestamp=time))
    listed = (await service.list_sessions(**WHO)).sessions
    assert [each.id for each in listed] == ["b", "c", "a"]
    assert [each.last_update_time for each in listed] == [10.0, 20.0, 30.0]
    assert all(each.state == {"user:n": "c"} for each in listed)
    assert (await service.list_sessions(app_name="other")).sessions == []


async def test_get_limits_combine(store: Store, service: HoldfastSessionService) -> None:
    session = await service.create_session(**S)
    given = [said(str(n), timestamp=float(n)) for n in (1, 2, 3, 9, 4, 5)]
    await append(service, session, *given)
    for recent in (None, 0, 1, 2, 3, 10):
        for after in (None, 0.0, 3.0, 4.0, 100.0):
            found = await reloaded(store, num_recent_events=recent, after_timestamp=after)
            expected = [each for each in given if each.timestamp >= (after or 0)]
            if recent is not None:
                expected = expected[len(expected) - min(recent, len(expected)) :]
            assert found.events == expected
            await service.append_event(found, given[0])  # known, so that nothing happens


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_deleted_content_is_not_on_disk(kind: str, tmp_path: Path) -> None:
    async with connect(f"{kind}:{tmp_path}/log") as store:
        service = HoldfastSessionService(store)
        session = await service.create_session(**S, state={"a": "canary-1"})
        await append(service, session, said("canary-2"), changed(b="canary-3"))
        await service.delete_session(**S)
        await store.purge()
        assert [damage async for damage in store.verify()] == []
    await asyncio.to_thread(assert_gone, tmp_path, b"canary")


async def test_held_session_is_not_deleted(store: Store, service: HoldfastSessionService) -> None:
    await service.create_session(**S)
    await Sessions(store).hold("s", "case 7")
    with pytest.raises(DeletionRefused):
        await service.delete_session(**S)


async def test_shared_state_is_part_of_a_person(store: Store) -> None:
    service = HoldfastSessionService(store)
    session = await service.create_session(**S, state={"user:a": 1, "app:b": 2})
    await service.append_event(session, said("a"))
    sessions = Sessions(store)
    assert [row.session for row in (await sessions.find()).items] == ["s"]
    records = [record async for record in sessions.export_person("u")]
    shared = [record.event for record in records if record.session != "s" and record.event]
    assert any(b'"a":1' in bytes(each.data) for each in shared)
    erased = await sessions.erase_person("u", reason="asked", dry_run=True)
    assert len(erased.sessions) == 2
    assert await service.get_user_state(**WHO) == {"a": 1}
    assert await sessions.erase_person("u", reason="asked")
    assert await service.get_user_state(**WHO) == {}
    again = await service.create_session(**S, state={"user:c": 1})
    assert again.state == {"user:c": 1, "app:b": 2}
    assert (await reloaded(store)).state == again.state


async def test_shared_state_is_encrypted_with_the_keys_of_the_tenant(place: str) -> None:
    default, own = Vault.new_key("default"), Vault.new_key("own")
    vault = Vault([default], tenants={"acme": [own]})
    async with connect(place, vault=vault) as store:
        service = HoldfastSessionService(store, tenant="acme")
        await service.create_session(**S, state={"user:a": "canary"})
    async with connect(place, vault=Vault([Vault.new_key("x")], tenants={"acme": [own]})) as store:
        assert await HoldfastSessionService(store, tenant="acme").get_user_state(**WHO) == {
            "a": "canary"
        }
    path = Path(place.removeprefix("sqlite:"))
    assert b"canary" not in await asyncio.to_thread(path.read_bytes)


# Other writers


async def test_events_of_other_writers_are_translated(store: Store) -> None:
    await store.append(key("s"), harness_turn(), create=True)
    expected = [
        ("user", "user", "Weather?"),
        ("user", "model", "Looking."),
        ("user", "user", "rain"),
        ("user", "model", "Rain."),
    ]
    session = await reloaded(store)
    assert [shape(each) for each in session.events] == expected
    call = session.events[1].get_function_calls()[0]
    assert (call.id, call.name, call.args) == ("c1", "look", {"city": "Oslo"})
    for recent in range(1, 5):
        found = await reloaded(store, num_recent_events=recent)
        assert [shape(each) for each in found.events] == expected[-recent:]
    service = HoldfastSessionService(store)
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**S)
    await service.delete_session(**S)  # it is not ADK's
    await append(service, session, said("Thanks."), changed(a=1, user__b=2))
    assert [each.id for each in (await service.list_sessions(**WHO)).sessions] == ["s"]
    assert (await reloaded(store)).state == {"a": 1, "user:b": 2}
    assert await service.get_session(app_name="shop", user_id="other", session_id="s") is None
    assert len((await reloaded(store)).events) == 6
    (erased,) = [
        each.seq
        async for each in store.read(key("s"))
        if each.kind == "tool.finished" and each.seq < 8
    ]
    await store.erase(key("s"), [erased], reason="asked")
    assert len((await reloaded(store)).events) == 5


async def test_conversation_goes_on_with_another_sdk(store: Store) -> None:
    service = HoldfastSessionService(store)
    await append(service, await service.create_session(**S), *turn())
    other = HoldfastSession("s", store)
    items = await other.get_items()
    assert [item.get("content") or item.get("output") or item["name"] for item in items] == [
        "Weather?",
        "look",
        "rain",
        "Rain.",
    ]
    call = {"arguments": "{}", "call_id": "c9", "name": "look", "type": "function_call"}
    output = {"call_id": "c9", "output": "sun", "type": "function_call_output"}
    await other.add_items([{"content": "And now?", "role": "user"}, call, output])
    events = (await reloaded(store)).events
    assert [shape(each)[0] for each in events[4:]] == ["user", "shop", "shop"]
    assert events[5].get_function_calls()[0].id == events[6].get_function_responses()[0].id == "c9"
    assert (await reloaded(store, num_recent_events=2)).events[0].get_function_calls()


async def test_session_that_another_sdk_began_is_continued(store: Store) -> None:
    call = {"arguments": "{}", "call_id": "c9", "name": "look", "type": "function_call"}
    output = {"call_id": "c9", "output": "sun", "type": "function_call_output"}
    user = {"content": "Weather?", "role": "user"}
    await HoldfastSession("s", store).add_items([user, call, output])
    service = HoldfastSessionService(store)
    agent = adk_agent.shop(("Sun.",), tools=[adk_agent.look])
    await adk_agent.run(adk_agent.runner(agent, service), adk_agent.user("And now?"))
    assert isinstance(agent.model, adk_agent.StandIn)
    (prompt,) = agent.model.prompts
    assert [content.role for content in prompt] == ["user", "model", "user", "user"]
    assert prompt[1].parts
    assert prompt[1].parts[0].function_call
    assert len(await HoldfastSession("s", store).get_items()) == 5


def shape(event: Event) -> tuple[str, str | None, str]:
    assert event.content is not None
    assert event.content.parts is not None
    first = event.content.parts[0]
    response = first.function_response
    text = str((response.response or {})["result"]) if response else str(first.text)
    return event.author, event.content.role, text


async def test_session_of_another_user_is_not_opened(store: Store) -> None:
    created = NewEvent.of("session.created", {"agent": "shop", "user": "v"})
    await store.append(key("s"), [created], create=True)
    service = HoldfastSessionService(store)
    assert await service.get_session(**S) is None
    session = await service.create_session(**S)
    await service.append_event(session, said("a"))
    assert len([each async for each in store.read(key("s"))]) == 1
    assert len((await reloaded(store)).events) == 1


async def test_erased_events_are_skipped(store: Store, service: HoldfastSessionService) -> None:
    session = await service.create_session(**S)
    both = event("user", output_part({"result": 1}), output_part({"result": 2}, "c2"))
    given = [said("a"), both, FORMS["state"].model_copy(deep=True), FORMS["surrogates"], said("z")]
    await append(service, session, *given)
    found: list[LogEvent] = [each async for each in store.read(key("s"))]
    seqs = [each.seq for each in found if each.seq > 2]
    for seq in seqs[:-1]:
        await store.erase(key("s"), [seq], reason="asked")
        kept = await reloaded(store)
        assert kept.events[-1] == given[-1]
        assert (await reloaded(store, num_recent_events=2)).events == kept.events[-2:]
    assert (await reloaded(store)).events == given[-1:]


async def test_harness_continues_after_an_adoption_and_adk_after_it(place: str) -> None:
    async with connect(place) as store:
        service = HoldfastSessionService(store)
        await append(service, await service.create_session(**S), *turn())
        model = ScriptedModel(["Bye."], repeat=True)
        shop = Agent("shop", instructions="Help.")
        async with Harness(shop, store=store, default_model=model) as harness:
            session = await harness.adopt("s")
            assert (await session.send("Thanks!")).text == "Bye."
        said_before = ["Weather?", "", "rain", "Rain.", "Thanks!"]
        assert spoken(model.calls[0]) == said_before
        found = await reloaded(store)
        assert [shape(each)[0] for each in found.events[-2:]] == ["user", "shop"]
        assert [shape(each)[2] for each in found.events[-2:]] == ["Thanks!", "Bye."]
        await service.append_event(found, said("Again."))
        assert [each.id for each in (await service.list_sessions(**WHO)).sessions] == ["s"]


def test_service_works_from_several_loops_and_threads(place: str) -> None:
    service = HoldfastSessionService(place)

    async def turns(name: str) -> None:
        session = await service.create_session(**WHO, session_id=name)
        for number in range(5):
            await service.append_event(session, said(f"{name}{number}"))

    threads = [threading.Thread(target=lambda n=name: asyncio.run(turns(n))) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = asyncio.run(service.list_sessions(**WHO)).sessions
    assert sorted(each.id for each in listed) == ["a", "b"]
    asyncio.run(service.close())


def test_uri_of_the_registry_names_a_store(place: str) -> None:
    from google.adk.cli.service_registry import get_service_registry

    register(tenant="acme")
    service = get_service_registry().create_session_service(f"holdfast:{place}", agents_dir="x")
    assert isinstance(service, HoldfastSessionService)
    session = asyncio.run(service.create_session(**S))
    assert session.id == "s"
    asyncio.run(service.close())

    async def found() -> Any:
        async with connect(place) as store:
            return await store.row(key("s", tenant="acme"))

    assert asyncio.run(found()) is not None

"""What the SDK asks of a session store, on every kind of store."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from claude_agent_sdk import SessionStore
from claude_agent_sdk.testing import run_session_store_conformance
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import LIMITS, InvalidValue, NewEvent, Query, Sessions, Store
from holdfast.adapters.claude import ClaudeSessionStore, InvalidKey
from holdfast.events import Key
from holdfast.stores.memory import MemoryStore

from .words import entry, key, mtime, summary, title

parity = pytest.mark.parity

OPTIONAL = ("list_sessions", "list_session_summaries", "delete", "list_subkeys")


async def test_the_sdks_own_conformance_suite_passes(store: Store) -> None:
    tenants = itertools.count()

    def fresh() -> SessionStore:
        return ClaudeSessionStore(store, tenant=f"tenant-{next(tenants)}")

    await run_session_store_conformance(fresh)
    assert next(tenants) > 14


def test_no_optional_method_is_missing_for_the_sdk() -> None:
    for name in OPTIONAL:
        method = getattr(ClaudeSessionStore, name)
        assert method is not getattr(SessionStore, name)


# Append and load


@parity("computeragent", 1)
async def test_what_was_never_written_is_none(sessions: ClaudeSessionStore) -> None:
    assert await sessions.load(key()) is None
    await sessions.append(key(), [entry("a")])
    assert await sessions.load(key(sub="subagents/agent-1")) is None
    assert await sessions.load(key("other")) is None
    assert await sessions.load(key(project="other")) is None


@parity("computeragent", 2)
async def test_entries_come_back_equal_and_in_order(sessions: ClaudeSessionStore) -> None:
    entries = [
        entry("b", message={"content": [{"type": "text", "text": "hé\0llo 👩‍👩‍👧"}], "n": 2**200}),
        entry("a", nested=[[{"x": [None, True, 1.5, -0.0, 5e-324]}]], empty={}, blank=""),
    ]
    await sessions.append(key(), entries)
    assert await sessions.load(key()) == entries


@parity("computeragent", 3)
async def test_later_appends_go_behind_earlier_ones(sessions: ClaudeSessionStore) -> None:
    for n in range(5):
        await sessions.append(key(), [entry(f"z{9 - n}", n=n), entry(n=n)])
    loaded: Any = await sessions.load(key())
    assert [e["n"] for e in loaded] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_entries_that_were_rewound_away_are_not_loaded(
    sessions: ClaudeSessionStore, store: Store
) -> None:
    await sessions.append(key(), [entry("a")])
    (row,) = (await store.find(Query(tenant="main"))).items
    await sessions.append(key(), [entry("b")])
    await Sessions(store).rewind(row.session, row.head)
    assert await sessions.load(key()) == [entry("a")]
    await sessions.append(key(), [entry("c")])
    assert await sessions.load(key()) == [entry("a"), entry("c")]


@parity("computeragent", 4)
async def test_an_empty_batch_changes_and_makes_nothing(
    sessions: ClaudeSessionStore, store: Store
) -> None:
    await sessions.append(key(), [])
    await sessions.append(key(sub="a"), [])
    assert await sessions.load(key()) is None
    assert await sessions.list_sessions("p") == []
    assert await sessions.list_subkeys(key()) == []
    assert (await store.find(Query())).items == []
    await sessions.append(key(), [entry("a")])
    before = await mtime(sessions)
    await sessions.append(key(), [])
    assert (await sessions.size(key()), await mtime(sessions)) == (1, before)


@parity("computeragent", 5)
async def test_a_repeated_uuid_is_passed_over(sessions: ClaudeSessionStore) -> None:
    for at in (key(), key(sub="subagents/agent-1")):
        await sessions.append(at, [entry("a")])
        await sessions.append(at, [entry("a")])
        await sessions.append(at, [entry("a"), entry("b")])
        assert await sessions.load(at) == [entry("a"), entry("b")]


@parity("computeragent", 6)
async def test_a_uuid_counts_once_within_a_batch(sessions: ClaudeSessionStore) -> None:
    for at in (key(), key(sub="subagents/agent-1")):
        await sessions.append(at, [entry("a", n=1), entry("a", n=2), entry("b"), entry("a", n=3)])
        assert await sessions.load(at) == [entry("a", n=1), entry("b")]


@parity("computeragent", 7)
async def test_entries_without_a_uuid_always_count(sessions: ClaudeSessionStore) -> None:
    for at in (key(), key(sub="subagents/agent-1")):
        await sessions.append(at, [entry(), entry()])
        await sessions.append(at, [entry()])
        assert await sessions.size(at) == 3


@parity("computeragent", 8)
async def test_the_first_content_of_a_uuid_stays(sessions: ClaudeSessionStore) -> None:
    await sessions.append(key(), [entry("a", v=1)])
    await sessions.append(key(), [entry("a", v=2)])
    assert await sessions.load(key()) == [entry("a", v=1)]


@pytest.mark.parametrize("uuid", ["x" * 600, "é" * 300, "a\0b", "\ud83d", "uuid:x", "hash:y"])
async def test_a_uuid_may_be_any_text(sessions: ClaudeSessionStore, uuid: str) -> None:
    await sessions.append(key(), [entry(uuid), entry(uuid + "!"), entry(uuid)])
    await sessions.append(key(), [entry(uuid + "!")])
    assert await sessions.load(key()) == [entry(uuid), entry(uuid + "!")]


@pytest.mark.parametrize("uuid", [None, "", 7, ["a"]])
async def test_what_is_no_uuid_is_none(sessions: ClaudeSessionStore, uuid: Any) -> None:
    odd: Any = {**entry(), "uuid": uuid}
    await sessions.append(key(), [odd, odd])
    assert await sessions.load(key()) == [odd, odd]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@parity("computeragent", 9)
@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_json_an_entry_holds_comes_back(store: Store, extra: list[Any]) -> None:
    sessions = ClaudeSessionStore(store)
    entries: list[Any] = [{**fields, "type": "x"} for fields in extra]
    for each in entries:
        each.pop("uuid", None)
    await sessions.delete(key())
    await sessions.append(key(), entries)
    await sessions.append(key(sub="a"), entries)
    assert await sessions.load(key()) == entries
    assert await sessions.load(key(sub="a")) == entries


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "odd", ["half \ud83d", {"\udc00": 1}, 1e400, nested(300)], ids=["value", "name", "inf", "deep"]
)
async def test_what_a_store_refuses_as_json_is_kept_all_the_same(
    sessions: ClaudeSessionStore, odd: Any
) -> None:
    entries = [entry("a", odd=odd), entry(odd=odd, customTitle="half \ud83d")]
    await sessions.append(key(), entries)
    assert await sessions.load(key()) == entries
    assert (await summary(sessions))["custom_title"] == "half \ud83d"


async def test_what_is_no_json_is_refused_and_nothing_of_its_batch_is_stored(
    sessions: ClaudeSessionStore,
) -> None:
    with pytest.raises(InvalidValue):
        await sessions.append(key(), [entry("a"), entry("b", odd=object())])
    assert await sessions.load(key()) is None


@parity("computeragent", 22)
async def test_what_load_gave_out_can_be_changed(sessions: ClaudeSessionStore) -> None:
    mine = entry("a", deep={"list": [1]})
    await sessions.append(key(), [mine])
    loaded: Any = await sessions.load(key())
    loaded[0]["deep"]["list"].append(2)
    loaded.append(entry("b"))
    mine["type"] = "changed"
    assert await sessions.load(key()) == [entry("a", deep={"list": [1]})]


@parity("computeragent", 21)
async def test_size_counts_entries_alone(sessions: ClaudeSessionStore) -> None:
    assert await sessions.size(key()) == 0
    await sessions.append(key(), [entry("a"), entry()])
    await sessions.append(key(), [title("b")])
    await sessions.append(key(sub="x"), [entry("a", text="x" * 100_000)])
    assert await sessions.size(key()) == 3
    assert await sessions.size(key(sub="x")) == 1
    assert await sessions.size(key(sub="y")) == 0


async def test_a_batch_above_the_limits_of_an_append_is_stored_in_order(
    sessions: ClaudeSessionStore,
) -> None:
    entries = [entry(f"u{n}" if n % 2 else None, n=n) for n in range(2 * LIMITS.append_events + 50)]
    for at in (key(), key(sub="x")):
        await sessions.append(at, entries)
        assert await sessions.load(at) == entries


async def test_a_batch_above_the_bytes_of_an_append_is_stored_in_order() -> None:
    sessions = ClaudeSessionStore(MemoryStore())
    big = "x" * (LIMITS.append_bytes // 3)
    entries = [entry(f"u{n}", text=big) for n in range(4)]
    await sessions.append(key(), entries)
    assert await sessions.load(key()) == entries


async def test_an_erased_entry_is_left_out_and_stays_known(
    sessions: ClaudeSessionStore, store: Store
) -> None:
    await sessions.append(key(), [entry("a"), entry("b")])
    rows = (await store.find(Query())).items
    seqs = [e.seq async for e in store.read(rows[0].key) if e.id == "uuid:a"]
    await store.erase(rows[0].key, seqs, reason="asked for")
    await sessions.append(key(), [entry("a")])
    assert await sessions.load(key()) == [entry("b")]
    assert await sessions.size(key()) == 1


# Keys


@parity("computeragent", 10)
async def test_sessions_do_not_mix(sessions: ClaudeSessionStore) -> None:
    await sessions.append(key("a"), [entry("x", of="a")])
    await sessions.append(key("b"), [entry("x", of="b")])
    assert await sessions.load(key("a")) == [entry("x", of="a")]
    assert await sessions.load(key("b")) == [entry("x", of="b")]


@parity("computeragent", 11)
async def test_projects_do_not_mix(sessions: ClaudeSessionStore) -> None:
    await sessions.append(key(project="A"), [entry("x", of="A")])
    await sessions.append(key(project="B"), [entry("x", of="B")])
    assert await sessions.load(key(project="A")) == [entry("x", of="A")]
    assert await sessions.load(key(project="B")) == [entry("x", of="B")]
    await sessions.delete(key(project="A"))
    assert await sessions.load(key(project="B")) == [entry("x", of="B")]


@parity("computeragent", 12)
async def test_transcripts_of_sub_agents_stand_apart(sessions: ClaudeSessionStore) -> None:
    paths = ["subagents/agent-1", "subagents/agent-2", "main", "sub/main", "subagents/agent-1/x"]
    await sessions.append(key(), [entry("x", of="main")])
    for path in paths:
        await sessions.append(key(sub=path), [entry("x", of=path)])
    assert await sessions.load(key()) == [entry("x", of="main")]
    for path in paths:
        assert await sessions.load(key(sub=path)) == [entry("x", of=path)]


PAIRS = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "b%2Fc"), ("a%252Fb", "c"), ("%", "/")]


async def test_no_two_keys_meet(sessions: ClaudeSessionStore) -> None:
    for project, session in PAIRS:
        await sessions.append(key(session, project=project), [entry("x", of=[project, session])])
    for project, session in PAIRS:
        loaded = await sessions.load(key(session, project=project))
        assert loaded == [entry("x", of=[project, session])]
        assert session in [s["session_id"] for s in await sessions.list_sessions(project)]
    assert sorted(await sessions.sessions()) == sorted(PAIRS)


@parity("computeragent", 13)
async def test_an_empty_subpath_is_refused(sessions: ClaudeSessionStore) -> None:
    for call in (sessions.load, sessions.delete, sessions.size):
        with pytest.raises(ValueError) as caught:
            await call(key(sub=""))
        assert isinstance(caught.value, InvalidKey)
        assert caught.value.field == "subpath"
    with pytest.raises(ValueError):
        await sessions.append(key(sub=""), [entry("a")])
    with pytest.raises(ValueError):
        await sessions.append(key(sub=""), [])


@pytest.mark.parametrize(
    "wrong",
    [
        key(""),
        key(project=""),
        key("x" * 600),
        key(project="x" * 600),
        key(sub="x" * 600),
        key("a\0b"),
        key(project="a\0b"),
        key(sub="a\0b"),
        key("\ud83d"),
        {"project_key": "p"},
    ],
)
async def test_keys_that_name_nothing_are_refused(sessions: ClaudeSessionStore, wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        await sessions.append(wrong, [entry("a")])
    with pytest.raises(InvalidValue):
        await sessions.load(wrong)


async def test_tenants_do_not_mix(store: Store) -> None:
    ann, bob = (ClaudeSessionStore(store, tenant=name) for name in ("ann", "bob"))
    await ann.append(key(), [entry("a")])
    assert await bob.load(key()) is None
    assert await bob.list_sessions("p") == []
    await bob.delete(key())
    assert await ann.load(key()) == [entry("a")]


# Lists


@parity("computeragent", 14)
async def test_the_subpaths_of_a_session_are_listed(sessions: ClaudeSessionStore) -> None:
    paths = ["subagents/agent-1", "subagents/workflows/run/agent-2"]
    await sessions.append(key(), [entry("a")])
    for path in paths:
        await sessions.append(key(sub=path), [entry("a")])
    await sessions.append(key("other", sub="subagents/agent-x"), [entry("a")])
    await sessions.append(key(project="other", sub="subagents/agent-y"), [entry("a")])
    assert await sessions.list_subkeys(key()) == paths
    assert await sessions.list_subkeys(key("never")) == []


@parity("computeragent", 17)
async def test_sessions_are_listed_by_project_the_last_written_first(
    sessions: ClaudeSessionStore,
) -> None:
    for name in ("a", "b", "c", "a"):
        await sessions.append(key(name), [entry()])
    await sessions.append(key("d", project="other"), [entry()])
    listed = await sessions.list_sessions("p")
    times = [item["mtime"] for item in listed]
    assert {item["session_id"] for item in listed} == {"a", "b", "c"}
    assert times == sorted(times, reverse=True)
    assert all(isinstance(time, int) and time > 1e12 for time in times)
    assert await sessions.list_sessions("never") == []


@parity("computeragent", 17)
async def test_the_order_of_a_list_is_that_of_the_writes() -> None:
    now = 1_800_000_000_000
    sessions = ClaudeSessionStore(MemoryStore(clock=lambda: now))
    for name in ("a", "b", "c", "a"):
        now += 1
        await sessions.append(key(name), [entry()])
    assert await sessions.list_sessions("p") == [
        {"session_id": "a", "mtime": 1_800_000_000_004},
        {"session_id": "c", "mtime": 1_800_000_000_003},
        {"session_id": "b", "mtime": 1_800_000_000_002},
    ]


@parity("computeragent", 18)
async def test_lists_of_sessions_leave_sub_agents_out(sessions: ClaudeSessionStore) -> None:
    await sessions.append(key("a", sub="subagents/agent-1"), [entry("x")])
    assert await sessions.list_sessions("p") == []
    assert await sessions.list_session_summaries("p") == []
    assert await sessions.load(key("a")) is None
    await sessions.append(key("a"), [entry("x")])
    await sessions.append(key("a", sub="subagents/agent-2"), [entry("x")])
    assert [item["session_id"] for item in await sessions.list_sessions("p")] == ["a"]
    assert await sessions.size(key("a")) == 1


@parity("computeragent", 19)
async def test_a_list_has_no_end_but_its_own(sessions: ClaudeSessionStore) -> None:
    names = {f"s{n:02}" for n in range(60)}
    for name in names:
        await sessions.append(key(name), [entry()])
    assert {item["session_id"] for item in await sessions.list_sessions("p")} == names
    assert {item["session_id"] for item in await sessions.list_session_summaries("p")} == names


async def test_a_list_goes_on_behind_a_page() -> None:
    sessions = ClaudeSessionStore(MemoryStore())
    for n in range(LIMITS.page + 10):
        await sessions.append(key(f"s{n}"), [entry()])
        await sessions.append(key(sub=f"sub{n}"), [entry()])
    assert len(await sessions.list_sessions("p")) == LIMITS.page + 10
    assert len(await sessions.list_subkeys(key())) == LIMITS.page + 10


async def test_lists_hold_our_sessions_alone(sessions: ClaudeSessionStore, store: Store) -> None:
    created = NewEvent.of("session.created", {"workspace": "p", "agent": "claude"})
    await store.append(Key("main", "p/foreign", "main"), [created], create=True)
    await store.append(Key("main", "foreign", "main"), [created], create=True)
    await sessions.append(key(), [entry("a")])
    assert [item["session_id"] for item in await sessions.list_sessions("p")] == ["s"]
    assert ("p", "s") in await sessions.sessions()


# Delete


@parity("computeragent", 15)
async def test_deleting_a_session_takes_its_sub_agents_along(sessions: ClaudeSessionStore) -> None:
    spared = [key("other"), key(project="other"), key("other", sub="subagents/agent-1")]
    gone = [key(), key(sub="subagents/agent-1"), key(sub="subagents/agent-2")]
    for at in [*spared, *gone]:
        await sessions.append(at, [entry("a")])
    await sessions.delete(key())
    for at in gone:
        assert await sessions.load(at) is None
    for at in spared:
        assert await sessions.load(at) == [entry("a")]
    assert await sessions.list_subkeys(key()) == []
    assert [item["session_id"] for item in await sessions.list_sessions("p")] == ["other"]
    await sessions.append(key(), [entry("a", again=True)])
    assert await sessions.load(key()) == [entry("a", again=True)]


@parity("computeragent", 16)
async def test_deleting_one_transcript_spares_the_rest(sessions: ClaudeSessionStore) -> None:
    await sessions.delete(key("never"))
    await sessions.delete(key("never", sub="a"))
    for at in (key(), key(sub="a"), key(sub="a/b"), key(sub="ab")):
        await sessions.append(at, [entry("a")])
    await sessions.delete(key(sub="a"))
    assert await sessions.load(key(sub="a")) is None
    assert await sessions.list_subkeys(key()) == ["a/b", "ab"]
    assert await sessions.load(key()) == [entry("a")]


# Another working directory


async def test_an_alias_is_the_project_it_names(store: Store) -> None:
    plain = ClaudeSessionStore(store)
    for aliases in ({"-there": "-here"}, lambda project: project.replace("there", "here")):
        await plain.append(key(project="-here"), [entry("a")])
        await plain.append(key(project="-here", sub="x"), [entry("a")])
        there = ClaudeSessionStore(store, aliases=aliases)
        assert await there.load(key(project="-there")) == [entry("a")]
        assert await there.list_subkeys(key(project="-there")) == ["x"]
        assert len(await there.list_sessions("-there")) == 1
        assert len(await there.list_session_summaries("-there")) == 1
        assert await there.size(key(project="-there", sub="x")) == 1
        await there.append(key(project="-there"), [entry("a"), entry("b")])
        assert await plain.load(key(project="-here")) == [entry("a"), entry("b")]
        assert await plain.load(key(project="-there")) is None
        await there.delete(key(project="-there", sub="x"))
        assert await plain.list_subkeys(key(project="-here")) == []
        await there.delete(key(project="-there"))
        assert await plain.load(key(project="-here")) is None

"""Wrappers round any session store, ids for the SDK, and turns told again."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from claude_agent_sdk import InMemorySessionStore, SessionStore, SessionStoreEntry
from claude_agent_sdk._internal.session_store_validation import _store_implements
from claude_agent_sdk.testing import run_session_store_conformance

from holdfast import InvalidValue, Store
from holdfast.adapters.claude import (
    ClaudeSessionStore,
    PinnedSessionStore,
    ValidatingSessionStore,
    history,
    next_turn,
    session_uuid,
    turn,
)
from holdfast.stores.memory import MemoryStore

from .words import entry, key

parity = pytest.mark.parity

GARBAGE: list[Any] = [{"type": "user"}, None, ["type"], {"type": ""}, {"type": "x", "uuid": "a"}]
OPTIONAL = ("list_sessions", "list_session_summaries", "delete", "list_subkeys")
EXTRAS = ("size", "connect", "close")


class Spy(SessionStore):
    """A store with the two required methods alone, which keeps what it was given."""

    def __init__(self) -> None:
        self.appended: list[tuple[Any, Any]] = []
        self.loaded: list[Any] = []

    async def append(self, key: Any, entries: list[SessionStoreEntry]) -> None:
        self.appended.append((key, entries))

    async def load(self, key: Any) -> list[SessionStoreEntry] | None:
        self.loaded.append(key)
        return None


def bare() -> Any:
    return Spy()  # type: ignore[abstract]  # for the SDK such methods are missing


@parity("computeragent", 43)
async def test_without_validation_whatever_was_stored_is_loaded(store: Store) -> None:
    sessions = ClaudeSessionStore(store)
    await sessions.append(key(), GARBAGE)
    assert await sessions.load(key()) == GARBAGE


@parity("computeragent", 44)
async def test_with_validation_entries_alone_are_loaded_and_the_rest_is_counted(
    store: Store,
) -> None:
    sessions = ValidatingSessionStore(ClaudeSessionStore(store))
    assert await sessions.load(key()) is None
    await sessions.append(key(), GARBAGE)
    assert await sessions.load(key()) == [GARBAGE[0], GARBAGE[4]]
    assert sessions.dropped == 3
    await sessions.load(key())
    assert sessions.dropped == 6


@parity("computeragent", 44)
async def test_validation_passes_the_same_list_on() -> None:
    spy = bare()
    batch: list[Any] = [entry("a"), None]
    await ValidatingSessionStore(spy).append(key(), batch)
    assert spy.appended[0][1] is batch


def wrapped(inner: SessionStore) -> list[Any]:
    return [ValidatingSessionStore(inner), PinnedSessionStore(inner, "pinned")]


@parity("computeragent", 45)
def test_a_wrapper_has_what_its_store_has() -> None:
    for wrapper in wrapped(ClaudeSessionStore(MemoryStore())):
        for name in (*OPTIONAL, *EXTRAS):
            assert callable(getattr(wrapper, name))
        for name in OPTIONAL:
            assert _store_implements(wrapper, name)
    for wrapper in wrapped(InMemorySessionStore()):
        assert all(_store_implements(wrapper, name) for name in OPTIONAL)
        assert not hasattr(wrapper, "connect")
    for wrapper in wrapped(bare()):
        for name in (*OPTIONAL, *EXTRAS):
            assert not hasattr(wrapper, name)
            assert not _store_implements(wrapper, name)


@parity("computeragent", 45)
async def test_a_validating_wrapper_passes_the_sdks_suite() -> None:
    await run_session_store_conformance(
        lambda: ValidatingSessionStore(ClaudeSessionStore(MemoryStore()))
    )


@parity("computeragent", 45)
async def test_every_method_reaches_the_store(tmp_path: Any) -> None:
    inner = ClaudeSessionStore(f"sqlite:{tmp_path}/s.db")
    sessions: Any = ValidatingSessionStore(inner)
    await sessions.connect()
    await sessions.append(key(), [entry("a")])
    await sessions.append(key(sub="x"), [entry("a")])
    assert await sessions.size(key()) == 1
    assert await sessions.list_subkeys(key()) == ["x"]
    assert await sessions.list_sessions("p") == await inner.list_sessions("p")
    assert await sessions.list_session_summaries("p") == await inner.list_session_summaries("p")
    await sessions.delete(key())
    assert await inner.load(key()) is None
    await sessions.close()


@parity("computeragent", 46)
async def test_a_pinned_store_files_everything_under_one_id() -> None:
    spy = bare()
    pinned = PinnedSessionStore(spy, "mine")
    await pinned.append(key("other"), [entry("a")])
    await pinned.append(key("other", project="q", sub="x"), [entry("a")])
    await pinned.load(key("other", sub="y"))
    assert [at for at, _ in spy.appended] == [key("mine"), key("mine", project="q", sub="x")]
    assert spy.loaded == [key("mine", sub="y")]


@parity("computeragent", 46)
async def test_a_pinned_store_pins_the_optional_methods_too() -> None:
    inner = ClaudeSessionStore(MemoryStore())
    pinned: Any = PinnedSessionStore(inner, "mine")
    await pinned.append(key("a"), [entry("1")])
    await pinned.append(key("b"), [entry("2")])
    await pinned.append(key("b", sub="x"), [entry("3")])
    assert await inner.load(key("mine")) == [entry("1"), entry("2")]
    assert await pinned.size(key("c")) == 2
    assert await pinned.list_subkeys(key("c")) == ["x"]
    assert [item["session_id"] for item in await pinned.list_sessions("p")] == ["mine"]
    await pinned.delete(key("c"))
    assert await inner.load(key("mine")) is None


@parity("computeragent", 47)
def test_an_id_has_one_uuid() -> None:
    ids = ["", "a", "b", "sess_1", "日本", "78b5e434-5a8e-4bfc-857b-914ef99a8705"]
    made = [session_uuid(id) for id in ids]
    assert made == [session_uuid(id) for id in ids]
    assert len(set(made)) == len(ids)
    assert {uuid.UUID(id).version for id in made} == {5}
    namespace = uuid.UUID("f8d9cb1a-3e7e-4d8d-9aa4-1d3f8d7b6c2e")
    assert session_uuid("a") == str(uuid.uuid5(namespace, "a"))


# Turns told again


def said(role: Any, index: int, text: str) -> dict[str, Any]:
    made = turn(role, index, text, "2026-05-04T09:30:00Z")
    assert made is not None
    return made


@parity("computeragent", 48)
def test_turns_are_told_in_order_of_their_numbers() -> None:
    turns = [said("user" if n % 2 == 0 else "assistant", n, f"turn {n}") for n in range(12)]
    shuffled = random.Random(7).sample(turns, len(turns))
    told = history([{"type": "summary"}, *shuffled, None, {"type": "ca_user", "text": "no number"}])
    assert told is not None
    places = [told.index(f"turn {n}\n") if n < 11 else told.index("turn 11") for n in range(12)]
    assert places == sorted(places)
    assert "User: turn 0" in told
    assert "Assistant: turn 11" in told
    assert "no number" not in told
    assert history(turns) == told


@parity("computeragent", 48)
@pytest.mark.parametrize("nothing", [None, [], [None, "x"], [{"type": "user", "turnIndex": 1}]])
def test_nothing_to_tell_is_none(nothing: Any) -> None:
    assert history(nothing) is None


@parity("computeragent", 48)
def test_the_next_number_is_one_above_all() -> None:
    assert next_turn(None) == next_turn([]) == next_turn([{"type": "ca_user"}, None]) == 0
    assert next_turn([said("user", 4, "x"), said("user", 2, "y"), {"type": "ca_user"}]) == 5
    assert next_turn([{"turnIndex": "9"}, {"turnIndex": True}, said("user", 0, "x")]) == 1


@parity("computeragent", 48)
async def test_a_turn_that_is_written_again_is_the_same(store: Store) -> None:
    sessions = ClaudeSessionStore(store)
    first: Any = said("user", 0, "hello")
    later: Any = turn("user", 0, "hello", "2027-01-01T00:00:00Z")
    await sessions.append(key(), [first])
    await sessions.append(key(), [later])
    assert await sessions.size(key()) == 1
    other = [said("assistant", 0, "hello"), said("user", 1, "hello"), said("user", 0, "hello!")]
    assert len({item["uuid"] for item in [first, *other]}) == 4
    assert str(uuid.UUID(first["uuid"])) == first["uuid"]
    assert turn("user", 1, "", "2026-05-04T09:30:00Z") is None


def test_the_former_name_of_a_wrapped_store_still_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"ValidatingSessionStore\(store=…\)"):
        ValidatingSessionStore(inner=bare())
    with pytest.warns(DeprecationWarning, match=r"PinnedSessionStore\(store=…\)"):
        PinnedSessionStore(inner=bare(), session_id="mine")
    PinnedSessionStore(store=bare(), session_id="mine")
    with pytest.raises(InvalidValue, match="store is missing"):
        ValidatingSessionStore()
    with pytest.raises(InvalidValue, match="session_id is missing"):
        PinnedSessionStore(bare())

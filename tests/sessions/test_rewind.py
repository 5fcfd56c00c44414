"""Rewinding without an agent, on every store: rows, concurrent writers, search, audit, erasure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Event,
    InvalidValue,
    LogDamaged,
    NewEvent,
    PhaseError,
    SessionBusy,
    SessionNotFound,
    Sessions,
    Store,
    key,
)
from holdfast.log.conversation import conversation
from holdfast.log.state import fold
from holdfast.testing.samples import read_all

KEY = key("s")
CALL = {"text": "I look.", "calls": [{"id": "c", "name": "look", "arguments": {"order": "7"}}]}


async def put(store: Store, kind: str, data: Any, **more: Any) -> int:
    done = await store.append(KEY, [NewEvent.of(kind, data, **more)])
    return done.seqs[0]


async def talked(sessions: Sessions, *texts: str) -> list[int]:
    """A session with these messages, each with an answer; the number of each answer."""
    await sessions.create("s", user="ann")
    ends = []
    for text in texts:
        await put(sessions.store, "message.received", {"text": text})
        ends.append(await put(sessions.store, "message.completed", {"text": f"re: {text}"}))
    return ends


async def test_a_row_shows_the_conversation_that_is_left(sessions: Sessions) -> None:
    first, second = await talked(sessions, "one", "two")
    row = await sessions.rewind("s", first)
    assert (row.head, row.counts["messages"], row.first_message) == (second + 1, 2, "one")
    row = await sessions.rewind("s", 0)
    assert (row.counts["messages"], row.first_message, row.due) == (0, None, None)
    await put(sessions.store, "message.received", {"text": "three"})
    row = await sessions.rewind("s", second)
    assert (row.counts["messages"], row.first_message) == (4, None)
    await put(sessions.store, "message.received", {"text": "four"})
    last = await sessions.get("s")
    assert last is not None
    assert (last.counts["messages"], last.first_message) == (5, "four")
    assert (last.user, last.phase) == ("ann", "active")


async def test_a_rewind_that_names_no_actor_is_of_the_sessions_actor(store: Store) -> None:
    sessions = Sessions(store, actor="importer")
    await talked(sessions, "one")
    await sessions.rewind("s", 0)
    await sessions.rewind("s", 0, actor="ann")
    events = await read_all(store, KEY)
    assert [e.actor for e in events if e.kind == "thread.rewound"] == ["importer", "ann"]


async def test_rewinds_and_messages_at_the_same_time_agree(sessions: Sessions) -> None:
    ends = await talked(sessions, "one", "two", "three")

    async def say(n: int) -> None:
        await put(sessions.store, "message.received", {"text": f"more {n}"})

    await asyncio.gather(*(sessions.rewind("s", end) for end in ends), *map(say, range(6)))
    events = await read_all(sessions.store, KEY)
    assert len(events) == ends[-1] + 3 + 6
    kept = [e for e in conversation(events) if e.kind in ("message.received", "message.completed")]
    row = await sessions.get("s")
    assert row is not None
    assert (row.counts["messages"], row.first_message) == (len(kept), "one")


async def test_a_repeated_key_rewinds_once(sessions: Sessions) -> None:
    first, _ = await talked(sessions, "one", "two")
    await sessions.rewind("s", first, key="k")
    await put(sessions.store, "message.received", {"text": "three"})
    row = await sessions.rewind("s", first, key="k")
    assert row.counts["messages"] == 3


async def test_what_cannot_be_rewound_is_refused_and_nothing_is_written(sessions: Sessions) -> None:
    with pytest.raises(SessionNotFound):
        await sessions.rewind("s", 0)
    (end,) = await talked(sessions, "one")
    with pytest.raises(InvalidValue, match=f"to is {end + 1}, and the log ends at event {end}"):
        await sessions.rewind("s", end + 1)
    with pytest.raises(SessionNotFound):
        await sessions.rewind("s", 0, thread="side")
    opened = await put(sessions.store, "pending.opened", {"id": "i", "what": "question"})
    with pytest.raises(SessionBusy, match="settle the pending items first"):
        await sessions.rewind("s", 0)
    await put(sessions.store, "pending.settled", {"id": "i", "outcome": "answered"})
    await sessions.expire("s")
    with pytest.raises(PhaseError):
        await sessions.rewind("s", 0)
    assert len(await read_all(sessions.store, KEY)) == opened + 2


async def test_a_log_that_a_newer_version_wrote_is_not_rewound(sessions: Sessions) -> None:
    await talked(sessions, "one")
    seq = await put(sessions.store, "thread.rewound", {"to": 0, "how": "otherwise"}, v=2)
    assert fold(await read_all(sessions.store, KEY)).too_new == seq  # so it is not driven either
    with pytest.raises(LogDamaged, match="newer version"):
        await sessions.rewind("s", 1)


async def test_words_that_were_rewound_away_are_not_found(sessions: Sessions) -> None:
    first, _ = await talked(sessions, "a heron", "a pelican")
    await sessions.rewind("s", first)
    assert [hit.excerpt for hit in (await sessions.search("pelican", session="s")).hits] == []
    found = [hit.excerpt for hit in (await sessions.search("heron", session="s")).hits]
    assert found == ["re: a heron", "a heron"]


async def test_a_fork_still_finds_what_its_parent_rewound_away(sessions: Sessions) -> None:
    _, second = await talked(sessions, "a heron", "a pelican")
    first = NewEvent.of("thread.forked", {"parent": "main", "at": second})
    await sessions.store.fork(KEY, "side", at=second, first=first)
    await sessions.rewind("s", 0)
    found = [
        (hit.thread, hit.excerpt) for hit in (await sessions.search("pelican", session="s")).hits
    ]
    assert found == [("side", "re: a pelican"), ("side", "a pelican")]


async def test_the_audit_still_has_the_calls_that_were_rewound_away(sessions: Sessions) -> None:
    await sessions.create("s", user="ann")
    await put(sessions.store, "message.completed", CALL)
    await put(sessions.store, "tool.started", {"call": "c", "name": "look"})
    await put(sessions.store, "tool.finished", {"call": "c", "result": "found"}, id="done:c")
    await sessions.rewind("s", 0)
    (call,) = [call async for call in sessions.audit("s")]
    assert (call.call, call.outcome, call.result) == ("c", "ok", "found")


async def test_erasing_a_person_leaves_rewinds_and_no_copy_of_their_words(
    sessions: Sessions,
) -> None:
    store = sessions.store
    await sessions.create("s", user="ann")
    await put(store, "message.received", {"text": "ben's own words"}, actor="ben")
    first = await put(store, "message.completed", {"text": "yes"})
    await put(store, "message.received", {"text": "ann's"}, actor="ann")
    await sessions.rewind("s", first, actor="ben")
    await sessions.erase_person("ben", reason="asked")
    events = await read_all(store, KEY)
    assert "ben's own words" not in "".join(bytes(event.data).decode() for event in events)
    assert [e.seq for e in conversation(events)] == [1, 2, 3, 5]
    row = await sessions.get("s")
    assert row is not None
    assert "ben's own words" not in str(row)


async def test_no_rewind_has_a_copy_of_a_message(sessions: Sessions) -> None:
    (end,) = await talked(sessions, "canary")
    await sessions.rewind("s", 0)
    await put(sessions.store, "message.received", {"text": "other"})
    row = await sessions.rewind("s", end)
    assert row.first_message is None
    events: list[Event] = await read_all(sessions.store, KEY)
    assert [e.seq for e in events if b"canary" in bytes(e.data)] == [end - 1, end]
    assert events[-1].json()["first"] == ""

"""All that is stored of a person, given out and erased: UD-53."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from holdfast import Event, InvalidValue, NewEvent, Sessions, Store, key
from holdfast.testing.faults import Fail, FaultyStore
from holdfast.testing.samples import read_all

from .scene import SLACK, WEB, Clock, row, say

parity = pytest.mark.parity
SECRET = "ben's own words"


async def speak(store: Store, session: str, text: str, actor: str, thread: str = "main") -> None:
    await say(store, session, "message.received", {"text": text}, thread, actor=actor)


@pytest.fixture
async def office(sessions: Sessions) -> Sessions:
    """Ben has two sessions, one with threads and a fork; he also wrote in Ann's, in a thread and
    before a fork; and Cat has one that is none of his business."""
    store = sessions.store
    await sessions.create("b1", user="ben", actor="ben", surface=WEB, metadata={"name": SECRET})
    await speak(store, "b1", SECRET, "ben")
    await speak(store, "b1", "an answer", "agent")
    await speak(store, "b1", SECRET, "ben", "side")
    fork = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
    await store.fork(key("b1"), "fork", at=2, first=fork)
    await sessions.create("b2", user="ben")

    await sessions.create("shared", user="ann", actor="ann", surface=SLACK)
    await speak(store, "shared", "ann's words", "ann")
    await speak(store, "shared", SECRET, "ben")
    fork = NewEvent.of("thread.forked", {"parent": "main", "at": 4})
    await store.fork(key("shared"), "fork", at=4, first=fork)
    await speak(store, "shared", SECRET, "ben", "fork")
    await speak(store, "shared", SECRET, "ben", "side")
    await speak(store, "shared", "ann again", "ann", "side")

    await sessions.create("private", user="cat")
    await speak(store, "private", "cat's words", "cat")
    return sessions


async def everything(sessions: Sessions) -> dict[str, list[Event]]:
    """All events of all threads of all sessions."""
    found = {}
    async for session in sessions.walk():
        page = await sessions.find(session=session.session, limit=1000)
        for thread in page.items:
            found[f"{thread.session}/{thread.thread}"] = await read_all(sessions.store, thread.key)
    return found


async def texts(sessions: Sessions, thread: str) -> list[str]:
    events = (await everything(sessions))[thread]
    return [event.json()["text"] for event in events if "text" in event.json()]


async def of_ben(sessions: Sessions) -> list[str]:
    """Where anything of Ben's is."""
    events = await everything(sessions)
    return [at for at, found in events.items() if any(SECRET in str(e.json()) for e in found)]


async def test_a_person_is_given_all_that_is_theirs_and_nothing_else(office: Sessions) -> None:
    rows = []
    events: dict[str, list[int]] = {}
    async for record in office.export_person("ben"):
        assert record.own == (record.session in ("b1", "b2"))
        if record.event is None:
            assert record.row is not None
            rows.append(f"{record.session}/{record.thread}")
        else:
            events.setdefault(f"{record.session}/{record.thread}", []).append(record.event.seq)
    assert sorted(rows) == ["b1/fork", "b1/main", "b1/side", "b2/main"]
    assert events == {
        "b1/main": [1, 2, 3, 4],
        "b1/fork": [1, 2, 3],
        "b1/side": [1],
        "b2/main": [1],
        "shared/main": [4],
        "shared/fork": [4, 6],
        "shared/side": [1],
    }
    own = {record.session async for record in office.export_person("ben", shared=False)}
    assert own == {"b1", "b2"}
    assert [record async for record in office.export_person("nobody")] == []


async def test_an_export_may_be_left_in_the_middle(office: Sessions) -> None:
    async with aclosing(office.export_person("ben")) as records:
        async for record in records:
            if record.event is not None:
                break
    assert (await row(office, "b2")).user == "ben"


async def test_a_person_is_erased_everywhere_and_the_others_stay(office: Sessions) -> None:
    before = await everything(office)
    dry = await office.erase_person("ben", reason="asked to", dry_run=True)
    assert await everything(office) == before
    assert (dry.dry_run, dry.removed, dry.refused) == (True, {}, {})

    done = await office.erase_person("ben", reason="asked to")
    assert sorted(done.sessions) == ["b1", "b2"]
    assert done.events == {"shared": 3}
    assert (dry.sessions, dry.events) == (done.sessions, done.events)
    assert done.refused == {}
    assert (done.removed["logs"], done.removed["payloads"], done.removed["claims"]) == (4, 3, 1)

    assert await of_ben(office) == []
    for id in ("b1", "b2"):
        assert await office.get(id) is None
    assert (await office.find(user="ben")).items == []
    assert await texts(office, "shared/main") == ["ann's words"]
    assert await texts(office, "shared/side") == ["ann again"]
    kept = before["shared/main"]
    blanked = (await everything(office))["shared/main"]
    assert [(e.seq, e.id, e.kind, e.at) for e in blanked] == [
        (e.seq, e.id, e.kind, e.at) for e in kept
    ]
    assert blanked[3].json() == {"erased": "asked to"}
    assert await texts(office, "private/main") == ["cat's words"]
    again = await office.erase_person("ben", reason="asked to")
    assert (again.sessions, again.events, again.removed) == ([], {}, {})


async def test_without_the_shared_ones_only_own_sessions_go(office: Sessions) -> None:
    done = await office.erase_person("ben", reason="left", shared=False)
    assert (sorted(done.sessions), done.events) == (["b1", "b2"], {})
    assert sorted(await of_ben(office)) == ["shared/fork", "shared/main", "shared/side"]


async def test_what_is_held_is_refused_and_the_rest_goes_on(office: Sessions) -> None:
    await office.hold("b1", "case 17")
    await office.hold("shared", "case 18")
    for dry_run in (True, False):
        done = await office.erase_person("ben", reason="asked to", dry_run=dry_run)
        assert (done.sessions, done.events) == (["b2"], {})
        assert done.refused == {"b1": "held: case 17", "shared": "held: case 18"}
    assert SECRET in await texts(office, "b1/main")
    assert SECRET in await texts(office, "shared/side")
    await office.hold("shared", None)
    assert (await office.erase_person("ben", reason="asked to")).events == {"shared": 3}


async def test_words_in_a_fork_are_erased_also_when_its_parent_is_gone(office: Sessions) -> None:
    fork = NewEvent.of("thread.forked", {"parent": "side", "at": 1})
    await office.store.fork(key("shared", "side"), "orphan", at=1, first=fork)
    await office.store.delete(key("shared", "side"))
    assert await texts(office, "shared/orphan") == [SECRET]
    await office.erase_person("ben", reason="asked to")
    assert await of_ben(office) == []


async def test_the_row_shows_nothing_of_an_erased_person(sessions: Sessions) -> None:
    await sessions.create("shared", user="ann")
    await speak(sessions.store, "shared", SECRET, "ben")
    assert (await row(sessions, "shared")).first_message == SECRET
    await sessions.erase_person("ben", reason="asked to")
    assert SECRET not in str(await row(sessions, "shared"))
    assert (await row(sessions, "shared")).user == "ann"


async def test_an_erasure_that_failed_is_finished_by_the_next(
    office: Sessions, clock: Clock
) -> None:
    for method in ("delete", "erase"):
        faulty = FaultyStore(office.store, [Fail(method=method)])
        with pytest.raises(Exception, match="planned"):
            await Sessions(faulty, clock=clock).erase_person("ben", reason="asked to")
    await office.erase_person("ben", reason="asked to")
    assert await of_ben(office) == []


async def test_nobody_and_no_reason_are_refused(sessions: Sessions) -> None:
    await sessions.create("a", user="ann")
    for user, reason in (("", "asked to"), ("ann", "")):
        with pytest.raises(InvalidValue):
            await sessions.erase_person(user, reason=reason)
    with pytest.raises(InvalidValue):
        async for _ in sessions.export_person(""):
            pass
    assert await sessions.get("a") is not None


async def test_a_session_that_somebody_set_up_for_another_stays_theirs(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", actor="ben", surface=WEB)
    await speak(sessions.store, "a", SECRET, "ben")
    erased = await sessions.erase_person("ben", reason="asked")
    assert erased.events == {"a": 1}
    left = await row(sessions, "a")
    assert (left.user, left.ttl, len(left.surfaces)) == ("ann", sessions.ttl, 1)
    assert (await sessions.erase_person("ann", reason="asked")).sessions == ["a"]

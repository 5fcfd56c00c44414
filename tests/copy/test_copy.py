"""A copy between any two stores is the same session, shares again, and overwrites nothing."""

from __future__ import annotations

from holdfast import Key, Scope, Store, key
from holdfast.log.catalog import PendingQuery
from holdfast.stores.copy import copy_session, sessions_of

from .scene import (
    SHOP,
    SURFACE,
    answered,
    content,
    events_of,
    forked,
    new,
    rows_of,
    said,
    shop,
    sound,
    waiting,
)

MAIN = key(SHOP.session)


async def test_a_copy_is_the_same_session(source: Store, target: Store) -> None:
    await shop(source)
    before = await content(source)
    done = await copy_session(source, target, SHOP)
    assert done.status == "copied"
    assert {thread.thread: thread.status for thread in done.threads} == dict.fromkeys(
        before["rows"], "copied"
    )
    assert (done.blobs, done.claims, done.held) == (3, 2, ())
    assert await content(target) == before == await content(source)
    assert await sound(target)
    assert {row.log for row in (await rows_of(target)).values()}.isdisjoint(
        row.log for row in (await rows_of(source)).values()
    )


async def test_copying_again_changes_nothing(source: Store, target: Store) -> None:
    await shop(source)
    await copy_session(source, target, SHOP)
    rows = await rows_of(target)
    again = await copy_session(source, target, SHOP)
    assert again.status == "same"
    assert {thread.status for thread in again.threads} == {"same"}
    assert (again.blobs, again.claims) == (0, 0)
    assert await rows_of(target) == rows


async def test_forks_share_again(source: Store, target: Store) -> None:
    await shop(source)
    await copy_session(source, target, SHOP)
    await target.erase(MAIN, [4], reason="gone")
    for thread in ("what-if", "deeper"):
        events = await events_of(target, Key("main", SHOP.session, thread))
        assert events[3].json() == {"erased": "gone"}
    await target.delete(MAIN)
    assert len(await events_of(target, Key("main", SHOP.session, "deeper"))) == 7
    assert await sound(target)


async def test_forks_whose_parent_is_gone_are_the_same_and_share(
    source: Store, target: Store
) -> None:
    await shop(source)
    await source.delete(MAIN)
    before = await content(source)
    assert set(before["rows"]) == {"what-if", "deeper", "early", "side"}
    assert (await copy_session(source, target, SHOP)).status == "copied"
    assert await content(target) == before
    assert await sound(target)
    await target.erase(Key("main", SHOP.session, "what-if"), [2], reason="gone")
    early = await events_of(target, Key("main", SHOP.session, "early"))
    assert early[1].json() == {"erased": "gone"}


async def test_a_fork_that_does_not_say_where_it_left_is_the_same(
    source: Store, target: Store
) -> None:
    await source.append(MAIN, [said("a"), answered("b"), said("c"), answered("d")], create=True)
    await source.fork(MAIN, "foreign", at=3, first=new("x.begun"))
    await source.fork(MAIN, "liar", at=3, first=forked("main", 2))
    await source.fork(MAIN, "erased", at=2, first=forked("main", 2))
    await source.erase(Key("main", SHOP.session, "erased"), [3], reason="asked to")
    before = await content(source)
    await copy_session(source, target, SHOP)
    assert await content(target) == before
    await target.erase(MAIN, [2], reason="gone")
    for thread in ("foreign", "liar", "erased"):
        events = await events_of(target, Key("main", SHOP.session, thread))
        assert events[1].json() == {"erased": "gone"}


async def test_a_parent_that_was_begun_anew_is_not_shared(source: Store, target: Store) -> None:
    await shop(source)
    await source.delete(MAIN)
    await source.append(MAIN, [said(str(n)) for n in range(8)] + [answered("!")], create=True)
    before = await content(source)
    await copy_session(source, target, SHOP)
    assert await content(target) == before
    await target.erase(MAIN, [4], reason="gone")
    what_if = await events_of(target, Key("main", SHOP.session, "what-if"))
    assert "erased" not in what_if[3].json()


async def test_nothing_is_open_in_a_copy(source: Store, target: Store) -> None:
    await waiting(source)
    before = await content(source, Scope("main", "waits"))
    done = await copy_session(source, target, Scope("main", "waits"))
    assert done.threads[0].closed == 5
    assert await content(source, Scope("main", "waits")) == before
    assert (await target.pending(PendingQuery())).items == []
    assert await target.runnable("main", agents=["shop"]) == []
    events = await events_of(target, key("waits"))
    assert events[:7] == before["events"]["main"]
    assert [(event.id, event.kind) for event in events[7:11]] == [
        ("settle:p1", "pending.settled"),
        ("done:c1", "tool.finished"),
        ("done:c2", "tool.finished"),
        ("done:c3", "tool.finished"),
    ]
    assert events[7].json()["outcome"] == "abandoned"
    assert [e.json()["outcome"] for e in events[8:11]] == ["cancelled", "unknown", "cancelled"]
    assert (events[11].kind, events[11].run) == ("run.finished", "r1")
    row = (await rows_of(target, Scope("main", "waits")))["main"]
    assert (row.run, row.due, row.wake, row.pending) == ("interrupted", None, None, {})
    assert await sound(target)
    again = await copy_session(source, target, Scope("main", "waits"))
    assert again.status == "same"


async def test_a_question_without_an_answer_is_not_answered_twice(
    source: Store, target: Store
) -> None:
    await source.append(MAIN, [new("session.created", agent="shop"), said("Hello?")], create=True)
    assert await source.runnable("main", agents=["shop"]) == [MAIN]
    await copy_session(source, target, SHOP)
    assert await target.runnable("main", agents=["shop"]) == []
    await target.append(MAIN, [said("Still there?")])
    assert await target.runnable("main", agents=["shop"]) == [MAIN]


async def test_a_copy_that_lives_on_is_left_alone(source: Store, target: Store) -> None:
    await shop(source)
    await copy_session(source, target, SHOP)
    await target.append(MAIN, [said("more")])
    before = await content(target)
    assert (await copy_session(source, target, SHOP)).status == "same"
    assert await content(target) == before


async def test_what_differs_is_a_conflict_and_nothing_is_written(
    source: Store, target: Store
) -> None:
    await shop(source)
    await target.append(Key("main", SHOP.session, "side"), [said("mine")], create=True)
    before = await content(target)
    done = await copy_session(source, target, SHOP)
    assert done.status == "conflict"
    assert {thread.thread: thread.status for thread in done.threads} == {
        "main": "new",
        "what-if": "new",
        "deeper": "new",
        "early": "new",
        "side": "conflict",
    }
    assert await content(target) == before


async def test_a_source_that_went_on_is_a_conflict(source: Store, target: Store) -> None:
    await shop(source)
    await copy_session(source, target, SHOP)
    before = await content(target)
    await source.append(MAIN, [said("more"), answered("yes")])
    done = await copy_session(source, target, SHOP)
    assert done.status == "conflict"
    (main,) = [thread for thread in done.threads if thread.status == "conflict"]
    assert (main.thread, main.detail) == ("main", "the target has only the first 7 events")
    assert await content(target) == before


async def test_a_name_that_is_taken_is_a_conflict(source: Store, target: Store) -> None:
    await shop(source)
    other = Scope("main", "other")
    await target.claim("main", SURFACE, other)
    done = await copy_session(source, target, SHOP)
    assert (done.status, done.held) == ("conflict", (SURFACE,))
    assert await rows_of(target) == {}
    assert await target.claims(SHOP) == []
    assert await target.claims(other) == [SURFACE]


async def test_a_dry_run_writes_nothing(source: Store, target: Store) -> None:
    await shop(source)
    assert (await copy_session(source, target, SHOP, dry_run=True)).status == "new"
    assert (await rows_of(target), await target.claims(SHOP)) == ({}, [])
    await copy_session(source, target, SHOP)
    assert (await copy_session(source, target, SHOP, dry_run=True)).status == "same"


async def test_into_another_tenant(source: Store, target: Store) -> None:
    await shop(source)
    there = Scope("other", SHOP.session)
    done = await copy_session(source, target, SHOP, tenant="other")
    assert done.target == there
    assert await content(target, there) == await content(source)
    assert await rows_of(target) == {}
    assert await sound(target)


async def test_every_session_is_listed_once(source: Store) -> None:
    names = [f"s{n}" for n in range(503)]
    for name in names:
        await source.append(key(name), [answered("x")], create=True)
    await source.append(key("s0", tenant="other"), [answered("x")], create=True)
    assert sorted([s.session async for s in sessions_of(source, "main")]) == sorted(names)

"""A move takes everything as it is, leaves the source sealed, and can be gone on with or undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    InvalidValue,
    Key,
    LeaseHeld,
    Scope,
    SessionExists,
    SessionMoved,
    SessionNotFound,
    Store,
    StoreUnavailable,
    key,
)
from holdfast.log.catalog import PendingQuery
from holdfast.stores.copy import copy_session, undo_move
from holdfast.stores.memory import MemoryStore

from .scene import SHOP, SURFACE, answered, content, rows_of, said, shop, sound, waiting

MAIN = key(SHOP.session)
WAITS = Scope("main", "waits")


async def test_a_move_takes_everything_as_it_is(source: Store, target: Store) -> None:
    await shop(source)
    await waiting(source, SHOP.session + "-waits")
    scope = Scope("main", SHOP.session + "-waits")
    for moved in (SHOP, scope):
        before = await content(source, moved)
        assert (await copy_session(source, target, moved, move=True)).status == "moved"
        assert await content(target, moved) == before
    assert [item.id for item in (await target.pending(PendingQuery())).items] == ["p1"]
    assert await sound(target)
    assert await sound(source)


async def test_the_source_is_sealed_and_names_the_target(source: Store, target: Store) -> None:
    await shop(source)
    await copy_session(source, target, SHOP, move=True)
    info = target.info()
    for row in (await rows_of(source)).values():
        assert row.sealed is not None
        assert row.sealed.startswith(f"{info.kind}:")
        assert row.sealed.endswith(info.location)
        with pytest.raises(SessionMoved):
            await source.append(row.key, [said("late")])
        assert (await source.acquire(row.key, "next")).owner == "next"
    assert await source.runnable("main", agents=["shop"]) == []


async def test_a_move_that_is_done_can_be_repeated(source: Store, target: Store) -> None:
    await shop(source)
    await copy_session(source, target, SHOP, move=True)
    await target.append(MAIN, [said("here now")])
    before = await content(target)
    again = await copy_session(source, target, SHOP, move=True)
    assert again.status == "moved"
    assert {thread.status for thread in again.threads} == {"same"}
    assert await content(target) == before


async def test_a_moved_session_cannot_be_moved_elsewhere(source: Store, target: Store) -> None:
    await shop(source)
    await copy_session(source, target, SHOP, move=True)
    elsewhere = MemoryStore()
    with pytest.raises(SessionMoved):
        await copy_session(source, elsewhere, SHOP, move=True, tenant="other")
    with pytest.raises(SessionMoved):
        await undo_move(source, elsewhere, SHOP, tenant="other")
    assert await rows_of(elsewhere, Scope("other", SHOP.session)) == {}


async def test_what_somebody_drives_is_not_moved(source: Store, target: Store) -> None:
    await shop(source)
    lease = await source.acquire(Key("main", SHOP.session, "what-if"), "worker")
    before = await content(source)
    with pytest.raises(LeaseHeld):
        await copy_session(source, target, SHOP, move=True)
    assert await content(source) == before
    assert (await rows_of(target), await target.claims(SHOP)) == ({}, [])
    await source.release(lease)
    assert (await copy_session(source, target, SHOP, move=True)).status == "moved"


async def test_a_conflict_is_found_before_anything_is_sealed(source: Store, target: Store) -> None:
    await shop(source)
    await target.append(MAIN, [said("mine")], create=True)
    before = await content(source)
    assert (await copy_session(source, target, SHOP, move=True)).status == "conflict"
    assert await content(source) == before


async def test_a_copy_that_was_closed_is_not_the_session(source: Store, target: Store) -> None:
    await waiting(source)
    await copy_session(source, target, WAITS)
    before = await content(source, WAITS)
    done = await copy_session(source, target, WAITS, move=True)
    assert done.status == "conflict"
    assert done.threads[0].detail == "the target continues after event 7"
    assert await content(source, WAITS) == before


async def test_a_session_is_not_moved_onto_itself(source: Store) -> None:
    await shop(source)
    before = await content(source)
    assert (await copy_session(source, source, SHOP)).status == "same"
    with pytest.raises(InvalidValue):
        await copy_session(source, source, SHOP, move=True)
    assert await content(source) == before


async def test_a_move_into_another_tenant_of_the_same_store(source: Store) -> None:
    await shop(source)
    before = await content(source)
    done = await copy_session(source, source, SHOP, move=True, tenant="other")
    assert done.status == "moved"
    assert await content(source, Scope("other", SHOP.session)) == before
    sealed = (await rows_of(source))["main"].sealed
    assert sealed is not None
    assert sealed.endswith(" tenant other")


def fails_at(number: int, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, until its call of that number, which finds the store away."""
    left = number

    async def called(*args: Any, **rest: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreUnavailable(problem="away")
        return await method(*args, **rest)

    return called


@pytest.mark.parametrize("at", range(5))
async def test_a_move_that_failed_is_gone_on_with(
    source: Store, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop(source)
    before = await content(source)
    target = MemoryStore()
    with monkeypatch.context() as patched:
        patched.setattr(target, "restore", fails_at(at, target.restore))
        with pytest.raises(StoreUnavailable):
            await copy_session(source, target, SHOP, move=True)
    assert len(await rows_of(target)) == at
    with pytest.raises(SessionMoved):
        await source.append(MAIN, [said("late")])
    assert (await copy_session(source, target, SHOP, move=True)).status == "moved"
    assert await content(target) == before


@pytest.mark.parametrize("at", range(5))
async def test_a_move_that_failed_while_sealing_is_gone_on_with(
    target: Store, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemoryStore()
    await shop(source)
    before = await content(source)
    with monkeypatch.context() as patched:
        patched.setattr(source, "append", fails_at(at, source.append))
        with pytest.raises(StoreUnavailable):
            await copy_session(source, target, SHOP, move=True)
    assert sum(row.sealed is not None for row in (await rows_of(source)).values()) == at
    assert (await rows_of(target), await target.claims(SHOP)) == ({}, [])
    assert (await copy_session(source, target, SHOP, move=True)).status == "moved"
    assert await content(target) == before


async def test_a_thread_that_is_begun_meanwhile_comes_along(
    target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemoryStore()
    await shop(source)
    late = Key("main", SHOP.session, "late")
    acquire = source.acquire

    async def acquire_late(key: Key, owner: str, **rest: Any) -> Any:
        if await source.row(late) is None:
            await source.append(late, [answered("too late?")], create=True)
            await source.append(MAIN, [answered("and here")])
        return await acquire(key, owner, **rest)

    monkeypatch.setattr(source, "acquire", acquire_late)
    done = await copy_session(source, target, SHOP, move=True)
    assert done.status == "moved"
    assert {thread.status for thread in done.threads} == {"copied"}
    rows = await rows_of(target)
    assert "late" in rows
    assert rows["main"].head == 8
    assert all(row.sealed is not None for row in (await rows_of(source)).values())


async def test_a_failed_move_is_undone(source: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await shop(source)
    target = MemoryStore()
    with monkeypatch.context() as patched:
        patched.setattr(target, "restore", fails_at(1, target.restore))
        with pytest.raises(StoreUnavailable):
            await copy_session(source, target, SHOP, move=True)
    with pytest.raises(SessionExists):
        await undo_move(source, target, SHOP)
    await target.delete(SHOP)
    assert await undo_move(source, target, SHOP) == 5
    assert await undo_move(source, target, SHOP) == 0
    assert all(row.sealed is None for row in (await rows_of(source)).values())
    await source.append(MAIN, [said("goes on")])
    assert await source.claims(SHOP) == ["order:42", SURFACE]
    before = await content(source)
    assert (await copy_session(source, target, SHOP, move=True)).status == "moved"
    assert await content(target) == before
    assert await sound(source)


async def test_a_copy_of_a_moved_session_ends_before_the_move(source: Store, target: Store) -> None:
    await waiting(source)
    before = await content(source, WAITS)
    await copy_session(source, MemoryStore(), WAITS, move=True)
    done = await copy_session(source, target, WAITS)
    assert (done.status, done.threads[0].events, done.threads[0].closed) == ("copied", 7, 5)
    copied = await content(target, WAITS)
    assert copied["events"]["main"][:7] == before["events"]["main"]
    assert copied["rows"]["main"].sealed is None
    await target.append(key("waits"), [said("goes on")])


async def test_a_session_that_is_not_there_is_not_found(source: Store, target: Store) -> None:
    for work in (copy_session, undo_move):
        with pytest.raises(SessionNotFound):
            await work(source, target, Scope("main", "nobody"))
    with pytest.raises(InvalidValue):
        await copy_session(source, target, Scope("main", ""))
    with pytest.raises(InvalidValue):
        await copy_session(source, target, SHOP, tenant="")


async def test_a_move_back_says_that_the_sealed_session_is_in_the_way(
    source: Store, target: Store
) -> None:
    await shop(source)
    await copy_session(source, target, SHOP, move=True)
    back = await copy_session(target, source, SHOP, move=True)
    assert back.status == "conflict"
    details = [thread.detail for thread in back.threads if thread.status == "conflict"]
    assert details
    assert all(detail and detail.endswith("delete it there first") for detail in details)
    await source.delete(SHOP)
    assert (await copy_session(target, source, SHOP, move=True)).status == "moved"

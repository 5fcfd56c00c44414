"""The way back from a move: who may open what a move has sealed, and what the log says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import (
    Agent,
    Harness,
    InvalidValue,
    LeaseHeld,
    Scope,
    SessionExists,
    SessionMoved,
    SessionNotFound,
    Sessions,
    Store,
    connect,
    export_bundle,
    import_bundle,
    key,
)
from holdfast.bundle import unseal_session
from holdfast.models import Say, ScriptedModel
from holdfast.stores.copy import copy_session
from holdfast.stores.memory import MemoryStore
from tests.copy.scene import SHOP, content, events_of, rows_of, said, shop

from .scene import KINDS

WHY = "the disk was lost"


async def moved(store: Store) -> None:
    await shop(store)
    await export_bundle((store, SHOP), "local", purpose="move", move_to="a disk")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_lost_bundle_had_sealed_goes_on(kind: str, tmp_path: Path) -> None:
    async with connect(KINDS[kind](tmp_path)) as store:
        await moved(store)
        assert await unseal_session((store, SHOP), reason=WHY, actor="ann", force=True) == 5
        for row in (await rows_of(store)).values():
            assert row.sealed is None
            last = (await events_of(store, row.key))[-1]
            assert (last.kind, last.actor) == ("session.reopened", "ann")
            assert last.json() == {"reason": WHY}
            assert last.at > 0
        await store.append(key(SHOP.session), [said("goes on")])
        assert await unseal_session((store, SHOP), reason=WHY, force=True) == 0
        assert [damage async for damage in store.verify() if damage.problem != "claim"] == []


async def test_where_it_may_go_on_is_not_known_unless_somebody_says_so() -> None:
    store = MemoryStore()
    await moved(store)
    before = await content(store)
    for target in (None, MemoryStore()):  # a store that has nothing of it proves nothing
        with pytest.raises(SessionMoved) as refused:
            await unseal_session((store, SHOP), reason=WHY, target=target)
        assert refused.value.to == "a disk"
    assert await content(store) == before


async def test_what_is_in_the_store_it_was_moved_to_is_not_opened() -> None:
    store, target = MemoryStore(), MemoryStore()
    await shop(store)
    made = await export_bundle((store, SHOP), "local", purpose="move")
    there = Scope("main", "renamed")
    await import_bundle(target, made, session="renamed")
    before = await content(store)
    with pytest.raises(SessionExists):
        await unseal_session((store, SHOP), reason=WHY, target=target, there=there, force=True)
    assert await content(store) == before
    await target.delete(there)
    opened = await unseal_session((store, SHOP), reason=WHY, target=target, there=there, force=True)
    assert opened == 5


async def test_a_move_to_another_store_is_known_to_have_failed(tmp_path: Path) -> None:
    store = MemoryStore()
    await shop(store)
    async with connect(f"sqlite:{tmp_path}/s.db") as target:
        await copy_session(store, target, SHOP, move=True)
        with pytest.raises(SessionExists):
            await unseal_session((store, SHOP), reason=WHY, target=target)
        await target.delete(SHOP)
        with pytest.raises(SessionMoved):
            await unseal_session((store, SHOP), reason=WHY, target=MemoryStore())
        assert await unseal_session((store, SHOP), reason=WHY, target=target) == 5


async def test_the_store_itself_is_not_where_it_was_moved_to() -> None:
    store = MemoryStore()
    await moved(store)
    with pytest.raises(InvalidValue, match="moved from"):
        await unseal_session((store, SHOP), reason=WHY, target=store, force=True)


async def test_what_was_imported_to_be_read_stays_sealed() -> None:
    source, store = MemoryStore(), MemoryStore()
    await shop(source)
    await import_bundle(store, await export_bundle((source, SHOP)), purpose="read", session="r")
    for force in (False, True):
        with pytest.raises(InvalidValue, match="imported with purpose"):
            await unseal_session((store, Scope("main", "r")), reason=WHY, force=force)


async def test_all_are_opened_or_none_while_somebody_holds_one() -> None:
    store = MemoryStore()
    await moved(store)
    before = await content(store)
    await store.acquire(key(SHOP.session, "side"), "somebody")
    with pytest.raises(LeaseHeld):
        await unseal_session((store, SHOP), reason=WHY, force=True)
    assert await content(store) == before


async def test_it_needs_a_session_and_a_reason() -> None:
    store = MemoryStore()
    with pytest.raises(SessionNotFound):
        await unseal_session((store, SHOP), reason=WHY)
    await moved(store)
    with pytest.raises(InvalidValue):
        await unseal_session((store, SHOP), reason="", force=True)


async def test_an_expired_session_stays_expired() -> None:
    store = MemoryStore()
    await shop(store)
    await Sessions(store).expire(SHOP.session)
    await export_bundle((store, SHOP), "local", purpose="move")
    await unseal_session((store, SHOP), reason=WHY, force=True)
    row = (await rows_of(store))["main"]
    assert (row.phase, row.sealed) == ("expired", None)
    assert (await export_bundle((store, SHOP))).document.liveness == "closed"


async def test_a_surface_that_another_session_has_by_now_stays_there() -> None:
    store = MemoryStore()
    await moved(store)
    sessions = Sessions(store)
    await sessions.create("other", user="bob")
    await sessions.attach_surface("other", "slack", "C1", move=True)
    await unseal_session((store, SHOP), reason=WHY, force=True)
    assert (await rows_of(store))["main"].surfaces == {}
    assert (await rows_of(store, Scope("main", "other")))["main"].surfaces


async def test_it_can_be_moved_again_and_goes_on_there_once() -> None:
    store, target = MemoryStore(), MemoryStore()
    await moved(store)
    await unseal_session((store, SHOP), reason=WHY, force=True)
    await store.append(key(SHOP.session), [said("more")])
    made = await export_bundle((store, SHOP), "local", purpose="move")
    await import_bundle(target, made)
    assert (await events_of(target, key(SHOP.session)))[-1].json() == {"text": "more"}
    await target.append(key(SHOP.session), [said("here")])
    with pytest.raises(SessionMoved):
        await store.append(key(SHOP.session), [said("there")])


async def test_a_harness_goes_on_with_it() -> None:
    store = MemoryStore()
    agent = Agent("shop", instructions="Help.")
    model = ScriptedModel([Say("One."), Say("Two.")])
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("first")).text == "One."
        await export_bundle(session, "local", purpose="move")
        with pytest.raises(SessionMoved):
            await session.send("second")
        await unseal_session(session, reason=WHY, force=True)
        assert (await session.send("third")).text == "Two."

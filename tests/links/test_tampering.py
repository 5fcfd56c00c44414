"""Whoever changes what a store holds, past the store, is found out: `verify` names the log and the
first event that is not what it was, on every kind of store, whatever was done with the session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from holdfast import Parent, Scope, connect, key
from holdfast.stores.copy import copy_session

from .places import KINDS, Place, place_of
from .scene import (
    APPROVAL,
    Tamper,
    Told,
    begin,
    events_of,
    fork,
    note,
    row_of,
    settle,
    tamper,
    told,
)
from .tampering import blanked, changed, cut, kept_for, put_in, relinked, removed, swapped

pytestmark = pytest.mark.parity("user-demand", 65)

DENIED = {"id": "p1", "outcome": "denied", "reason": "as somebody would have it"}
Says = Callable[[int], list[Told]]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def place(kind: str, tmp_path: Path) -> AsyncGenerator[Place, None]:
    async with place_of(kind, tmp_path) as place:
        yield place


def broken(*seqs: int, thread: str = "main") -> list[Told]:
    return [("broken", thread, seq) for seq in seqs]


# What is done to a log that ends at a number, and what is said of it then
CASES: dict[str, tuple[Tamper, Says]] = {
    "actor": (lambda log: changed(log, APPROVAL, actor="bob"), lambda head: broken(APPROVAL)),
    "time": (
        lambda log: changed(log, APPROVAL, at=log.at(APPROVAL).event.at + 1),
        lambda head: broken(APPROVAL),
    ),
    "data": (
        lambda log: changed(log, APPROVAL, data=DENIED),
        lambda head: broken(APPROVAL),
    ),
    "first": (lambda log: changed(log, 1, actor="bob"), lambda head: broken(1)),
    "last": (lambda log: changed(log, log.head, actor="bob"), broken),
    "blank": (lambda log: blanked(log, 5, log.at(5).kept), lambda head: broken(5)),
    "removed": (lambda log: removed(log, 2), lambda head: broken(*range(2, head))),
    "swapped": (lambda log: swapped(log, 5, 6), lambda head: broken(5, 6, 7)),
    "put in": (
        lambda log: put_in(log, 6, None),
        lambda head: [("unlinked", "main", 6), *broken(*range(7, head + 2))],
    ),
    "put at the end": (
        lambda log: put_in(log, log.head + 1, None),
        lambda head: [("unlinked", "main", head + 1)],
    ),
    "put at the end with another's link": (
        lambda log: put_in(log, log.head + 1, log.at(log.head).kept),
        lambda head: broken(head + 1),
    ),
    "put at the end with a link that follows": (
        lambda log: put_in(log, log.head + 1, kept_for(log, log.head + 1)),
        lambda head: broken(head + 1),
    ),
    "cut off": (lambda log: cut(log, log.head - 1), lambda head: broken(head - 1)),
}

# In a folder the lines are all there is: a line that follows is as good as an append, and only the
# index, or a link that is kept elsewhere, knows of one that is gone.
WITHOUT_INDEX: dict[str, Says] = {
    "put at the end with a link that follows": lambda head: [],
    "cut off": lambda head: [],
}
WITH_INDEX: dict[str, Says] = {
    "removed": lambda head: [("torn", "main", head), *broken(*range(2, head))],
    "put at the end with a link that follows": lambda head: [],
    "cut off": lambda head: [("torn", "main", head)],
}


# Where the file kept its size, the index still knows what stood there.
SAME_SIZE = ("actor", "time")


def said_of(kind: str, head: int) -> dict[str, list[Told]]:
    other = {"file": WITH_INDEX, "file without index": WITHOUT_INDEX}.get(kind, {})
    said = {name: other.get(name, says)(head) for name, (_, says) in CASES.items()}
    return {name: some for name, some in said.items() if some}


@pytest.mark.parametrize("more", [0, 24], ids=["short", "long"])
async def test_what_was_tampered_with_is_named(kind: str, place: Place, more: int) -> None:
    async with place.opened() as store:
        begun = {name: await begin(store, key(name), more=more) for name in [*CASES, "sound"]}
        await settle(store)
        assert await told(store) == {}
    for name, (how, _) in CASES.items():
        await tamper(place, begun[name], how)
    async with place.opened() as store:
        said = said_of(kind, 7 + more)
        found = await told(store)
        for name in SAME_SIZE if kind == "file" else ():
            if found[name] == [("unreadable", "main", APPROVAL)]:
                found[name] = broken(APPROVAL)
        assert found == said
        assert await told(store, Scope("main", "data")) == {"data": said["data"]}
        assert await told(store, key("sound")) == {}


@pytest.mark.parametrize("kind", ["file", "file without index"])
async def test_a_link_that_is_kept_elsewhere_tells_of_an_end_that_was_cut_off(place: Place) -> None:
    async with place.opened() as store:
        log = await begin(store, key("s"))
        kept = await row_of(store, key("s"))
    await tamper(place, log, lambda log: cut(log, 6))
    async with place.opened() as store:
        await told(store)
        row = await row_of(store, key("s"))
        assert row.head == 6
        await store.append(key("s"), [note("another")])
        row = await row_of(store, key("s"))
        assert row.head == kept.head
        assert row.link != kept.link


async def test_a_repair_hides_nothing_that_was_tampered_with(place: Place) -> None:
    async with place.opened() as store:
        log = await begin(store, key("s"))
    await tamper(place, log, lambda log: changed(log, APPROVAL, data=DENIED))
    async with place.opened() as store:
        for _ in range(2):
            assert await told(store, repair=True) == {"s": broken(APPROVAL)}
        assert (await events_of(store, key("s")))[APPROVAL - 1].json() == DENIED


async def test_what_was_tampered_with_after_an_erasure_is_named(kind: str, place: Place) -> None:
    async with place.opened() as store:
        logs = {
            name: await begin(store, key(name)) for name in ("beside", "erased", "blank", "cut")
        }
        for name in logs:
            await store.erase(key(name), [2, 5], reason="asked to")
        await store.erase(key("cut"), [7], reason="asked to")
        assert await told(store) == {}
    await tamper(place, logs["beside"], lambda log: changed(log, APPROVAL, actor="somebody else"))
    await tamper(place, logs["erased"], lambda log: changed(log, 5, data={"n": 50}))
    await tamper(place, logs["blank"], lambda log: blanked(log, 6, b"e" + bytes(64)))
    await tamper(place, logs["cut"], lambda log: removed(log, 6))
    async with place.opened() as store:
        found = await told(store)
        (torn, *rest) = found.pop("cut")
        if kind == "file without index":  # its journal says what is to be erased, and it is again
            assert (await events_of(store, key("erased")))[4].json() == {"erased": "asked to"}
        else:
            assert found.pop("erased") == broken(5)
        assert found == {"beside": broken(APPROVAL), "blank": broken(6, 7)}
        assert ([torn] if torn[0] == "broken" else rest)[:1] == broken(6)


async def test_what_was_tampered_with_in_a_fork_is_named_where_it_is(place: Place) -> None:
    sessions = ("shared", "left at", "own", "first", "deeper", "end")
    async with place.opened() as store:
        logs = {}
        for name in sessions:
            logs[name, "main"] = await begin(store, key(name))
            logs[name, "fork"] = await fork(store, key(name), "fork", 5)
            logs[name, "deep"] = await fork(store, key(name, "fork"), "deep", 7)
        await settle(store)
        assert await told(store) == {}
    await tamper(
        place, logs["shared", "main"], lambda log: changed(log, APPROVAL, actor="somebody else")
    )
    await tamper(place, logs["left at", "main"], lambda log: changed(log, 5, actor="somebody else"))
    await tamper(place, logs["own", "fork"], lambda log: changed(log, 7, actor="somebody else"))
    await tamper(place, logs["first", "fork"], lambda log: changed(log, 6, actor="somebody else"))
    await tamper(place, logs["deeper", "deep"], lambda log: changed(log, 9, run="r9"))
    await tamper(place, logs["end", "deep"], lambda log: put_in(log, 11, None))
    async with place.opened() as store:
        assert await told(store) == {
            "shared": broken(APPROVAL),
            "left at": broken(5),
            "own": broken(7, thread="fork"),
            "first": broken(6, thread="fork"),
            "deeper": broken(9, thread="deep"),
            "end": [("unlinked", "deep", 11)],
        }


async def test_what_was_tampered_with_in_a_copy_is_named(place: Place) -> None:
    async with connect("memory:") as source, place.opened() as store:
        await begin(source, key("copied"))
        await fork(source, key("copied"), "fork", 5)
        await copy_session(source, store, Scope("main", "copied"))
        await store.restore(key("restored"), source.read(key("copied")))
        own = source.read(key("copied", "fork"), after=5)
        await store.restore(key("restored", "fork"), own, parent=Parent("main", 5))
        assert await told(store) == {}
        logs = {
            name: (await row_of(store, name)).log
            for session in ("copied", "restored")
            for name in (key(session), key(session, "fork"))
        }
    await tamper(place, logs[key("copied")], lambda log: changed(log, 2, cause="another"))
    await tamper(place, logs[key("copied", "fork")], lambda log: swapped(log, 6, 7))
    await tamper(place, logs[key("restored")], lambda log: removed(log, 6))
    await tamper(
        place, logs[key("restored", "fork")], lambda log: changed(log, 6, actor="somebody else")
    )
    async with place.opened() as store:
        found = await told(store)
        assert sorted(found["copied"]) == [*broken(6, 7, 8, thread="fork"), *broken(2)]
        without = [one for one in found["restored"] if one[0] != "torn"]
        assert sorted(without) == [*broken(6, thread="fork"), *broken(6)]


async def test_links_that_were_made_anew_are_found_by_forks_and_by_what_is_kept_elsewhere(
    place: Place,
) -> None:
    async with connect("memory:") as source, place.opened() as store:
        logs = [await begin(store, key("forked"))]
        await fork(store, key("forked"), "fork", 5)
        await begin(source, key("restored"))
        await fork(source, key("restored"), "fork", 5)
        await copy_session(source, store, Scope("main", "restored"))
        logs.append((await row_of(store, key("restored"))).log)
        kept = await row_of(store, key("forked"))
        await settle(store)
        assert await told(store) == {}
    for log in logs:
        await tamper(
            place,
            log,
            lambda log: relinked(changed(log, APPROVAL, actor="somebody quite different from ann")),
        )
    async with place.opened() as store:
        assert await told(store) == dict.fromkeys(("forked", "restored"), broken(6, thread="fork"))
        row = await row_of(store, key("forked"))
        assert (row.head, row.link != kept.link) == (kept.head, True)


async def test_what_was_tampered_with_of_a_deleted_parent_is_named_for_the_fork(
    place: Place,
) -> None:
    sessions = ("shared", "removed", "own", "sound")
    async with place.opened() as store:
        logs: dict[tuple[str, str], str] = {}
        for name in sessions:
            logs[name, "main"] = await begin(store, key(name))
            logs[name, "fork"] = await fork(store, key(name), "fork", 6)
            await store.delete(key(name))
        await settle(store)
        assert await told(store) == {}
    await tamper(
        place, logs["shared", "main"], lambda log: changed(log, APPROVAL, actor="somebody else")
    )
    await tamper(place, logs["removed", "main"], lambda log: swapped(log, 2, 3))
    await tamper(place, logs["own", "fork"], lambda log: changed(log, 8, actor="somebody else"))
    async with place.opened() as store:
        assert await told(store) == {
            "shared": broken(APPROVAL, thread="fork"),
            "removed": broken(2, 3, 4, thread="fork"),
            "own": broken(8, thread="fork"),
        }

"""Export, import, export gives the same bytes, for any session and from any store into any other;
an import appends nothing, and what it was made of stands beside it."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from itertools import count, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from holdfast import Scope, Store, connect, export_bundle, import_bundle, key, validate_bundle
from holdfast.bundle import Bundle
from holdfast.stores.memory import MemoryStore
from tests.copy.scene import SHOP, content, shop, sound

from .scene import KINDS, OURS, Plan, changed, plans, play


def place(tmp_path: Path, kind: str) -> str:
    (tmp_path / kind).mkdir(exist_ok=True)
    return KINDS[kind](tmp_path / kind)


def same(one: str, other: str) -> bool:
    return Path(one).read_bytes() == Path(other).read_bytes()


async def bundle(store: Store, scope: Scope = OURS) -> Bundle:
    return await export_bundle((store, scope), "local", purpose="move")


# Every store gives the same bytes for the same session, and takes the same bytes: so it does for
# every pair of them.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parity("harn-bundle", 32, 102, 112)
@pytest.mark.parity("user-demand", 48, 55, 56)
def test_any_session_goes_through_any_store_unchanged(kind: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(_entered(connect(place(tmp_path, kind))))
        examples = count()

        @settings(max_examples=settings().max_examples if kind == "memory" else 10)
        @given(plans)
        def law(plan: Plan) -> None:
            scope = Scope(f"tenant-{next(examples)}", "s")
            runner.run(_through(store, plan, scope))

        try:
            law()
        finally:
            runner.run(store.aclose())


async def _entered(opening: Any) -> Store:
    store: Store = await opening.__aenter__()
    return store


async def _through(store: Store, plan: Plan, scope: Scope) -> None:
    source = MemoryStore()
    await play(source, plan, scope)
    before = await content(source, scope)
    made = await bundle(source, scope)
    written = made.to_json()
    assert (await bundle(source, scope)).to_json() == written
    done = await import_bundle(store, written)
    assert done.fresh
    assert done.held == ()
    after = await content(store, scope)
    assert after["events"] == {
        name: [event for event in events if event.kind != "session.moved"]
        for name, events in before["events"].items()
    }
    assert after["blobs"] == before["blobs"]
    assert set(after["claims"]) - set(before["claims"]) == {f"bundle:{made.id}"}
    assert (await bundle(store, scope)).to_json() == written


async def test_a_session_goes_from_every_store_into_every_other_unchanged(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        stores = {
            kind: await stack.enter_async_context(connect(place(tmp_path, kind))) for kind in KINDS
        }
        source = MemoryStore()
        await shop(source)
        first = (await export_bundle((source, SHOP), "local")).to_json()
        for one, other in permutations(stores.values(), 2):
            await import_bundle(one, first)
            again = (await export_bundle((one, SHOP), "local")).to_json()
            await import_bundle(other, again)
            last = (await export_bundle((other, SHOP), "local")).to_json()
            assert first == again == last
            await one.delete(SHOP)
            await other.delete(SHOP)


@pytest.mark.parity("user-demand", 56)
async def test_an_archive_goes_from_store_to_store_unchanged(tmp_path: Path) -> None:
    async with connect("memory:") as one, connect(f"sqlite:{tmp_path}/two.db") as two:
        await shop(one)
        first = await export_bundle((one, SHOP), "local", to=tmp_path / "one.zip")
        done = await import_bundle(two, tmp_path / "one.zip")
        assert (done.fresh, done.events, done.blobs) == (True, 14, 3)
        second = await export_bundle((two, SHOP), "local", to=tmp_path / "two.zip")
        assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
        assert (first.bundle_id, first.form) == (second.bundle_id, "archive")
        assert await sound(two)
        left = [name for name in os.listdir(tmp_path) if not name.startswith("two.db")]
        assert sorted(left) == ["one.zip", "two.zip"]


async def test_both_forms_are_the_same_bundle(tmp_path: Path) -> None:
    async with connect("memory:") as store:
        await shop(store)
        held = await export_bundle((store, SHOP), "local")
        for name in ("a.json", "a.zip"):
            written = await export_bundle((store, SHOP), "local", to=tmp_path / name)
            read = await validate_bundle(tmp_path / name)
            assert written.bundle_id == read.id == held.id
            assert await asyncio.to_thread(read.to_json) == held.to_json()
            assert read.document == held.document
            again = await read.save(tmp_path / f"again-{name}")
            assert again.size == written.size
            assert same(again.path, written.path)


async def test_an_import_is_the_same_session_and_shares_again() -> None:
    async with connect("memory:") as one, connect("memory:") as two:
        await shop(one)
        made = await export_bundle((one, SHOP), "local")
        await import_bundle(two, made)
        before, after = await content(one), await content(two)
        assert after["claims"] == [f"bundle:{made.id}", *before["claims"]]
        assert {**after, "claims": ()} == {**before, "claims": ()}
        await two.erase(key(SHOP.session), [4], reason="gone")
        for thread in ("what-if", "deeper"):
            events = [event async for event in two.read(key(SHOP.session, thread))]
            assert events[3].json() == {"erased": "gone"}


async def test_forks_whose_parent_is_gone_are_the_same_and_share() -> None:
    async with connect("memory:") as one, connect("memory:") as two:
        await shop(one)
        await one.delete(key(SHOP.session))
        made = await export_bundle((one, SHOP), "local")
        await import_bundle(two, made)
        before, after = await content(one), await content(two)
        assert {**after, "claims": ()} == {**before, "claims": ()}
        assert (await export_bundle((two, SHOP), "local")).to_json() == made.to_json()
        assert await sound(two)
        await two.erase(key(SHOP.session, "what-if"), [2], reason="gone")
        early = [event async for event in two.read(key(SHOP.session, "early"))]
        assert early[1].json() == {"erased": "gone"}


async def test_under_another_id_all_is_the_same_but_the_id() -> None:
    async with connect("memory:") as one, connect("memory:") as two:
        await shop(one)
        made = await export_bundle((one, SHOP), "local")
        done = await import_bundle(two, made, session="other", tenant="acme")
        assert done.scope == Scope("acme", "other")
        again = await export_bundle((two, done.scope), "local")
        mapped = {**again.raw, "bundle_id": made.id}
        for part in ("session", "source"):
            mapped[part] = {**mapped[part], "tenant": "main", "session": SHOP.session}
        assert mapped == made.raw
        assert again.id != made.id
        assert [again.parts.open(name).__enter__().read() for name in again.parts.names()] == [
            made.parts.open(name).__enter__().read() for name in made.parts.names()
        ]
        rows = {**(await content(one))["rows"]}
        assert (await content(two, done.scope))["rows"] == {
            name: replace(row, session="other") for name, row in rows.items()
        }


@pytest.mark.parity("user-demand", 48)
@pytest.mark.parity("harn-bundle", 70)
async def test_fields_that_this_version_does_not_know_are_kept() -> None:
    async with connect("memory:") as store:
        await shop(store)
        data = (await export_bundle((store, SHOP), "local")).to_json()

    def more(raw: dict[str, Any]) -> None:
        raw["later"] = {"a": [1, {"b": None}]}
        raw["threads"][0]["later"] = 1.5
        raw["source"]["later"] = "x"

    data = changed(data, more)
    read = await validate_bundle(data)
    assert read.raw["later"] == {"a": [1, {"b": None}]}
    assert read.raw["threads"][0]["later"] == 1.5
    again = await validate_bundle(read.to_json())
    assert (again.raw, again.id) == (read.raw, read.id)
    async with connect("memory:") as store:
        assert (await import_bundle(store, read)).fresh

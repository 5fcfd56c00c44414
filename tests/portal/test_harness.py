"""A harness on a store that other event loops and threads use too, and on one behind a vault."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import CaughtUp, NewEvent, Vault, connect, key, shared_store, sync
from holdfast.store import Acquire
from holdfast.testing.samples import read_all
from tests.harness.kernel.scene import helper, only, serve
from tests.harness.kernel.test_run_start import ADDING, TURN, add

KEY = key("s")
SECRET = "xyzzy"


def url_in(kind: str, folder: Path) -> str:
    return "memory:" if kind == "memory" else f"{kind}:{folder}/x.db"


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_harness_serves_a_shared_store(
    kind: str, encrypted: bool, awaited: bool, tmp_path: Path
) -> None:
    vault = Vault([Vault.new_key("first")]) if encrypted else None
    url = url_in(kind, tmp_path)
    handle = shared_store(url, vault=vault)
    if awaited:
        await handle.connect()
    async with serve(helper(tools=[add]), *ADDING, store=handle) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "three"
        assert (await session.send("again")).text == "three"
        async with shared_store(url, vault=vault) as other:
            reader = sync.Store(other)
            events = await asyncio.to_thread(lambda: [*reader.read(KEY)])
            await asyncio.to_thread(reader.close)
        assert only(events, "run.finished") != []
        assert [e.seq for e in events] == [*range(1, len(events) + 1)]
    await handle.aclose()


async def test_two_harnesses_on_two_loops_share_a_store(tmp_path: Path) -> None:
    url = url_in("sqlite", tmp_path)
    async with shared_store(url) as store:

        async def sends(session: str) -> list[str]:
            async with (
                shared_store(url) as other,
                serve(helper(), "hi", store=other) as harness,
            ):
                one = await harness.get_or_create(session)
                for text in ("one", "two"):
                    assert (await one.send(text)).text == "hi"
            return [e.kind for e in await read_all(store, key(session))][-5:]

        kinds = await asyncio.gather(
            sends("here"), asyncio.to_thread(lambda: asyncio.run(sends("there")))
        )
        assert [*kinds] == [TURN, TURN]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
async def test_a_vault_is_used_from_other_loops(kind: str, tmp_path: Path) -> None:
    vault = Vault([Vault.new_key("first")])
    async with connect(url_in(kind, tmp_path), vault=vault, portal=True) as store:
        said = NewEvent.of("message.received", {"text": SECRET})

        async def elsewhere() -> Any:
            await store.append(KEY, [said], create=True)
            ref = await store.put_blob(KEY.scope, SECRET.encode())
            assert await store.get_blob(KEY.scope, ref) == SECRET.encode()
            again = NewEvent.of("message.received", {"text": SECRET})
            lease = (await store.append(KEY, [again], acquire=Acquire("driver"))).lease
            assert lease is not None
            await store.put_draft(KEY, "m", 0, SECRET, fence=lease)
            assert [draft.text for draft in await store.drafts(KEY)] == [SECRET]
            await store.erase(KEY, [1], reason=SECRET, fence=lease)
            async for item in store.follow(KEY):
                if isinstance(item, CaughtUp):
                    return item.head
            return None

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == 2
        assert [e.json() for e in await read_all(store)] == [{"erased": SECRET}, {"text": SECRET}]
        assert [damage async for damage in store.verify()] == []

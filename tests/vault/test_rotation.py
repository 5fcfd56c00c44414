"""Master keys change while everybody works: what was written stays readable, what is written goes
under new keys, and after a reseal the old master key is in nobody's way and of no use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from holdfast import Key, KeyMissing, NewEvent, Scope, Snapshot, Store, StoreUnavailable, Vault, key
from holdfast.stores.memory import MemoryStore
from holdfast.stores.vault import key_rings
from holdfast.stores.vault.keys import Master
from holdfast.stores.vault.store import VaultStore
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Fail, Stall

from .hands import KINDS, Hands, all_of, hands_on, readable

pytestmark = pytest.mark.parity("user-demand", 64)

LOG = key("s")
OLD, NEW = Vault.new_key("old"), Vault.new_key("new")
BEFORE, BOTH, AFTER = Vault([OLD]), Vault([NEW, OLD]), Vault([NEW])


@pytest.fixture(params=KINDS)
async def hands(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Hands, None]:
    async with hands_on(request.param, tmp_path) as hands:
        yield hands


def note(n: object) -> NewEvent:
    return NewEvent.of("note.made", {"n": n})


async def notes(store: Store, name: Key = LOG, **bounds: Any) -> list[Any]:
    return [event.json()["n"] async for event in store.read(name, **bounds)]


async def masters(store: VaultStore) -> list[tuple[str, str]]:
    """By which key each data key is encrypted now, and under which it was made."""
    return sorted((key.master, key.made) for key in await store.data_keys())


async def resealed(store: VaultStore) -> dict[str, int]:
    """How many data keys of each tenant a reseal changed, leaving none."""
    done = await store.reseal()
    assert not any(tenant.left for tenant in done)
    return {tenant.tenant: tenant.changed for tenant in done}


# Rotation


async def test_what_old_keys_encrypted_is_read_and_new_data_go_under_a_new_key(
    hands: Hands,
) -> None:
    async with hands.behind(BEFORE) as store:
        await store.append(key("s"), [note(1)], create=True)
    async with hands.behind(BOTH) as store:
        assert await notes(store) == [1]
        await store.append(key("s"), [note(2)])
        assert await notes(store) == [1, 2]
        assert await masters(store) == [("new", "new"), ("old", "old")]
    async with hands.behind(AFTER) as store:
        with pytest.raises(KeyMissing, match="'old'") as raised:
            await notes(store)
        assert (raised.value.key, raised.value.tenant) == ("old", "main")
        assert await notes(store, after=1) == [2]
    async with hands.behind(BEFORE) as store:
        assert await notes(store, limit=1) == [1]
        with pytest.raises(KeyMissing, match="'new'"):
            await notes(store, after=1)


async def test_after_a_reseal_the_old_key_is_not_needed_for_anything(hands: Hands) -> None:
    started = NewEvent.of("session.created", {"title": "before"}, id="first")
    async with hands.behind(BEFORE) as store:
        await store.append(key("s"), [started, note(1)], create=True)
        row = await store.row(key("s"))
        assert row is not None
        lease = await store.acquire(key("s"), "me")
        await store.put_draft(key("s"), "m", 0, "a draft", fence=lease)
        snapshot = Snapshot(log=row.log, seq=1, version="v1", state=Raw(b"[1]"))
        await store.save_snapshot(key("s"), snapshot, fence=lease)
        blob = await store.put_blob(Scope("main", "s"), b"a blob")
        await store.fork(key("s"), "side", at=1, first=note("fork"))
    async with hands.behind(BOTH) as store:
        assert await resealed(store) == {"main": 1}
        assert await resealed(store) == {"main": 0}
        assert await masters(store) == [("new", "new"), ("new", "old")]
    async with hands.behind(AFTER) as store:
        assert await notes(store, after=1) == [1]
        assert await notes(store, key("s", "side"), after=1) == ["fork"]
        row = await store.row(key("s"))
        assert row is not None
        assert row.title == "before"
        assert [draft.text for draft in await store.drafts(key("s"))] == ["a draft"]
        assert await store.load_snapshot(key("s"), "v1") == snapshot
        assert await store.get_blob(Scope("main", "s"), blob) == b"a blob"
        again = await store.append(key("s"), [started, note(2)])
        assert (again.seqs, again.fresh) == ((1, 3), 1)
        assert [damage async for damage in store.verify()] == []
        assert await resealed(store) == {"main": 0}
    async with hands.under() as under:
        claims = await under.claims(Scope("main", "holdfast.vault"))
        assert not [claim for claim in claims if claim.startswith("vault:old:")]


@pytest.mark.parametrize("hands", ["sqlite", "file"], indirect=True)
async def test_after_a_purge_nothing_is_left_that_the_old_key_decrypts(hands: Hands) -> None:
    async with hands.behind(BEFORE) as store:
        await store.append(key("s"), [note(1)], create=True)
    async with hands.behind(BOTH) as store:
        await store.reseal()
        await store.purge()
    paths = [path for path in hands.folder.rglob("*") if path.is_file()]
    assert not [path.name for path in paths if b"vault:old:" in path.read_bytes()]
    for path in hands.folder.rglob("index.db*"):
        path.unlink()  # an index can be thrown away
    async with hands.behind(AFTER) as store:
        assert await notes(store) == [1]


async def test_tenants_have_keys_of_their_own(hands: Hands) -> None:
    own, acme = Vault.new_key("own"), Key("acme", "s", "main")
    vault = Vault([OLD], tenants={"acme": [own]})
    async with hands.behind(vault) as store:
        for name in (acme, key("s")):
            await store.append(name, [note(name.tenant)], create=True)
        assert await masters(store) == [("old", "old"), ("own", "own")]
    async with hands.behind(BEFORE) as store:
        assert await notes(store) == ["main"]
        with pytest.raises(KeyMissing, match="'own'"):
            await notes(store, acme)
        left = {done.tenant: done.left for done in await store.reseal()}
        assert left == {"acme": ("own",), "main": ()}
        assert await masters(store) == [("old", "old"), ("own", "own")]
    changed = Vault([NEW, OLD], tenants={"acme": [Vault.new_key("second"), own]})
    async with hands.behind(changed) as store:
        assert await resealed(store) == {"acme": 1, "main": 1}
        assert [await notes(store, name) for name in (acme, key("s"))] == [["acme"], ["main"]]


async def test_a_tenant_that_nobody_wrote_to_needs_no_key(hands: Hands) -> None:
    async with hands.behind(BEFORE) as store:
        assert await store.row(key("s")) is None
        assert await resealed(store) == {}
        assert await store.data_keys() == []


# At once


async def test_two_that_make_the_first_data_key_at_once_read_each_other(hands: Hands) -> None:
    stall = Stall(method="claim", call=2)  # the first says which tenant it is
    async with hands.under() as one, hands.under() as two:
        slow = VaultStore(FaultyStore(one, [stall]), BEFORE)
        fast = VaultStore(two, BEFORE)
        begun = asyncio.create_task(slow.append(key("slow"), [note(1)], create=True))
        await stall.reached.wait()
        await fast.append(key("fast"), [note(1)], create=True)
        stall.go.set()
        await begun
        for store in (slow, fast, VaultStore(two, BEFORE)):
            await store.append(key("slow"), [note("more")])
            assert {*await notes(store, key("slow")), *await notes(store, key("fast"))} == {
                1,
                "more",
            }
        assert len(await fast.data_keys()) == 2


async def test_a_reseal_disturbs_nobody_who_appends_and_reads(hands: Hands) -> None:
    over = asyncio.Event()

    async def work(store: VaultStore, name: Key) -> int:
        n = 0
        while not over.is_set() or n < 5:
            await store.append(name, [note(n)], create=True)
            n += 1
            assert await notes(store, name) == list(range(n))
        await store.append(name, [note(n)])
        return n + 1

    async def reseal(store: VaultStore) -> None:
        try:
            for name in ("late", "later"):
                await store.append(key(name), [note(name)], create=True)
                await store.reseal()
        finally:
            over.set()

    async with hands.under() as one, hands.under() as two:
        early = VaultStore(one, BEFORE)
        await early.append(key("early"), [note(1)], create=True)
        counts = await asyncio.gather(
            work(VaultStore(one, BEFORE), key("a")),  # it does not know the new key
            work(VaultStore(one, BOTH), key("b")),
            work(VaultStore(two, BOTH), key("c")),
            reseal(VaultStore(two, BOTH)),
        )
        await VaultStore(two, BOTH).reseal()
    async with hands.behind(AFTER) as store:
        for name, count in zip("abc", counts, strict=False):
            assert await notes(store, key(name)) == list(range(count or 0))
        assert await notes(store, key("early")) == [1]


# Cut short


async def two_tenants() -> tuple[MemoryStore, list[Key]]:
    """Two tenants, one of which has two data keys under the old master key."""
    inner, names = MemoryStore(), [Key(tenant, "s", "main") for tenant in ("acme", "main")]
    for name in names:
        await VaultStore(inner, BEFORE).append(name, [note(1)], create=True)
    stall = Stall(method="claim", call=2)
    slow = VaultStore(FaultyStore(inner, [stall]), BEFORE)
    fresh = Key("fresh", "s", "main")
    begun = asyncio.create_task(slow.append(fresh, [note(1)], create=True))
    await stall.reached.wait()
    await VaultStore(inner, BEFORE).append(Key("fresh", "t", "main"), [note(2)], create=True)
    stall.go.set()
    await begun
    return inner, [*names, fresh, Key("fresh", "t", "main")]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["claim", "unclaim", "claims"])
@pytest.mark.parametrize("name", ["a", "z"], ids=["earlier name", "later name"])
async def test_a_reseal_that_was_cut_loses_nothing_and_is_finished_by_another(
    name: str, method: str, after: bool
) -> None:
    first = Vault.new_key(name)
    both, only = Vault([first, OLD]), Vault([first])
    for call in range(1, 30):
        inner, logs = await two_tenants()
        faulty = FaultyStore(inner, [Fail(method=method, call=call, after=after)])
        with suppress(StoreUnavailable):
            await VaultStore(faulty, both).reseal()
        if faulty.calls[method] < call:
            break
        for log in logs:
            assert len(await notes(VaultStore(inner, both), log)) == 1
        await VaultStore(inner, both).reseal()
        store = VaultStore(inner, only)
        for log in logs:
            assert len(await notes(store, log)) == 1
            await store.append(log, [note(3)])
        assert {key.master for key in await store.data_keys()} == {name}, (method, call)
    else:
        pytest.fail("it never came to an end")


async def test_two_reseals_at_once_leave_nothing_under_an_old_key_either() -> None:
    inner, logs = await two_tenants()
    stall = Stall(method="claim", call=1)
    slow = VaultStore(FaultyStore(inner, [stall]), BOTH)
    begun = asyncio.create_task(slow.reseal())
    await stall.reached.wait()
    await VaultStore(inner, BOTH).reseal()
    stall.go.set()
    await begun
    next_one = Vault.new_key("next")
    await VaultStore(inner, Vault([next_one, NEW])).reseal()
    store = VaultStore(inner, Vault([next_one]))
    assert {key.master for key in await store.data_keys()} == {"next"}
    for log in logs:
        assert len(await notes(store, log)) == 1


# A master key that others know


async def test_who_has_an_old_master_key_cannot_choose_the_key_of_what_is_written() -> None:
    inner = MemoryStore()
    await VaultStore(inner, BEFORE).append(key("s"), [note(1)], create=True)
    (old,) = BEFORE.masters("main")
    forged = key_rings.DataKey(
        "f" * key_rings.ID, b"known to others, and 32 bytes!!!", "new", "old", ""
    )
    claim = key_rings.claim_of(Master(old.name, old.secret), "main", forged)
    await inner.claim("main", claim, Scope("main", "holdfast.vault"))
    store = VaultStore(inner, BOTH)
    await store.append(key("s"), [note(2)])
    stored = await all_of(inner, key("s"))
    assert not stored[1].json()["box"].startswith(forged.id)
    assert await readable(store, key("s"), 2) == ([1, 2], [])

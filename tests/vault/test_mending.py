"""What is damaged, forged or locked in an encrypted store: what a repair mends, what it leaves, and
what can be read all the while."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast import (
    InvalidValue,
    KeyMissing,
    NewEvent,
    Query,
    Scope,
    StoreUnavailable,
    Vault,
    connect,
    key,
)
from holdfast.log.catalog.encrypted_preview import BOXED, NEWER
from holdfast.stores.copy import copy_session
from holdfast.stores.memory import MemoryStore
from holdfast.stores.vault.store import VaultStore
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Fail

from .hands import KINDS, Hands, all_of, hands_on

pytestmark = pytest.mark.parity("user-demand", 64)

LOG = key("s")


@pytest.fixture(params=KINDS)
async def hands(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Hands, None]:
    async with hands_on(request.param, tmp_path) as hands:
        yield hands


def note(n: object) -> NewEvent:
    return NewEvent.of("note.made", {"n": n})


async def found(store: VaultStore, *, repair: bool = False) -> list[tuple[str, int | None, bool]]:
    return [(d.problem, d.seq, d.repaired) async for d in store.verify(repair=repair)]


async def test_what_was_put_in_is_given_up_once_and_the_log_is_sound_again(hands: Hands) -> None:
    async with hands.behind() as store:
        await store.append(LOG, [note(1)], create=True)
    async with hands.under() as under:
        forged = [note("plain"), replace(note("as if"), v=BOXED + 1)]
        await under.append(LOG, forged)
    async with hands.behind() as store:
        await store.append(LOG, [note(4)])
        assert await found(store) == [("unreadable", n, False) for n in (2, 3)]
        assert await found(store, repair=True) == [("unreadable", n, True) for n in (2, 3)]
        assert await found(store, repair=True) == []
        gone = {"erased": "damaged"}
        assert [e.json() for e in await all_of(store, LOG)] == [{"n": 1}, gone, gone, {"n": 4}]
        copy = VaultStore(MemoryStore(), hands.vault)
        done = await copy_session(store, copy, LOG.scope)
        assert (done.status, len(await all_of(copy, LOG))) == ("copied", 4)


async def test_what_a_newer_version_encrypted_is_left_alone(hands: Hands) -> None:
    async with hands.behind() as store:
        await store.append(LOG, [note(1)], create=True)
    async with hands.under() as under:
        (event,) = await all_of(under, LOG)
        later = replace(note(2), data=event.data, v=NEWER + 1)
        await under.append(LOG, [later])
        async with hands.behind() as store:
            assert await found(store, repair=True) == [("unreadable", 2, False)]
        assert (await all_of(under, LOG))[1].data == later.data


async def test_a_key_that_is_missing_hides_what_it_encrypted_and_nothing_else(
    hands: Hands,
) -> None:
    old, new = Vault.new_key("old"), Vault.new_key("new")
    titled = NewEvent.of("session.created", {"title": "old"})
    async with hands.behind(Vault([old])) as store:
        await store.append(LOG, [titled, note(2)], create=True)
    async with hands.behind(Vault([new, old])) as store:
        await store.append(LOG, [note(3)])
        await store.append(
            key("t"), [NewEvent.of("session.created", {"title": "new"})], create=True
        )
    async with hands.behind(Vault([new])) as store:
        rows = (await store.find(Query(tenant="main"))).items
        assert {row.session: row.title for row in rows} == {"s": None, "t": "new"}
        with pytest.raises(KeyMissing) as raised:
            await all_of(store, LOG)
        assert (raised.value.key, raised.value.seq) == ("old", 1)
        assert [event.json() async for event in store.read(LOG, after=2)] == [{"n": 3}]
        assert await found(store, repair=True) == [("unreadable", n, False) for n in (1, 2)]
    async with hands.behind(Vault([new, old])) as store:
        assert len(await all_of(store, LOG)) == 3


async def test_a_tenant_whose_mark_was_taken_away_gets_it_back(hands: Hands) -> None:
    async with hands.behind() as store:
        await store.append(LOG, [note(1)], create=True)
    marks = Scope("holdfast.vault", "holdfast.vault")
    async with hands.under() as under:
        await under.unclaim("holdfast.vault", "tenant:main", marks)
    async with hands.behind() as store:
        await store.append(LOG, [note(2)])
        assert [key.tenant for key in await store.data_keys()] == ["main"]


async def test_a_store_is_not_opened_with_a_vault_that_can_read_nothing_of_it(
    tmp_path: Path,
) -> None:
    url, mine = f"sqlite:{tmp_path}/s.db", Vault([Vault.new_key("k")])
    async with connect(url, vault=mine) as store:
        await store.append(LOG, [note(1)], create=True)
    with pytest.raises(KeyMissing, match="append it to the vault") as raised:
        await connect(url, vault=Vault([Vault.new_key("other")]))
    assert raised.value.key == "k"
    with pytest.raises(KeyMissing, match="the vault's key 'k' is not the key"):
        await connect(url, vault=Vault([Vault.new_key("k")]))


async def test_a_vault_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:{tmp_path}/s.db?vault=env:MY_VAULT"
    with pytest.raises(InvalidValue, match="MY_VAULT"):
        await connect(url)
    monkeypatch.setenv("MY_VAULT", f"{Vault.new_key('a')}, {Vault.new_key('b')}")
    async with connect(url) as store:
        await store.append(LOG, [note(1)], create=True)
        assert [event.json() for event in await all_of(store, LOG)] == [{"n": 1}]
    with pytest.raises(InvalidValue, match="twice"):
        connect(f"{url}&vault=b.toml")


@pytest.mark.parametrize("call", [1, 5, 10])
async def test_a_long_piece_of_a_draft_is_there_whole_or_not_at_all(call: int) -> None:
    inner, long = MemoryStore(), "0123456789" * 90_000
    vault = Vault([Vault.new_key("k")])
    await VaultStore(inner, vault).append(LOG, [note(1)], create=True)
    store = VaultStore(FaultyStore(inner, [Fail(method="put_draft", call=1 + call)]), vault)
    lease = await store.acquire(LOG, "me")
    await store.put_draft(LOG, "m", 0, "short", fence=lease)
    with pytest.raises(StoreUnavailable):
        await store.put_draft(LOG, "m", 5, long, fence=lease)
    for reader in (store, VaultStore(inner, vault)):
        assert [draft.text for draft in await reader.drafts(LOG)] == ["short"]
    await store.put_draft(LOG, "m", 5, long, fence=lease)
    assert [draft.text for draft in await store.drafts(LOG)] == ["short" + long]


async def test_a_draft_of_which_no_piece_is_whole_is_none() -> None:
    inner, vault = MemoryStore(), Vault([Vault.new_key("k")])
    await VaultStore(inner, vault).append(LOG, [note(1)], create=True)
    store = VaultStore(FaultyStore(inner, [Fail(method="put_draft", call=2)]), vault)
    lease = await store.acquire(LOG, "me")
    with pytest.raises(StoreUnavailable):
        await store.put_draft(LOG, "m", 0, "0123456789" * 90_000, fence=lease)
    assert await store.drafts(LOG) == []
    await store.put_draft(LOG, "m", 0, "", fence=lease)
    assert [draft.text for draft in await store.drafts(LOG)] == [""]

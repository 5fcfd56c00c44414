"""What moves and keeps sessions works on encrypted stores: copies, bundles, the life of sessions,
the store of the Claude Agent SDK, upkeep, and the harness without `await`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import claude_agent_sdk  # noqa: F401 - as its users do, before a loop runs
import pytest
from claude_agent_sdk.testing import run_session_store_conformance
from msgspec.structs import replace

from holdfast import (
    DeletionRefused,
    NewEvent,
    Query,
    Retention,
    Scope,
    SessionMoved,
    Sessions,
    Store,
    Vault,
    connect,
    export_bundle,
    import_bundle,
    key,
    sync,
)
from holdfast.adapters.claude import ClaudeSessionStore
from holdfast.harness.agents.agent import Agent
from holdfast.log.catalog import PendingQuery
from holdfast.models.scripted import ScriptedModel
from holdfast.stores.copy import copy_session, undo_move
from holdfast.stores.memory import MemoryStore
from holdfast.stores.vault.store import VaultStore
from holdfast.testing.faults import FaultyStore
from holdfast.testing.samples import read_all
from tests.adapters import words
from tests.contract.test_stores import URLS, url_of
from tests.copy.scene import SHOP, content, new, rows_of, said, shop, waiting
from tests.sessions.scene import HOUR, SLACK, WEB, Clock, ids, inbound

from .test_harness import QUIET, SECRET, refund, sealed, serve, stored

pytestmark = pytest.mark.parity("user-demand", 64)

KINDS = [*URLS, "postgres", "mongodb"]
VAULT = Vault([Vault.new_key("first")])
MAIN = key(SHOP.session)


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    """An encrypted store of each kind."""
    async with url_of(request.param, tmp_path) as url, connect(url, vault=VAULT) as store:
        yield store


async def whole(store: Store, scope: Scope = SHOP) -> dict[str, Any]:
    """All that a session is, but for how much room it takes."""
    found = await content(store, scope)
    found["rows"] = {name: replace(row, bytes=0) for name, row in found["rows"].items()}
    return found


async def sound(store: Store) -> None:
    assert [one async for one in store.verify()] == []


# Copies and bundles


async def test_a_session_is_copied_in_and_out_unchanged(store: Store) -> None:
    async with connect("memory:") as plain, connect("memory:") as last:
        await shop(plain)
        before = await whole(plain)
        for source, target in ((plain, store), (store, last)):
            assert (await copy_session(source, target, SHOP)).status == "copied"
            assert await whole(target) == before
            assert (await copy_session(source, target, SHOP)).status == "same"
            await sound(target)
        assert (await store.row(MAIN)) != await plain.row(MAIN)


async def test_a_session_is_moved_in_and_out_with_what_waits(store: Store) -> None:
    async with connect("memory:") as plain, connect("memory:") as last:
        await waiting(plain, SHOP.session)
        before = await whole(plain)
        for source, target in ((plain, store), (store, last)):
            assert (await copy_session(source, target, SHOP, move=True)).status == "moved"
            assert await whole(target) == before
            assert [item.id for item in (await target.pending(PendingQuery())).items] == ["p1"]
            with pytest.raises(SessionMoved):
                await source.append(MAIN, [said("late")])
            assert [row.sealed is not None for row in (await rows_of(source)).values()] == [True]
            await sound(source)
            await sound(target)


async def test_a_move_out_of_an_encrypted_store_is_undone(store: Store) -> None:
    async with connect("memory:") as plain:
        await waiting(store, SHOP.session)
        await copy_session(store, plain, SHOP, move=True)
        await plain.delete(SHOP)
        await undo_move(store, plain, SHOP)
        await store.append(MAIN, [said("I am back.")])
        assert (await read_all(store, MAIN))[-1].json() == {"text": "I am back."}
        await sound(store)


async def test_a_session_goes_from_one_vault_into_another(tmp_path: Path) -> None:
    """With other keys, another tenant, and another name: all of it is encrypted anew."""
    other = Vault([Vault.new_key("other")], tenants={"else": [Vault.new_key("own")]})
    one, two = (f"sqlite:{tmp_path}/{name}.db" for name in ("one", "two"))
    async with connect(one, vault=VAULT) as source, connect(two, vault=other) as target:
        await shop(source)
        await copy_session(source, target, SHOP, tenant="else")
        there = await whole(target, Scope("else", SHOP.session))
        here = await whole(source)
        assert (there["events"], there["blobs"]) == (here["events"], here["blobs"])
        await sound(target)


async def test_a_bundle_of_an_encrypted_store_is_that_of_a_plain_one(store: Store) -> None:
    async with AsyncExitStack() as stack:
        plain, last = MemoryStore(), MemoryStore()
        other = await stack.enter_async_context(
            connect("memory:", vault=Vault([Vault.new_key("x")]))
        )
        await shop(plain)
        first = (await export_bundle((plain, SHOP), "local")).to_json()
        before = await whole(plain)
        for target in (store, other, last):
            assert (await import_bundle(target, first)).fresh
            assert not (await import_bundle(target, first)).fresh
            after = await whole(target)
            for part in ("events", "blobs", "rows"):
                assert after[part] == before[part]
            assert (await export_bundle((target, SHOP), "local")).to_json() == first
            await sound(target)


async def test_a_bundle_in_a_file_goes_on_in_a_plain_store(tmp_path: Path) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    async with serve(url, "Good day.") as harness:
        await harness.send("s", f"Hello {SECRET}")
    async with connect(url) as store:
        source = (store, Scope("main", "s"))
        await export_bundle(source, "local", purpose="copy", to=tmp_path / "s.zip")
    other = f"sqlite:{tmp_path}/plain.db"
    async with connect(other) as plain:
        await import_bundle(plain, tmp_path / "s.zip")
    async with serve(other, "And again.") as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Again?")).text == "And again."
        told = [message.text for message in await session.transcript()]
        assert told == [f"Hello {SECRET}", "Good day.", "Again?", "And again."]


# The life of sessions


async def test_sessions_live_as_in_a_plain_store() -> None:
    clock = Clock()
    stores = MemoryStore(clock=clock), VaultStore(MemoryStore(clock=clock), VAULT)
    told: list[list[Any]] = []
    for store in stores:
        clock.ms = Clock().ms
        told.append(await life(Sessions(store, actor="app", clock=clock), clock))
        await sound(store)
    assert told[0] == told[1]
    assert told[0][-1] == "refused: held: Case 7"


async def life(sessions: Sessions, clock: Clock) -> list[Any]:
    """All that can happen to sessions, and what is seen of it."""
    seen: list[Any] = []

    async def look(**query: Any) -> None:
        rows = (await sessions.find(**query)).items
        seen.append([replace(row, log="", link=None, bytes=0) for row in rows])

    await sessions.create(
        "a", user="ann", title="Refund", surface=WEB, metadata={"tier": "gold"}, labels=["vip"]
    )
    await sessions.create("b", user="ben", surface=SLACK, ttl=HOUR, expiry=HOUR)
    await look()
    for query in ({"label": "vip"}, {"metadata": {"tier": "gold"}}, {"surface": SLACK}):
        await look(**query)
    await look(user="ann", phases=("created",))
    seen.append(ids([await sessions.resolve_session(inbound("ann"))]))
    await sessions.touch("a")
    await sessions.suspend("a", reason="later")
    await look(phases=("suspended",))
    await sessions.resume("a")
    await sessions.update_metadata("a", {"tier": None, "n": 1})
    await sessions.attach_surface("a", "mail", "ann@example.org")
    await sessions.detach_surface("a", *WEB)
    await sessions.pin("a")
    clock.go(3 * HOUR)
    seen.append((await sessions.sweep_stale()).suspended)
    clock.go(3 * HOUR)
    seen.append((await sessions.sweep_stale()).expired)
    await look()
    await sessions.reopen("b")
    await sessions.expire("b")
    seen.append((await sessions.purge_expired(Retention(keep=0, grace=0))).deleted)
    clock.go(HOUR)
    seen.append((await sessions.purge_expired(Retention(keep=0, grace=0))).deleted)
    await look()
    seen.append([found.seq for found in (await sessions.search("nothing", session="a")).hits])
    await sessions.hold("a", "Case 7")
    await look()
    try:
        await sessions.delete("a")
    except DeletionRefused as refused:
        seen.append(f"refused: {refused.reason}")
    return seen


async def test_a_person_is_given_out_and_erased(store: Store) -> None:
    sessions = Sessions(store, actor="app")
    await sessions.create("own", user="ben", actor="ben", title=SECRET, metadata={"x": 1})
    await sessions.create("shared", user="ann")
    for actor, text in (("ben", f"My card, {SECRET}"), ("ann", "Hers")):
        event = NewEvent.of("message.received", {"text": text}, actor=actor)
        await store.append(key("shared"), [event])
    row = await sessions.get("shared")
    assert row is not None
    assert row.first_message == f"My card, {SECRET}"
    given = [record async for record in sessions.export_person("ben")]
    assert SECRET in str([record.event.json() for record in given if record.event])
    assert SECRET in str([record.row for record in given])
    assert [found.excerpt for found in (await sessions.search(SECRET, session="shared")).hits] != []
    done = await sessions.erase_person("ben", reason="asked to")
    assert (done.sessions, done.events, done.refused) == (["own"], {"shared": 1}, {})
    row = await sessions.get("shared")
    assert row is not None
    assert (row.first_message, row.counts, row.user) == ("Hers", {"messages": 2}, "ann")
    events = await read_all(store, key("shared"))
    assert events[1].json() == {"erased": "asked to"}
    assert events[2].json() == {"text": "Hers"}
    assert ids((await sessions.find()).items) == ["shared"]
    assert [found.excerpt for found in (await sessions.search(SECRET, session="shared")).hits] == []
    await sound(store)


# Upkeep


@pytest.mark.parametrize("kind", KINDS)
async def test_upkeep_takes_no_keys_away(kind: str, tmp_path: Path) -> None:
    """Deleting every session, purging and repairing leave the keys where they are."""
    async with url_of(kind, tmp_path) as url, AsyncExitStack() as stack:
        store = await stack.enter_async_context(connect(url, vault=VAULT))
        await shop(store)
        for tenant in ("main", "other"):
            await store.append(key("t", tenant=tenant), [said("hi")], create=True)
        listed = await _vault(store).data_keys()
        await store.delete(SHOP)
        await store.delete(Scope("other", "t"))
        await store.purge()
        assert [one async for one in store.verify(repair=True)] == []
        done = await _vault(store).reseal()
        assert [(one.tenant, one.changed) for one in done] == [("main", 0), ("other", 0)]
        assert await _vault(store).data_keys() == listed
        if kind != "memory":
            await store.aclose()
            store = await stack.enter_async_context(connect(url, vault=VAULT))
        assert [event.json() for event in await read_all(store, key("t"))] == [{"text": "hi"}]
        found = (await store.find(Query())).items
        assert [row.session for row in found] == ["t"]


def _vault(store: Store) -> VaultStore:
    assert isinstance(store, VaultStore)
    return store


class Late(FaultyStore):
    """Another process is faster: it has written when this one looks for sessions."""

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Any:
        if not self.calls["append"]:
            await VaultStore(self.inner, VAULT).append(key("theirs"), [said("hi")], create=True)
        return await super().find(query, cursor=cursor, limit=limit)


async def test_of_two_that_begin_a_tenant_at_once_neither_is_refused() -> None:
    inner = MemoryStore()
    store = VaultStore(Late(inner), VAULT)
    await store.append(key("ours"), [said("hello")], create=True)
    for reader in (store, VaultStore(inner, VAULT)):
        for name, text in (("ours", "hello"), ("theirs", "hi")):
            assert [e.json() for e in await read_all(reader, key(name))] == [{"text": text}]


# The Claude Agent SDK


async def test_the_sdks_own_conformance_suite_passes(store: Store) -> None:
    tenants = itertools.count()
    await run_session_store_conformance(
        lambda: ClaudeSessionStore(store, tenant=f"tenant-{next(tenants)}")
    )
    assert next(tenants) > 14
    await sound(store)


async def test_a_transcript_of_the_sdk_is_kept_encrypted(tmp_path: Path) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    wide = words.entry("b", message={"content": f"{SECRET} é\0👩" * 9_000, "n": 2**200})
    entries = [words.title(f"About {SECRET}", "a"), wide]
    async with connect(url) as store:
        sessions = ClaudeSessionStore(store)
        await sessions.append(words.key(), entries)
        await sessions.append(words.key(sub="subagents/agent-1"), entries)
        await sessions.append(words.key(), entries)
    assert await stored(url, tmp_path) == []
    async with connect(url) as store:
        sessions = ClaudeSessionStore(store)
        assert await sessions.load(words.key()) == entries
        assert await sessions.load(words.key(sub="subagents/agent-1")) == entries
        assert SECRET in str(await words.summary(sessions))
        await sessions.delete(words.key())
        assert await sessions.load(words.key()) is None
        await sound(store)


# Without `await`


def test_a_script_without_await_goes_on_with_an_encrypted_session(tmp_path: Path) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    agent = Agent("shop", instructions="Help.", tools=[refund])
    for turn in range(2):
        model = ScriptedModel([f"Good day, {SECRET}."], per_turn=True)
        with sync.Harness(agent, default_model=model, store=url, logging=QUIET) as harness:
            session = harness.get_or_create("s")
            assert session.send(f"Hello {SECRET}").text == f"Good day, {SECRET}."
            assert len(session.transcript()) == 2 * (turn + 1)
    assert asyncio.run(stored(url, tmp_path)) == []


async def test_a_new_kind_of_event_is_kept_whole(store: Store) -> None:
    odd = new("foreign.kind", deep=[{"a": [1e300, None, {"erased": 1, "box": "x", "shown": 1}]}])
    await store.append(MAIN, [odd], create=True)
    assert (await read_all(store, MAIN))[0].data == odd.data

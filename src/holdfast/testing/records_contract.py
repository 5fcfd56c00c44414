"""Tests for the guarantees of a store about drafts, blobs, snapshots and maintenance."""

from __future__ import annotations

import hashlib

import pytest
from msgspec.structs import asdict

from ..errors import BlobNotFound, InvalidValue, LogReplaced
from ..log.codec import LIMITS
from ..log.events import NewEvent, Scope, key
from ..stores.port import BlobRef, Draft, Store
from .samples import (
    KEY,
    SIDE,
    begin,
    begin_driven,
    damage_in,
    fork_side,
    note,
    plant,
    read_all,
    rejected,
    snapshot,
)


class RecordsContract:
    """Tests for the guarantees of a store about drafts, blobs and snapshots: they belong to a log
    and never change its events.
    """

    pytestmark = pytest.mark.asyncio

    # Drafts, blobs, snapshots, upkeep

    async def test_the_pieces_of_a_draft_join_by_offset(self, store: Store) -> None:
        lease = await begin_driven(store)
        for offset, text in ((0, "Grüße"), (9, "!"), (5, " 👋, "), (0, "Grüße"), (20, "lost")):
            await store.put_draft(KEY, "m", offset, text, fence=lease)
        assert await store.drafts(KEY) == [Draft("m", "Grüße 👋, !", lease.token)]

    async def test_a_draft_ends_with_the_event_that_completes_it(self, store: Store) -> None:
        lease = await begin_driven(store)
        for message in ("m", "n", "o"):
            await store.put_draft(KEY, message, 0, "text", fence=lease)
        await store.append(KEY, [NewEvent.of("message.completed", {"text": "text"}, id="m")])
        await store.append(KEY, [NewEvent.of("message.interrupted", {"text": "text"}, id="n")])
        assert [draft.message for draft in await store.drafts(KEY)] == ["o"]
        await store.put_draft(KEY, "m", 4, " late", fence=lease)
        assert [draft.message for draft in await store.drafts(KEY)] == ["o"]

    async def test_what_completes_a_draft_removes_it(self, store: Store) -> None:
        lease = await begin_driven(store)
        for message in ("m", "n"):
            await store.put_draft(KEY, message, 0, "text", fence=lease)
        await store.append(KEY, [NewEvent.of("message.completed", {"text": "text"}, id="m")])
        assert (await store.delete(KEY)).removed["drafts"] == 1

    async def test_a_draft_is_the_newest_leases_and_the_others_stay_readable(
        self, store: Store
    ) -> None:
        old = await begin_driven(store, "first")
        await store.put_draft(KEY, "m", 0, "old ", fence=old)
        await store.put_draft(KEY, "m", 4, "text", fence=old)
        await store.put_draft(KEY, "n", 0, "kept", fence=old)
        new = await store.acquire(KEY, "second", steal="the first hangs")
        await store.put_draft(KEY, "m", 0, "newer", fence=new)
        drafts = {draft.message: draft for draft in await store.drafts(KEY)}
        assert drafts == {"m": Draft("m", "newer", new.token), "n": Draft("n", "kept", old.token)}

    async def test_a_blob_belongs_to_its_session_and_is_kept_once(self, store: Store) -> None:
        await begin(store)
        await begin(store, key("other"))
        data = bytes(range(256)) * 1000
        ref = await store.put_blob(KEY.scope, data)
        assert (await store.put_blob(KEY.scope, data), ref.size) == (ref, len(data))
        assert await store.get_blob(KEY.scope, ref) == data
        assert await store.get_blob(KEY.scope, await store.put_blob(KEY.scope, b"")) == b""
        await rejected(BlobNotFound, store.get_blob(key("other").scope, ref))
        await rejected(BlobNotFound, store.get_blob(KEY.scope, BlobRef("0" * 64, 1)))
        assert {ref} < set(await store.blobs(KEY.scope))
        assert [kept.size for kept in await store.blobs(key("other").scope)] == []
        assert (await store.delete(KEY.scope)).removed["blobs"] == 2
        assert await store.blobs(KEY.scope) == []

    async def test_a_blob_is_kept_under_the_name_of_what_it_was_made_from(
        self, store: Store
    ) -> None:
        await begin(store)
        name = hashlib.sha256(b"bytes").hexdigest()
        ref = await store.put_blob(KEY.scope, b"what was made", sha256=name)
        assert ref == BlobRef(name, len(b"what was made"))
        assert await store.get_blob(KEY.scope, ref, checked=False) == b"what was made"
        assert await store.blobs(KEY.scope) == [ref]
        await rejected(BlobNotFound, store.get_blob(KEY.scope, ref))
        for wrong in ("", "../" * 22, name.upper(), name + "0"):
            refused = await rejected(InvalidValue, store.put_blob(KEY.scope, b"x", sha256=wrong))
            assert refused.field == "sha256"

    async def test_a_blob_shared_by_two_sessions_outlives_one_of_them(self, store: Store) -> None:
        await begin(store)
        await begin(store, key("other"))
        ref = await store.put_blob(KEY.scope, b"bytes")
        await store.put_blob(key("other").scope, b"bytes")
        await store.delete(KEY.scope)
        assert await store.get_blob(key("other").scope, ref) == b"bytes"

    async def test_the_furthest_snapshot_of_a_version_is_kept(self, store: Store) -> None:
        log = await begin(store, count=5)
        lease = await store.acquire(KEY, "driver")
        assert await store.load_snapshot(KEY, "v1") is None
        for seq, version in ((2, "v1"), (4, "v1"), (3, "v1"), (1, "v2")):
            await store.save_snapshot(
                KEY, snapshot(log, seq, f'{{"at":{seq}}}', version), fence=lease
            )
        assert await store.load_snapshot(KEY, "v1") == snapshot(log, 4, '{"at":4}')
        assert await store.load_snapshot(KEY, "v2") == snapshot(log, 1, '{"at":1}', "v2")

    async def test_a_newer_lease_replaces_a_snapshot_that_is_further(self, store: Store) -> None:
        log = await begin(store, count=5)
        for seq in (4, 2):
            lease = await store.acquire(KEY, "driver")
            await store.save_snapshot(KEY, snapshot(log, seq), fence=lease)
            await store.release(lease)
        assert await store.load_snapshot(KEY, "v1") == snapshot(log, 2)

    async def test_a_snapshot_of_another_log_or_of_the_future_is_refused(
        self, store: Store
    ) -> None:
        log = await begin(store, count=2)
        lease = await store.acquire(KEY, "driver")
        await rejected(LogReplaced, store.save_snapshot(KEY, snapshot("another", 1), fence=lease))
        await rejected(InvalidValue, store.save_snapshot(KEY, snapshot(log, 3), fence=lease))
        assert await store.load_snapshot(KEY, "v1") is None

    async def test_a_healthy_store_verifies_and_purges_clean(self, store: Store) -> None:
        await begin(store, count=3)
        await store.append(KEY, [note("x" * store.info().apart, id="large")])
        await fork_side(store, at=2)
        await plant(store, key("restored"), ("message.received", {"text": "hi"}))
        await store.erase(KEY, [1, 4], reason="asked")
        await begin(store, key("gone"))
        await store.delete(key("gone").scope)
        before = await read_all(store, SIDE)
        await store.delete(KEY)
        for target in (None, SIDE, Scope("main", "restored")):
            assert await damage_in(store, target) == []
        await store.purge()
        assert await damage_in(store, repair=True) == []
        assert await read_all(store, SIDE) == before

    async def test_a_store_says_what_it_is_and_closes_twice(self, store: Store) -> None:
        info = store.info()
        assert info.apart == 64 << 10
        sizes = [(getattr(info.limits, name), most) for name, most in asdict(LIMITS).items()]
        assert info.limits == LIMITS or info.encrypted
        # Encrypted values are larger when they are stored as text.
        assert all(most // 2 < size <= most for size, most in sizes)
        assert info.durability in ("none", "process", "machine")
        assert info.kind
        assert info.schema >= 1
        await store.aclose()
        await store.aclose()

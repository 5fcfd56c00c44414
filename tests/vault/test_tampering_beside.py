"""The same for what stands beside the events: rows, snapshots, drafts, blobs and data keys."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast import (
    BlobNotFound,
    BlobRef,
    HoldfastError,
    KeyMissing,
    NewEvent,
    PendingQuery,
    Query,
    Scope,
    key,
)
from holdfast.store import Snapshot
from holdfast.stores.vault.store import VaultStore
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Fail

from .hands import KINDS, Doc, Hands, all_of, hands_on, outcome, readable, rewrite

pytestmark = pytest.mark.parity("user-demand", 64)

KEYS = Scope("main", "holdfast.vault")


@pytest.fixture(params=KINDS)
async def hands(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Hands, None]:
    async with hands_on(request.param, tmp_path) as hands:
        yield hands


async def begin(store: VaultStore, name: str) -> None:
    """A session with every text that a row has."""
    some = [
        NewEvent.of("session.created", {"title": f"title of {name}"}),
        NewEvent.of("message.received", {"text": f"message of {name}"}),
        NewEvent.of("session.held", {"hold": f"hold of {name}"}),
        NewEvent.of("pending.opened", {"id": "p1", "what": "approval", "title": f"read {name}"}),
        NewEvent.of("pending.opened", {"id": "p2", "what": "approval", "title": f"drop {name}"}),
    ]
    await store.append(key(name), some, create=True)


# Rows


async def texts(store: VaultStore, name: str) -> list[Any]:
    row = await store.row(key(name))
    assert row is not None
    (listed,) = (await store.find(Query(tenant="main", session=name))).items
    assert (listed.title, listed.pending) == (row.title, row.pending)
    titles = [item.get("title") for _, item in sorted(row.pending.items())]
    return [row.title, row.first_message, row.hold, *titles]


async def test_a_text_of_a_row_is_shown_only_where_it_was_written(hands: Hands) -> None:
    async with hands.behind() as store:
        for name in ("a", "b", "c", "d", "sound"):
            await begin(store, name)
    of_a = await hands.doc_of("a")

    def moved(doc: Doc) -> Doc:
        return doc | {name: of_a[name] for name in ("title", "first_message", "hold", "pending")}

    def in_clear(doc: Doc) -> Doc:
        items = {id: item | {"title": "forged"} for id, item in doc["pending"].items()}
        said = dict.fromkeys(("title", "first_message", "hold"), "forged")
        return doc | said | {"pending": items}

    def exchanged(doc: Doc) -> Doc:
        said = {"title": doc["hold"], "hold": doc["first_message"], "first_message": doc["title"]}
        return doc | said

    await hands.edit_row("b", moved)
    await hands.edit_row("c", in_clear)
    await hands.edit_row("d", exchanged)
    async with hands.behind() as store:
        nothing = [None, None, "unreadable"]
        assert await texts(store, "b") == [*nothing, None, None]
        assert await texts(store, "c") == [*nothing, None, None]
        assert await texts(store, "d") == [*nothing, "read d", "drop d"]
        sound = ["title of sound", "message of sound", "hold of sound", "read sound", "drop sound"]
        assert await texts(store, "sound") == sound


async def test_the_row_of_another_session_is_not_shown_in_place_of_one(hands: Hands) -> None:
    async with hands.behind() as store:
        await begin(store, "a")
        await begin(store, "b")
    of_a = await hands.doc_of("a")
    await hands.edit_row("b", lambda doc: of_a)
    async with hands.behind() as store:
        row = await outcome(store.row(key("b")))
        assert isinstance(row, str) or row is None or row.title != "title of a"


async def test_what_a_person_is_to_approve_does_not_get_the_title_of_something_else(
    hands: Hands,
) -> None:
    async with hands.behind() as store:
        await begin(store, "s")

    def exchanged(doc: Doc) -> Doc:
        one, other = doc["pending"]["p1"], doc["pending"]["p2"]
        items = {
            "p1": one | {"title": other["title"]},
            "p2": other | {"title": one["title"]},
        }
        return doc | {"pending": items}

    await hands.edit_row("s", exchanged)
    async with hands.behind() as store:
        assert (await texts(store, "s"))[3:] == [None, None]


@pytest.mark.parametrize("hands", ["sqlite"], indirect=True)
async def test_a_title_that_is_no_text_is_not_shown(hands: Hands) -> None:
    async with hands.behind() as store:
        await begin(store, "s")
    found: dict[str, Any] = {}
    titles: list[Any] = [5, True, [], {}, {"box": "x"}]
    for title in titles:
        item = {"what": "approval", "at": 1, "seq": 4, "title": title}
        odd = {"pending": {"p1": item, "p2": title, "p3": None}}
        await hands.edit_row("s", odd.__ror__)
        async with hands.behind() as store:
            row = await outcome(store.row(key("s")))
            found[str(title)] = row if isinstance(row, str) else row.pending["p1"].get("title")
    assert set(found.values()) <= {None, "StoreError"}


@pytest.mark.parametrize("hands", ["sqlite"], indirect=True)
async def test_a_row_that_names_very_many_keys_comes_to_an_end(hands: Hands) -> None:
    async with hands.behind() as store:
        await begin(store, "s")
    odd = {
        f"p{n}": {"what": "approval", "at": 1, "seq": 4, "title": f"box:{n:016x}:AAAA"}
        for n in range(1_500)
    }
    await hands.edit_row("s", lambda doc: doc | {"pending": odd})
    async with hands.under() as under:
        faulty = FaultyStore(under, [Fail(method="claims", call=4_000)])
        row = await VaultStore(faulty, hands.vault).row(key("s"))
        assert row is not None
        assert row.title == "title of s"
        assert {item["title"] for item in row.pending.values()} == {None}


# Snapshots, drafts and blobs


def snapshot(log: str, state: bytes = b'{"n":1}', *, version: str = "v1", seq: int = 2) -> Snapshot:
    return Snapshot(log=log, seq=seq, version=version, state=Raw(state))


async def test_a_snapshot_that_was_altered_or_moved_is_none(hands: Hands) -> None:
    names = ("altered", "plain", "other", "version", "seq")
    async with hands.under() as under, hands.behind() as store:
        logs = {}
        for name in ("sound", *names):
            await begin(store, name)
            row = await store.row(key(name))
            assert row is not None
            logs[name] = row.log
            lease = await store.acquire(key(name), "me")
            await store.save_snapshot(key(name), snapshot(row.log), fence=lease)
            await store.release(lease)
        sealed = await under.load_snapshot(key("sound"), "v1")
        assert sealed is not None
        state = bytes(sealed.state)
        forged = {
            "altered": snapshot(logs["altered"], state[:40] + b"AAAA" + state[44:]),
            "plain": snapshot(logs["plain"], b'{"n":2}'),
            "other": snapshot(logs["other"], state),
            "version": snapshot(logs["version"], b"{}", version="v2"),
            "seq": snapshot(logs["seq"], b"{}", seq=3),
        }
        for name in ("version", "seq"):
            own = await under.load_snapshot(key(name), "v1")
            assert own is not None
            forged[name] = replace(forged[name], state=own.state)
        for name in names:
            lease = await under.acquire(key(name), "eve")
            await under.save_snapshot(key(name), forged[name], fence=lease)
    async with hands.behind() as store:
        found = {name: await store.load_snapshot(key(name), "v1") for name in ("sound", *names)}
        assert found.pop("sound") == snapshot(logs["sound"])
        assert found.pop("version") == snapshot(logs["version"])
        assert await store.load_snapshot(key("version"), "v2") is None
        assert set(found.values()) == {None}


async def test_a_piece_of_a_draft_that_does_not_belong_there_is_not_shown(hands: Hands) -> None:
    async with hands.under() as under, hands.behind() as store:
        for name in ("a", "b"):
            await begin(store, name)
            lease = await store.acquire(key(name), "me")
            await store.put_draft(key(name), "m1", 0, f"begun in {name}", fence=lease)
            await store.put_draft(key(name), "m2", 0, f"more in {name}", fence=lease)
        pieces = {draft.message: draft.text for draft in await under.drafts(key("b"))}
        end = len(pieces["m1"])
        for text in (pieces["m2"], "forged\n", "forged", "\x1c:\x85:AAAA\n"):
            await under.put_draft(key("b"), "m1", end, text, fence=lease)
            end += len(text)
        (of_a, _) = await under.drafts(key("a"))
        await under.put_draft(key("b"), "m2", 0, of_a.text.ljust(200, "\n"), fence=lease)
    async with hands.behind() as store:
        found = {draft.message: draft.text for draft in await store.drafts(key("b"))}
        assert found == {"m1": "begun in b"}


async def test_a_blob_that_was_altered_moved_or_put_there_is_not_found(hands: Hands) -> None:
    async with hands.under() as under, hands.behind() as store:
        for name in ("a", "b"):
            await begin(store, name)
        a, b = Scope("main", "a"), Scope("main", "b")
        one, two = await store.put_blob(a, b"one"), await store.put_blob(a, b"two")
        sealed = await under.get_blob(a, one, checked=False)
        forged = [
            (one, sealed),  # of another session
            (two, await under.get_blob(a, two, checked=False) + b"x"),
            (BlobRef("0" * 64, 3), b"one"),
            (BlobRef("1" * 64, 0), b""),
            (BlobRef("2" * 64, 3), sealed[:20]),
            (BlobRef("3" * 64, 3), b"\xff" * 99),
        ]
        for ref, data in forged:
            await under.put_blob(b, data, sha256=ref.sha256)
        await under.put_blob(a, sealed, sha256="4" * 64)  # under another name
        plain = await under.put_blob(b, b"in clear")
    async with hands.behind() as store:
        assert await store.get_blob(a, one) == b"one"
        for ref in [*(ref for ref, _ in forged), plain]:
            with pytest.raises(BlobNotFound):
                await store.get_blob(b, ref)
        with pytest.raises(BlobNotFound):
            await store.get_blob(a, BlobRef("4" * 64, 3))


# Data keys


NO_KEYS = (
    "surface:x",
    "vault:first",
    "vault:first:0123456789abcdef:first:",
    "vault:first:0123456789abcdef:first:AAAA",
    "vault:first:0123456789abcdef:first:A",
    "vault:first:0123456789abcdef:first:§§§§",
    "vault:first:0123456789abcdef:first:AAAA:more",
    "vault:nobody:0123456789abcdef:nobody:AAAA",
)


async def test_a_claim_that_is_no_data_key_is_refused_in_our_words_or_passed_over(
    hands: Hands,
) -> None:
    found = {}
    async with hands.under() as under, hands.behind() as store:
        await begin(store, "s")
        for claim in NO_KEYS:
            await under.claim("main", claim, KEYS)
            another = VaultStore(under, hands.vault)
            found[claim] = [
                await typed(readable(another, key("s"), 5)),
                await typed(another.append(key("s"), [NewEvent.of("note.made", {"n": 1})])),
                await typed(another.data_keys()),
                await typed(another.reseal()),
            ]
            await under.unclaim("main", claim, KEYS)
        assert found == dict.fromkeys(NO_KEYS, [None] * 4)
        good, bad = await readable(VaultStore(under, hands.vault), key("s"), 99)
        assert (good[:5], bad) == ([1, 2, 3, 4, 5], [])


async def typed(doing: Awaitable[Any]) -> str | None:
    """The name of an error that is none of ours."""
    try:
        await doing
    except HoldfastError:
        return None
    except Exception as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize("hands", ["sqlite"], indirect=True)
async def test_the_store_is_not_asked_for_what_cannot_be_the_name_of_a_key(hands: Hands) -> None:
    """Or each such box costs a question, and its text is kept in memory."""
    async with hands.under() as under, hands.behind() as store:
        await begin(store, "s")
        first, *_ = await all_of(under, key("s"))
        names = ("", "x", "0" * 15, "0" * 17, "A" * 5_000, "0123456789abcde§")
        forged = [
            replace(
                first, seq=n, id=str(n), data=NewEvent.of("x", {"box": name, "after": n - 1}).data
            )
            for n, name in enumerate((*names, *(f"{name}:AAAA" for name in names)), 1)
        ]
        await rewrite(under, key("t"), forged)
        faulty = FaultyStore(under)
        another = VaultStore(faulty, hands.vault)
        assert await readable(another, key("s"), 5) == ([1, 2, 3, 4, 5], [])
        asked = faulty.calls["claims"]
        assert await readable(another, key("t"), 12) == ([], list(range(1, 13)))
        assert faulty.calls["claims"] == asked


async def test_a_data_key_that_was_altered_is_not_used(hands: Hands) -> None:
    async with hands.under() as under, hands.behind() as store:
        await begin(store, "s")
        (claim,) = await under.claims(KEYS)
        head, _, text = claim.rpartition(":")
        flipped = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
        await under.unclaim("main", claim, KEYS)
        await under.claim("main", f"{head}:{flipped}", KEYS)
    async with hands.behind() as store:
        assert await outcome(readable(store, key("s"), 5)) == "KeyMissing"
        assert await outcome(store.append(key("s"), [NewEvent.of("n", {})])) == "KeyMissing"


async def test_without_its_data_key_nothing_is_read_and_nothing_is_written(hands: Hands) -> None:
    async with hands.under() as under, hands.behind() as store:
        await begin(store, "s")
        (claim,) = await under.claims(KEYS)
        await under.unclaim("main", claim, KEYS)
    async with hands.behind() as store:
        assert await readable(store, key("s"), 5) == ([], [1, 2, 3, 4, 5])
        assert await outcome(store.append(key("s"), [NewEvent.of("n", {})])) == "KeyMissing"
        found = [(d.problem, d.seq) async for d in store.verify()]
        assert found == [("unreadable", n) for n in (1, 2, 3, 4, 5)]
        with pytest.raises(KeyMissing, match="backup"):
            await anext(store.verify(repair=True))
    async with hands.under() as under:
        await under.claim("main", claim, KEYS)
    async with hands.behind() as store:
        assert await readable(store, key("s"), 5) == ([1, 2, 3, 4, 5], [])
        assert [p.title for p in (await store.pending(PendingQuery(tenant="main"))).items] == [
            "read s",
            "drop s",
        ]

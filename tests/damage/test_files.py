"""A damaged folder: every other record loads, the damage is reported with its position, and
mending it is asked for. Each way to damage it with its index kept, and with the index gone."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BlobNotFound,
    BlobRef,
    Key,
    LogDamaged,
    NewEvent,
    Query,
    Scope,
    SessionNotFound,
    key,
)

from . import scene
from .scene import COUNT, KEY, OTHER, Spoil, damages, note, opened, read_all, readable, row_of, seqs

INDEX = pytest.mark.parametrize("kept", [True, False], ids=["index", "no index"])


# The last record, cut


@INDEX
@pytest.mark.parity("user-demand", 40)
@pytest.mark.parity("harness-kernel", 108)
async def test_the_last_record_cut_at_any_byte(tmp_path: Path, kept: bool) -> None:
    """One log for each byte, all in one folder: the first without a line end, the last without the
    record."""
    whole = (await scene.prepared(tmp_path))[KEY].read_bytes()
    logs = [key(f"cut-{gone}") for gone in range(1, len(whole.splitlines()[-1]) + 10)]
    files: dict[Key, Path] = {}
    async with opened(tmp_path) as store:
        for one in logs:
            await store.append(one, [note(n) for n in range(1, COUNT + 1)], create=True)
            files[one] = await scene.log_file(store, tmp_path, one)
    torn = set()
    for gone, one in enumerate(logs, 1):
        text = files[one].read_bytes()
        record = text.splitlines(keepends=True)[-1]  # its length depends on a hash
        if gone < len(record):
            torn.add(one)
        files[one].write_bytes(text[: -min(gone, len(record))])
    assert len(torn) < len(logs)
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        for one in logs:
            assert await seqs(store, one) == [1, 2, 3, 4], one
        found = {(d.problem, d.key, d.seq, d.repaired) for d in await damages(store, repair=True)}
        # A cut between two lines leaves nothing to see but what the index knew.
        assert found == {("torn", one, 5, True) for one in (logs if kept else torn)}
        for one in logs:
            await scene.check_goes_on(store, 4, one)
        await scene.check_other(store)
        assert all(damage.repaired for damage in await damages(store))


@INDEX
@pytest.mark.parametrize("left", [0, 1, 60, -1])
async def test_the_only_record_cut(tmp_path: Path, kept: bool, left: int) -> None:
    await scene.prepared(tmp_path)
    async with opened(tmp_path) as store:
        await store.append(key("one"), [note(1)], create=True)
        path = await scene.log_file(store, tmp_path, key("one"))
    header, line = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + line[:left])
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        # Without an index nothing tells it from a log that was never finished.
        if kept:
            assert await readable(store, key("one")) == ([], [])
        else:
            assert await store.row(key("one")) is None
        found = await damages(store)
        assert {(d.problem, d.key, d.seq, d.repaired) for d in found} == {
            ("torn", key("one"), 1, True)
        }
        assert (await store.append(key("one"), [note(2)], create=not kept)).seqs == (1,)
        assert [event.json() for event in await read_all(store, key("one"))] == [{"n": 2}]
        await scene.check_other(store)
        assert all(damage.repaired for damage in await damages(store))


@INDEX
async def test_a_cut_record_that_a_fork_shares_leaves_its_number(
    tmp_path: Path, kept: bool
) -> None:
    files = await scene.prepared(tmp_path)
    fork = key("s", "fork")
    async with opened(tmp_path) as store:
        await store.fork(KEY, "fork", at=COUNT, first=note("fork"))
    files[KEY].write_bytes(files[KEY].read_bytes()[:-10])
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        assert [event.seq for event in (await readable(store))[0]] == [1, 2, 3, 4]
        events, lost = await readable(store, fork)
        assert ([event.seq for event in events], lost) == ([1, 2, 3, 4, 6], [5])
        assert 5 in {damage.seq for damage in await damages(store, repair=True)}
        assert all(damage.repaired for damage in await damages(store))
        await store.append(KEY, [note("of the parent")])
        await store.append(fork, [note("of the fork")])
        events = await read_all(store, fork)
        assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6, 7]
        assert events[4].json() == {"erased": "damaged"}
        await scene.check_other(store)


# A record in the middle, damaged

WAYS: dict[str, tuple[Spoil, set[int]]] = {
    # What is done to record 3, and which numbers it may cost.
    "data": (scene.swapped(b'"n":3', b'"n":8'), {3}),
    "data no JSON": (scene.swapped(b'{"n":3}', b'{"n"!3}'), {3}),
    "data no text": (scene.swapped(b'"n":3', b'"\xff":3'), {3}),
    "id": (scene.swapped(b'"note-3"', b'"note-9"'), {3}),
    "id of another": (scene.swapped(b'"note-3"', b'"note-2"'), {3}),
    "kind": (scene.swapped(b'"note.made"', b'"note.mode"'), {3}),
    "number": (scene.swapped(b'"seq":3', b'"seq":7'), {3}),
    "number far off": (scene.swapped(b'"seq":3', b'"seq":30000000'), {3}),
    "number of the next": (scene.swapped(b'"seq":3', b'"seq":4'), {3}),
    "number of the one before": (scene.swapped(b'"seq":3', b'"seq":2'), {3}),
    "hash": (scene.swapped(b'"sha256":"', b'"sha256":"0'), {3}),
    "name of a field": (scene.swapped(b'"kind"', b'"kinc"'), {3}),
    "brace": (scene.swapped(b'{"seq"', b'["seq"'), {3}),
    "bytes that are no text": (scene.not_text, {3}),
    "line end": (scene.joined_to_next(b"\0"), {3, 4}),
    "line end to space": (scene.joined_to_next(b" "), {3, 4}),
    "line end missing": (scene.joined_to_next(b""), {3, 4}),
    "a line end too many": (scene.split_in_two, {3}),
    "zeros": (scene.zeroed, {3}),
    "zeros all over": (scene.zeroed_whole, {3, 4}),
    "gone": (scene.cut_out, {3}),
}


@INDEX
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parity("user-demand", 40)
async def test_a_damaged_record_in_the_middle(tmp_path: Path, way: str, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    spoil, may_cost = WAYS[way]
    spoil(files[KEY], 3)
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        await scene.check_other(store)
        assert [row.session for row in (await store.find(Query())).items] == ["other", "s"]
        found = await damages(store)
        assert {(d.problem, d.key, d.repaired) for d in found} == {("unreadable", KEY, False)}
        bad = {damage.seq for damage in found}
        assert 3 in bad
        assert bad <= may_cost

        events, lost = await readable(store)
        assert set(lost) == bad
        rest = [n for n in range(1, COUNT + 1) if n not in bad]
        assert [(event.seq, event.id) for event in events] == [(n, f"note-{n}") for n in rest]
        assert [event.json() for event in events] == [{"n": n} for n in rest]
        await scene.check_other(store)

        mended = await damages(store, repair=True)
        assert {(d.seq, d.repaired) for d in mended} == {(seq, True) for seq in bad}
        assert await damages(store) == []
    for forget in (False, True):
        if forget:
            scene.forget_index(tmp_path)
        async with opened(tmp_path) as store:
            assert await damages(store) == []
            events = await read_all(store)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            for event in events[:COUNT]:
                wanted = {"erased": "damaged"} if event.seq in bad else {"n": event.seq}
                assert event.json() == wanted
            if not forget:
                await scene.check_goes_on(store, COUNT)
            await scene.check_other(store)


@INDEX
async def test_appending_goes_on_before_the_damage_is_mended(tmp_path: Path, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    scene.zeroed(files[KEY], 3)
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        assert (await store.append(KEY, [note(6)])).seqs == (6,)
        assert [event.seq for event in (await readable(store))[0]] == [1, 2, 4, 5, 6]


@INDEX
async def test_a_record_twice_is_read_once(tmp_path: Path, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    scene.doubled(files[KEY], 3)
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        assert [event.json() for event in await read_all(store)] == [{"n": n} for n in range(1, 6)]
        await damages(store, repair=True)
        assert all(damage.repaired for damage in await damages(store))
        await scene.check_goes_on(store, COUNT)


@INDEX
async def test_damage_in_what_a_fork_shares_costs_the_fork_no_more(
    tmp_path: Path, kept: bool
) -> None:
    files = await scene.prepared(tmp_path)
    async with opened(tmp_path) as store:
        await store.fork(KEY, "fork", at=4, first=note("fork"))
    scene.zeroed(files[KEY], 3)
    if not kept:
        scene.forget_index(tmp_path)
    fork = key("s", "fork")
    async with opened(tmp_path) as store:
        events, lost = await readable(store, fork)
        assert ([event.seq for event in events], lost) == ([1, 2, 4, 5], [3])
        await damages(store, repair=True)
        assert await damages(store) == []
        assert await seqs(store, fork) == [1, 2, 3, 4, 5]


@INDEX
async def test_damage_in_what_a_fork_has_of_a_deleted_parent(tmp_path: Path, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    fork = key("s", "fork")
    async with opened(tmp_path) as store:
        await store.fork(KEY, "fork", at=4, first=note("fork"))
        await store.delete(KEY)
    scene.zeroed(files[KEY], 3)
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        events, lost = await readable(store, fork)
        assert ([event.seq for event in events], lost) == ([1, 2, 4, 5], [3])
        assert 3 in {damage.seq for damage in await damages(store)}
        await damages(store, repair=True)
        assert all(damage.repaired for damage in await damages(store))
        assert await seqs(store, fork) == [1, 2, 3, 4, 5]
        await scene.check_other(store)


# A first line that cannot be read


def spoil_header(path: Path) -> bytes:
    text = path.read_bytes()
    path.write_bytes(b"#" + text[1:])
    return path.read_bytes()


@INDEX
@pytest.mark.parity("user-demand", 40)
async def test_a_log_without_its_first_line_affects_no_other(tmp_path: Path, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    spoil_header(files[KEY])
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        await scene.check_other(store)
        assert (await row_of(store, OTHER)).head == 4
        try:
            assert await seqs(store) == [1, 2, 3, 4, 5]
        except SessionNotFound:
            assert not kept


@INDEX
async def test_a_log_without_its_first_line_is_reported(tmp_path: Path, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    spoil_header(files[KEY])
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        found = await damages(store)
        assert [damage.problem for damage in found] == ["unreadable"]
        assert kept == (found[0].key == KEY)
        assert files[KEY].name in found[0].detail


async def test_a_log_without_its_first_line_gets_it_back_from_the_index(tmp_path: Path) -> None:
    files = await scene.prepared(tmp_path)
    spoil_header(files[KEY])
    async with opened(tmp_path) as store:
        await damages(store, repair=True)
        assert await damages(store) == []
    scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        assert await seqs(store) == [1, 2, 3, 4, 5]


@INDEX
@pytest.mark.parametrize("after", ["purge", "a crash"])
async def test_a_log_without_its_first_line_is_never_removed(
    tmp_path: Path, kept: bool, after: str
) -> None:
    files = await scene.prepared(tmp_path)
    text = spoil_header(files[KEY])
    if not kept:
        scene.forget_index(tmp_path)
    if after == "purge":
        async with opened(tmp_path) as store:
            await store.purge()
    else:
        async with opened(tmp_path) as store:
            await store.append(OTHER, [note(4)])
        (tmp_path / "open" / "of-a-process-that-died").touch()
        async with opened(tmp_path) as store:
            await read_all(store, OTHER)
    assert files[KEY].read_bytes() == text


@INDEX
async def test_an_empty_log_file_affects_no_other(tmp_path: Path, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    files[KEY].write_bytes(b"")
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        await scene.check_other(store)
        try:
            assert await seqs(store) == []
        except SessionNotFound:
            assert not kept
        await damages(store, repair=True)
        assert all(damage.repaired for damage in await damages(store))
        # Whatever is begun anew under the name is a log like any other.
        await store.append(KEY, [note("anew")], create=True)
    scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        assert [event.json() for event in await read_all(store)] == [{"n": "anew"}]


@INDEX
async def test_a_log_file_that_is_gone_affects_no_other(tmp_path: Path, kept: bool) -> None:
    files = await scene.prepared(tmp_path)
    files[KEY].unlink()
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        await scene.check_other(store)
        found = await damages(store)
        assert bool(found) == kept
        try:
            assert await seqs(store) == []
        except SessionNotFound:
            assert not kept


# Payloads kept apart

LARGE = "x" * 70_000


@INDEX
@pytest.mark.parametrize("way", ["missing", "changed", "cut"])
async def test_a_payload_kept_apart_that_is_damaged(tmp_path: Path, kept: bool, way: str) -> None:
    files = await scene.prepared(tmp_path)
    async with opened(tmp_path) as store:
        await store.append(KEY, [note(LARGE, id="note-6"), note(7)])
    (apart,) = files[KEY].with_suffix(".apart").iterdir()
    if way == "missing":
        apart.unlink()
    elif way == "changed":
        apart.write_bytes(apart.read_bytes().replace(b"xxx", b"xyx", 1))
    else:
        apart.write_bytes(apart.read_bytes()[:-100])
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        events, lost = await readable(store)
        assert ([event.seq for event in events], lost) == ([1, 2, 3, 4, 5, 7], [6])
        (found,) = await damages(store)
        assert (found.problem, found.key, found.seq) == ("unreadable", KEY, 6)
        await damages(store, repair=True)
        assert await damages(store) == []
        assert (await read_all(store, after=5))[0].json() == {"erased": "damaged"}
        await scene.check_goes_on(store, 7)
        await scene.check_other(store)


# The index

RUBBISH: dict[str, Any] = {
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"not a database, whatever its name says\n" * 100,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "pages": lambda data: data[:4096] + b"\xa5" * (len(data) - 4096),
    "another program's": lambda data: data[:68] + b"\x01\x02\x03\x04" + data[72:],
}


@pytest.mark.parity("user-demand", 24)
@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_an_index_of_rubbish_is_rebuilt(tmp_path: Path, rubbish: str) -> None:
    created = NewEvent.of(
        "session.created", {"agent": "a", "labels": ["vip"], "metadata": {"n": 1}}, id="c"
    )
    asked = NewEvent.of("pending.opened", {"id": "p", "what": "question"}, id="ask")
    rich, fork, second = key("rich"), key("rich", "fork"), key("rich", "second")
    async with opened(tmp_path) as store:
        await store.append(rich, [created, note(1), note(LARGE, id="l"), asked], create=True)
        await store.fork(rich, "fork", at=2, first=note("f"))
        await store.fork(fork, "second", at=3, first=note("g"))
        await store.delete(fork)
        await store.erase(rich, [2], reason="asked to")
        for name in ("kept", "given up"):
            await store.claim("main", name, rich.scope)
        await store.unclaim("main", "given up", rich.scope)
        blob = await store.put_blob(rich.scope, b"a blob")
        before = await _all_of(store, rich, second, blob)
    index = tmp_path / "index.db"
    index.write_bytes(RUBBISH[rubbish](index.read_bytes()))
    async with opened(tmp_path) as store:
        assert await _all_of(store, rich, second, blob) == before
        with pytest.raises(SessionNotFound):
            await seqs(store, fork)
        assert await store.claim("main", "given up", Scope("main", "else")) == Scope("main", "else")
        assert await damages(store) == []
        assert (await store.append(second, [note("more")])).seqs == (5,)


async def _all_of(store: Any, rich: Key, second: Key, blob: BlobRef) -> Any:
    return (
        [await store.row(one) for one in (rich, second)],
        [await read_all(store, one) for one in (rich, second)],
        (await store.find(Query(label="vip", metadata={"n": 1}))).items,
        (await store.find(Query(session="rich"))).items,
        await store.claim("main", "kept", Scope("main", "else")),
        hashlib.sha256(await store.get_blob(rich.scope, blob)).hexdigest(),
    )


# The journal


@INDEX
async def test_a_torn_journal_costs_at_most_its_last_line(tmp_path: Path, kept: bool) -> None:
    await scene.prepared(tmp_path / "whole")
    async with opened(tmp_path / "whole") as store:
        for name in ("one", "two"):
            await store.claim("main", name, KEY.scope)
    text = (tmp_path / "whole" / "journal.jsonl").read_bytes()
    last = len(text.splitlines(keepends=True)[-1])
    nobody = Scope("main", "nobody")
    for left in range(last):
        folder = scene.copied(tmp_path / "whole", tmp_path / str(left))
        (folder / "journal.jsonl").write_bytes(text[: len(text) - last + left])
        if not kept:
            scene.forget_index(folder)
        async with opened(folder) as store:
            assert await store.claim("main", "one", nobody) == KEY.scope
            assert await store.claim("main", "two", nobody) in (KEY.scope, nobody)
            assert await store.claim("main", "three", KEY.scope) == KEY.scope
            assert await damages(store) == []
        scene.forget_index(folder)
        async with opened(folder) as store:
            assert await store.claim("main", "one", nobody) == KEY.scope
            assert await store.claim("main", "three", nobody) == KEY.scope
            await scene.check_other(store)


@INDEX
async def test_a_damaged_line_of_the_journal_costs_itself_alone(tmp_path: Path, kept: bool) -> None:
    await scene.prepared(tmp_path)
    async with opened(tmp_path) as store:
        for name in ("one", "two", "three"):
            await store.claim("main", name, KEY.scope)
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"two"', b'"\xff"two'))
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        for name in ("one", "three"):
            assert await store.claim("main", name, Scope("main", "nobody")) == KEY.scope


# Blobs


@INDEX
async def test_a_damaged_blob_costs_itself_alone(tmp_path: Path, kept: bool) -> None:
    await scene.prepared(tmp_path)
    async with opened(tmp_path) as store:
        bad = await store.put_blob(KEY.scope, b"to be damaged")
        good = await store.put_blob(KEY.scope, b"to be kept")
    scene.only(tmp_path, f"blobs/*/{bad.sha256}").write_bytes(b"damaged")
    if not kept:
        scene.forget_index(tmp_path)
    async with opened(tmp_path) as store:
        assert await store.get_blob(KEY.scope, good) == b"to be kept"
        with pytest.raises(BlobNotFound):
            await store.get_blob(KEY.scope, bad)


# While others look on


async def test_damage_is_met_by_a_store_that_is_open(tmp_path: Path) -> None:
    files = await scene.prepared(tmp_path)
    async with opened(tmp_path) as store:
        assert len(await read_all(store)) == COUNT
        text = files[KEY].read_bytes()
        files[KEY].write_bytes(text[:-10])
        assert await seqs(store) == [1, 2, 3, 4]
        await scene.check_goes_on(store, 4)
        await asyncio.to_thread(scene.zeroed, files[KEY], 3)
        with pytest.raises(LogDamaged):
            await seqs(store)
        await scene.check_other(store)

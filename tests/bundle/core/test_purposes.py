"""What a bundle is for: to be shared, copied or moved; what may be continued where; and that the
same bundle twice is one session."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Appended,
    InvalidValue,
    LeaseHeld,
    NotContinuable,
    Scope,
    SessionExists,
    SessionMoved,
    SessionNotFound,
    Store,
    connect,
    export_bundle,
    import_bundle,
    key,
)
from holdfast.bundle import Bundle, BundleLimits
from holdfast.log.catalog import PendingQuery
from holdfast.log.state import fold
from holdfast.stores.memory import MemoryStore
from tests.copy.scene import SHOP, answered, content, events_of, rows_of, said, shop, waiting

from .scene import KINDS, new

WAITS = Scope("main", "waits")


async def kinds(store: Store, scope: Scope) -> list[str]:
    return [
        event.kind for event in await events_of(store, key(scope.session, "main", scope.tenant))
    ]


# Sharing


@pytest.mark.parity("harn-bundle", 3)
async def test_by_default_a_bundle_is_sanitised_and_to_be_shared() -> None:
    store = MemoryStore()
    await shop(store)
    document = (await export_bundle((store, SHOP))).document
    assert (document.mode, document.purpose) == ("sanitized", "share")
    assert document.redaction.mode == "sanitized"


async def test_what_is_open_in_a_shared_bundle_is_not_continued() -> None:
    source, target = MemoryStore(), MemoryStore()
    await waiting(source)
    shared = await export_bundle((source, WAITS), "local")
    assert [item.id for item in shared.document.pending] == ["p1"]
    with pytest.raises(NotContinuable) as refused:
        await import_bundle(target, shared)
    assert "copy" in refused.value.remedy
    assert await content(target, WAITS) == await content(MemoryStore(), WAITS)


async def test_a_shared_bundle_in_which_nothing_is_open_goes_on() -> None:
    source, target = MemoryStore(), MemoryStore()
    events = [new("session.created"), said("hello"), answered("hello")]
    await source.append(key("s"), events, create=True)
    await import_bundle(target, await export_bundle((source, Scope("main", "s")), "local"))
    await target.append(key("s"), [said("and now?")])
    assert await kinds(target, Scope("main", "s")) == [
        *await kinds(source, Scope("main", "s")),
        "message.received",
    ]


# Copying


async def test_a_copy_leaves_nothing_open_and_the_source_alone() -> None:
    source, target = MemoryStore(), MemoryStore()
    await waiting(source)
    before = await content(source, WAITS)
    made = await export_bundle((source, WAITS), "local", purpose="copy")
    again = await export_bundle((source, WAITS), "local", purpose="copy")
    assert again.to_json() == made.to_json()
    assert await content(source, WAITS) == before
    assert (made.document.pending, made.document.queue) == ([], [])
    await import_bundle(target, made)
    events = await events_of(target, key("waits"))
    assert [event.kind for event in events[7:]] == [
        "pending.settled",
        "tool.finished",
        "tool.finished",
        "tool.finished",
        "run.finished",
    ]
    assert events[7].json()["outcome"] == "abandoned"
    assert made.thread().added == 5
    state = fold(events)
    assert (state.active, state.pending, state.calls) == (None, {}, {})
    assert not (await target.pending(PendingQuery(tenant="main"))).items
    assert await target.runnable("main", agents=["shop"]) == []


# Moving


async def test_a_move_seals_the_source_and_what_is_open_goes_on_there() -> None:
    source, target = MemoryStore(), MemoryStore()
    await waiting(source)
    made = await export_bundle((source, WAITS), "local", purpose="move", move_to="the laptop")
    assert made.document.source.status == "waiting"
    with pytest.raises(SessionMoved) as moved:
        await source.append(key("waits"), [said("hello?")])
    assert moved.value.to == "the laptop"
    await import_bundle(target, made)
    assert [item.id for item in (await target.pending(PendingQuery(tenant="main"))).items] == ["p1"]
    assert await kinds(target, WAITS) == (await kinds(source, WAITS))[:-1]
    await target.append(key("waits"), [said("go on")])


async def test_a_move_that_is_repeated_gives_the_same_bundle() -> None:
    source = MemoryStore()
    await waiting(source)
    made = await export_bundle((source, WAITS), "local", purpose="move", move_to="there")
    again = await export_bundle((source, WAITS), "local", purpose="move", move_to="there")
    assert again.to_json() == made.to_json()
    with pytest.raises(SessionMoved):
        await export_bundle((source, WAITS), "local", purpose="move", move_to="elsewhere")


async def test_a_move_whose_export_fails_leaves_the_source_open(tmp_path: Path) -> None:
    source = MemoryStore()
    await waiting(source)

    def full(events: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(OSError, match="no space"):
        await export_bundle(
            (source, WAITS), "local", purpose="move", to=tmp_path / "a.zip", progress=full
        )
    await source.append(key("waits"), [said("still here")])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["missing/a.zip", "."])
async def test_where_no_file_can_be_nothing_is_begun(tmp_path: Path, name: str) -> None:
    source = MemoryStore()
    await waiting(source)
    before = (await rows_of(source, WAITS))["main"].head
    with pytest.raises(InvalidValue) as refused:
        await export_bundle((source, WAITS), "local", purpose="move", to=tmp_path / name)
    assert refused.value.field == "to"
    assert (await rows_of(source, WAITS))["main"].head == before


async def test_a_thread_that_is_begun_during_a_move_comes_along() -> None:
    source = MemoryStore()
    await waiting(source)
    begun: list[asyncio.Task[Appended]] = []

    def begin(events: int) -> None:
        if not begun:
            late = source.append(key("waits", thread="late"), [said("wait")], create=True)
            begun.append(asyncio.get_running_loop().create_task(late))

    made = await export_bundle((source, WAITS), "local", purpose="move", progress=begin)
    assert {thread.thread for thread in made.document.threads} == {"main", "late"}
    assert all(row.sealed for row in (await rows_of(source, WAITS)).values())


async def test_what_is_being_driven_is_not_moved() -> None:
    source = MemoryStore()
    await waiting(source)
    await source.acquire(key("waits"), "somebody")
    with pytest.raises(LeaseHeld):
        await export_bundle((source, WAITS), "local", purpose="move")
    assert (await rows_of(source, WAITS))["main"].sealed is None


async def test_a_moved_session_goes_on_in_one_place_only() -> None:
    source, target = MemoryStore(), MemoryStore()
    await waiting(source)
    made = await export_bundle((source, WAITS), "local", purpose="move")
    first = await import_bundle(target, made)
    second = await import_bundle(target, made, session="another")
    assert (first.fresh, second.fresh) == (True, False)
    assert second.scope == first.scope == WAITS
    assert await target.row(key("another")) is None


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sanitized"},
        {"threads": ["main"]},
        {"upto": 3},
        {"purpose": "copy", "move_to": "x"},
        {"mode": "fast"},
        {"purpose": "steal"},
        {"purpose": "share", "threads": []},
        {"purpose": "share", "threads": "main"},
        {"purpose": "share", "upto": 0},
        {"purpose": "share", "upto": 2, "threads": ["main", "side"]},
        {"move_to": ""},
    ],
)
async def test_an_export_that_contradicts_itself_is_refused(options: dict[str, Any]) -> None:
    source = MemoryStore()
    await waiting(source)
    with pytest.raises(InvalidValue):
        await export_bundle((source, WAITS), **{"mode": "local", "purpose": "move", **options})
    assert (await rows_of(source, WAITS))["main"].sealed is None


async def test_what_is_not_there_is_not_exported() -> None:
    source = MemoryStore()
    with pytest.raises(SessionNotFound):
        await export_bundle((source, WAITS))
    await waiting(source)
    with pytest.raises(SessionNotFound):
        await export_bundle((source, WAITS), threads=["main", "side"])
    with pytest.raises(SessionNotFound):
        await export_bundle((source, WAITS), upto=2, threads=["side"])


# Importing


@pytest.mark.parity("harn-bundle", 80)
async def test_what_is_redacted_goes_on_only_if_that_is_accepted() -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    sanitized = await export_bundle((source, SHOP), purpose="copy")
    with pytest.raises(NotContinuable):
        await import_bundle(target, sanitized)
    assert (await import_bundle(target, sanitized, accept_redacted=True)).fresh
    structure = await export_bundle((source, SHOP), "replay_only", purpose="copy")
    for accept in (False, True):
        with pytest.raises(NotContinuable):
            await import_bundle(MemoryStore(), structure, accept_redacted=accept)


@pytest.mark.parametrize("mode", ["local", "sanitized", "replay_only"])
async def test_any_bundle_can_be_read_and_does_not_go_on(mode: Any) -> None:
    source, target = MemoryStore(), MemoryStore()
    await waiting(source)
    made = await export_bundle((source, WAITS), mode)
    done = await import_bundle(target, made, purpose="read")
    assert (done.fresh, done.purpose) == (True, "read")
    session = key(done.session, tenant=done.tenant)
    events = await events_of(target, session)
    assert [event.kind for event in events[:-1]] == await kinds(source, WAITS)
    assert events[-1].kind == "session.moved"
    with pytest.raises(SessionMoved):
        await target.append(session, [said("hello?")])
    assert await target.runnable("main", agents=["shop"]) == []
    assert not (await import_bundle(target, made, purpose="read")).fresh
    assert (await export_bundle((target, done.scope), mode)).raw["threads"] == made.raw["threads"]
    copied = await export_bundle((source, WAITS), "local", purpose="copy")
    with pytest.raises(SessionExists):
        await import_bundle(target, copied, session=done.session, tenant=done.tenant)


@pytest.mark.parametrize("kind", KINDS)
async def test_reading_is_the_same_on_every_store(kind: str, tmp_path: Path) -> None:
    source = MemoryStore()
    await shop(source)
    made = await export_bundle((source, SHOP), "local")
    async with connect(KINDS[kind](tmp_path)) as target:
        await import_bundle(target, made, purpose="read")
        for row in (await rows_of(target)).values():
            assert row.sealed is not None
            with pytest.raises(SessionMoved):
                await target.append(row.key, [said("hello?")])
        assert [damage async for damage in target.verify() if damage.problem != "claim"] == []
        again = await export_bundle((target, SHOP), "local")
        assert again.raw["parts"] == made.raw["parts"]
        assert again.raw["threads"] == made.raw["threads"]


async def test_what_was_imported_to_be_read_is_not_continued_under_its_id() -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    made = await export_bundle((source, SHOP), "local", purpose="copy")
    await import_bundle(target, made, purpose="read")
    assert await target.claims(SHOP) == [f"bundle:{made.id}"]
    with pytest.raises(SessionExists):
        await import_bundle(target, made)
    assert (await import_bundle(target, made, session="goes-on")).fresh


@pytest.mark.parity("harn-bundle", 77)
async def test_the_same_bundle_twice_is_one_session() -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    made = await export_bundle((source, SHOP), "local")
    first = await import_bundle(target, made)
    await target.append(key(SHOP.session), [said("more")])
    before = await content(target)
    second = await import_bundle(target, made.to_json())
    assert (first.fresh, second.fresh) == (True, False)
    assert first.scope == second.scope
    assert await content(target) == before
    other = await import_bundle(target, made, session="other")
    assert (other.fresh, other.session) == (True, "other")
    assert not (await import_bundle(target, made, session="other")).fresh


async def test_two_imports_at_once_make_one_session(tmp_path: Path) -> None:
    source = MemoryStore()
    await shop(source)
    made = (await export_bundle((source, SHOP), "local")).to_json()
    async with connect(f"sqlite:{tmp_path}/s.db") as target:
        done = await asyncio.gather(*(import_bundle(target, made) for _ in range(4)))
        assert {one.scope for one in done} == {SHOP}
        after = await content(target)
        assert {**after, "claims": ()} == {**await content(source), "claims": ()}


async def test_another_session_under_that_id_is_left_alone() -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    made = await export_bundle((source, SHOP), "local")
    await target.append(key(SHOP.session), [new("session.created")], create=True)
    before = await content(target)
    with pytest.raises(SessionExists):
        await import_bundle(target, made)
    assert await content(target) == before
    with pytest.raises(SessionExists):
        await import_bundle(source, made)
    assert f"bundle:{made.id}" not in await source.claims(SHOP)


async def test_a_name_that_another_session_holds_stays_there() -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    other = Scope("main", "other")
    await target.claim("main", "order:42", other)
    done = await import_bundle(target, await export_bundle((source, SHOP), "local"))
    assert done.held == ("order:42",)
    assert await target.claims(other) == ["order:42"]
    left = await import_bundle(
        MemoryStore(), await export_bundle((source, SHOP), "local"), names=False
    )
    assert left.held == ()


class Refusing(MemoryStore):
    """A store that fails at the third thread it is to restore."""

    left = 3

    async def restore(self, key: Any, events: Any, *, parent: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError("the disk is full")
        await super().restore(key, events, parent=parent)


async def test_an_import_that_fails_leaves_nothing() -> None:
    source, target = MemoryStore(), Refusing()
    await shop(source)
    made = await export_bundle((source, SHOP), "local")
    with pytest.raises(OSError, match="disk"):
        await import_bundle(target, made)
    assert await content(target) == await content(MemoryStore())
    target.left = 100
    assert (await import_bundle(target, made)).fresh
    assert (await export_bundle((target, SHOP), "local")).to_json() == made.to_json()


async def test_an_import_that_was_cut_is_finished_by_the_same_call() -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    made = await export_bundle((source, SHOP), "local")
    await import_bundle(target, made)
    for thread in ("deeper", "side"):  # as if they had not been written yet
        await target.delete(key(SHOP.session, thread))
    assert (await import_bundle(target, made)).fresh
    assert (await export_bundle((target, SHOP), "local")).to_json() == made.to_json()


# Parts of a session


@pytest.mark.parity("harn-bundle", 105)
async def test_a_prefix_is_the_log_as_it_was_then() -> None:
    source, target = MemoryStore(), MemoryStore()
    await waiting(source)
    made = await export_bundle((source, WAITS), "local", upto=2)
    assert (made.document.source.upto, made.thread().head) == (2, 2)
    assert [event.kind for event in made.events()] == ["session.created", "message.received"]
    assert made.document.session.claims == []
    copied = await export_bundle((source, WAITS), "local", upto=5, purpose="copy")
    await import_bundle(target, copied)
    state = fold(await events_of(target, key("waits")))
    assert (state.active, state.calls) == (None, {})
    past = await export_bundle((source, WAITS), "local", upto=1_000)
    assert past.thread().head == 7


async def test_one_thread_comes_alone_with_all_that_it_was_forked_from() -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    made = await export_bundle((source, SHOP), "local", threads=["deeper"])
    assert [thread.thread for thread in made.document.threads] == ["deeper"]
    assert (made.thread("deeper").shared, made.thread("deeper").parent) == (6, None)
    await import_bundle(target, made)
    there = key(SHOP.session, "deeper")
    assert await events_of(target, there) == await events_of(source, there)
    again = await export_bundle((target, SHOP), "local", threads=["deeper"])
    assert again.to_json() == made.to_json()
    cut = await export_bundle((source, SHOP), "local", threads=["deeper"], upto=3)
    assert (cut.thread("deeper").shared, cut.thread("deeper").head) == (0, 3)
    assert (await import_bundle(MemoryStore(), cut, purpose="read")).events == 3


async def test_more_threads_and_blobs_than_an_import_takes_are_not_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = MemoryStore()
    await shop(source)
    for limits, field in ((BundleLimits(threads=4), "threads"), (BundleLimits(parts=12), "blobs")):
        monkeypatch.setattr("holdfast.bundle.write.BUNDLE_LIMITS", limits)
        with pytest.raises(InvalidValue) as refused:
            await export_bundle((source, SHOP), "local")
        assert refused.value.field == field
    assert (await export_bundle((source, SHOP), "local", attachments=False)).document.blobs


async def test_a_large_bundle_is_not_held_in_memory(tmp_path: Path) -> None:
    source = MemoryStore()
    await shop(source)
    for n in range(5):
        data = {"text": f"{n}" + "x" * (4 << 20)}
        await source.append(key(SHOP.session), [new("message.received", data)])
    with pytest.raises(InvalidValue) as refused:
        await export_bundle((source, SHOP), "local")
    assert refused.value.field == "to"
    with pytest.raises(InvalidValue):
        await export_bundle((source, SHOP), "local", to=tmp_path / "a.json")
    assert os.listdir(tmp_path) == []
    written = await export_bundle((source, SHOP), "local", to=tmp_path / "a.zip")
    assert written.document.transcript.sections[0].part is None
    assert isinstance(written.path, str)
    target = MemoryStore()
    assert (await import_bundle(target, tmp_path / "a.zip", purpose="read")).events == 19
    assert not isinstance(written, Bundle)


async def test_a_single_json_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    source = MemoryStore()
    await shop(source)
    await source.put_blob(SHOP, bytes(13 << 20))  # as base64, more than 16 MiB
    with pytest.raises(InvalidValue, match="archive"):
        await export_bundle((source, SHOP), "local", purpose="move", to=tmp_path / "a.json")
    assert os.listdir(tmp_path) == []
    await source.append(key(SHOP.session), [said("still here")])
    await export_bundle((source, SHOP), "local", purpose="move", to=tmp_path / "a.zip")
    assert (await import_bundle(MemoryStore(), tmp_path / "a.zip")).fresh

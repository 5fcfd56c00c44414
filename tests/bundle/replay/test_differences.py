"""What two bundles do not have in common."""

from __future__ import annotations

from holdfast import NewEvent, key
from holdfast.bundle import Bundle, diff, export_bundle
from holdfast.events import Event
from holdfast.stores.memory import MemoryStore

from .scenes import KEY, SCENES, SCOPE


async def changed(store: MemoryStore, seq: int, **data: object) -> MemoryStore:
    """A copy of the session in which one event says something else."""
    other = MemoryStore()

    async def events() -> object:
        async for event in store.read(KEY):
            if event.seq == seq:
                one = NewEvent.of(event.kind, {**event.json(), **data}, id=event.id, run=event.run)
                yield Event(
                    kind=one.kind,
                    data=one.data,
                    id=one.id,
                    run=one.run,
                    actor=event.actor,
                    seq=seq,
                    at=event.at,
                )
            else:
                yield event

    await other.restore(KEY, events())  # type: ignore[arg-type]  # an async generator
    return other


async def local(store: MemoryStore) -> Bundle:
    return await export_bundle((store, SCOPE), "local")


async def test_the_same_session_is_the_same() -> None:
    store = MemoryStore()
    await SCENES["subagents"](store)
    found = await diff(await local(store), (await local(store)).to_json())
    assert found.same
    assert {thread.status for thread in found.threads} == {"same"}
    assert len(found.threads) == 3
    assert (found.facts, found.blobs_left, found.blobs_right) == ([], [], [])


async def test_the_first_event_that_differs_is_told_with_its_path() -> None:
    store = MemoryStore()
    await SCENES["tools"](store)
    calls = [e.seq async for e in store.read(KEY) if e.kind == "tool.finished"]
    other = await changed(store, calls[0], result={"order": "1", "state": "fine"})
    found = await diff(await local(store), await local(other))
    (thread,) = found.threads
    assert (thread.status, thread.same) == ("differs", calls[0] - 1)
    assert thread.first is not None
    assert (thread.first.seq, thread.first.path) == (calls[0], "data.result.state")
    assert (thread.first.left, thread.first.right) == ("broken", "fine")
    assert not found.same
    assert [fact.path for fact in found.facts if "hash" in fact.path] == [
        "$.tools.calls[0].result_hash"
    ]


async def test_a_log_that_begins_with_the_other_is_longer() -> None:
    store = MemoryStore()
    await SCENES["tools"](store)
    before = await local(store)
    await store.append(KEY, [NewEvent.of("message.received", {"text": "More."})])
    (thread,) = (await diff(await local(store), before)).threads
    assert (thread.status, thread.first, thread.left - thread.right) == ("longer", None, 1)
    (thread,) = (await diff(before, await local(store))).threads
    assert thread.status == "shorter"


async def test_threads_and_blobs_of_one_alone_are_told() -> None:
    store = MemoryStore()
    await SCENES["plain"](store)
    before = await local(store)
    forked = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
    await store.fork(key("s"), "what-if", at=2, first=forked)
    await store.put_blob(SCOPE, b"picture")
    found = await diff(before, await local(store))
    assert {thread.thread: thread.status for thread in found.threads} == {
        "main": "same",
        "what-if": "only_right",
    }
    assert (len(found.blobs_left), len(found.blobs_right)) == (0, 1)
    back = await diff(await local(store), before)
    assert [thread.status for thread in back.threads] == ["same", "only_left"]


async def test_bundles_of_two_modes_differ_in_what_was_replaced() -> None:
    store = MemoryStore()
    await SCENES["tools"](store)
    bare = await export_bundle((store, SCOPE), "replay_only")
    found = await diff(await local(store), bare)
    assert found.threads[0].status == "differs"
    assert ("$.mode", "local", "replay_only") in [(f.path, f.left, f.right) for f in found.facts]

"""Faults strike at the call that was planned, before or after its work, and nowhere else."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator

import pytest

from holdfast import NewEvent, Query, Store, StoreUnavailable, connect, key
from holdfast.testing.faults import Fail, FaultyStore, Stall

KEY = key("s")


def note(n: int) -> NewEvent:
    return NewEvent.of("note.made", {"n": n}, id=f"note-{n}")


@pytest.fixture
async def faulty() -> AsyncGenerator[FaultyStore, None]:
    async with connect("memory:") as store:
        await store.append(KEY, [note(1)], create=True)
        yield FaultyStore(store)


async def seqs(store: Store) -> list[int]:
    return [event.seq async for event in store.read(KEY)]


async def test_without_a_plan_it_is_the_store_inside(faulty: FaultyStore) -> None:
    store: Store = faulty
    assert (await store.append(KEY, [note(2)])).head == 2
    assert [row.session for row in (await store.find(Query())).items] == ["s"]
    assert (await seqs(store), store.info()) == ([1, 2], faulty.inner.info())
    assert faulty.calls == {"append": 1, "find": 1, "read": 1}


async def test_a_lost_request_wrote_nothing(faulty: FaultyStore) -> None:
    faulty.plan.append(Fail(method="append"))
    with pytest.raises(StoreUnavailable):
        await faulty.append(KEY, [note(2)])
    assert await seqs(faulty) == [1]
    assert (await faulty.append(KEY, [note(2)])).fresh == 1


async def test_the_retry_after_a_lost_reply_is_a_no_op_with_the_same_numbers(
    faulty: FaultyStore,
) -> None:
    faulty.plan.append(Fail(method="append", after=True))
    with pytest.raises(StoreUnavailable):
        await faulty.append(KEY, [note(2), note(3)], expected=1)
    retried = await faulty.append(KEY, [note(2), note(3)], expected=1)
    assert (retried.seqs, retried.head, retried.fresh) == ((2, 3), 3, 0)
    assert await seqs(faulty) == [1, 2, 3]


async def test_only_the_planned_call_of_the_planned_method_fails(faulty: FaultyStore) -> None:
    faulty.plan += [Fail(method="append", call=2), Fail(method="row", error=OSError("disk"))]
    await faulty.append(KEY, [note(2)])
    with pytest.raises(StoreUnavailable):
        await faulty.append(KEY, [note(3)])
    await faulty.append(KEY, [note(4)])
    with pytest.raises(OSError, match="disk"):
        await faulty.row(KEY)
    assert await seqs(faulty) == [1, 2, 3]


@pytest.mark.parametrize("after", [False, True])
async def test_a_stalled_call_waits_until_it_may_go_on(faulty: FaultyStore, after: bool) -> None:
    stall = Stall(method="append", after=after)
    faulty.plan.append(stall)
    writing = asyncio.create_task(faulty.append(KEY, [note(2)]))
    await stall.reached.wait()
    assert not writing.done()
    assert await seqs(faulty) == ([1, 2] if after else [1])
    stall.go.set()
    assert (await writing).head == 2


async def test_a_stream_fails_before_its_first_item_or_behind_it(faulty: FaultyStore) -> None:
    await faulty.append(KEY, [note(2), note(3)])
    faulty.plan += [Fail(method="read"), Fail(method="read", call=2, after=True)]
    seen: list[list[int]] = []
    for _ in range(3):
        seen.append([])
        try:
            async for event in faulty.read(KEY):
                seen[-1].append(event.seq)
        except StoreUnavailable:
            seen[-1].append(-1)
    assert seen == [[-1], [1, -1], [1, 2, 3]]


async def test_an_empty_stream_fails_at_its_end(faulty: FaultyStore) -> None:
    faulty.plan.append(Fail(method="verify", after=True))
    with pytest.raises(StoreUnavailable):
        assert [damage async for damage in faulty.verify()] == []


def test_it_has_every_method_of_the_port() -> None:
    for name, method in inspect.getmembers(Store, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(FaultyStore, name)) == inspect.signature(method)


@pytest.mark.parametrize(("after", "kept"), [(False, [1]), (True, [1, 2])])
def test_a_death_kills_the_process_at_that_call(after: bool, kept: list[int]) -> None:
    child = textwrap.dedent(f"""
        import asyncio
        from holdfast import NewEvent, connect, key
        from holdfast.testing.faults import Die, FaultyStore

        async def main():
            inner = await connect("memory:")
            append = inner.append
            async def told(*args, **more):
                done = await append(*args, **more)
                print(done.head, flush=True)
                return done
            inner.append = told
            store = FaultyStore(inner, [Die(method="append", call=2, after={after})])
            for _ in range(5):
                await store.append(key("s"), [NewEvent.of("note.made")], create=True)

        asyncio.run(main())
    """)
    ran = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == -signal.SIGKILL
    assert [int(line) for line in ran.stdout.split()] == kept


def test_faults_need_no_pytest() -> None:
    code = "import sys, holdfast.testing.faults; print('pytest' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert ran.stdout.split() == [b"False"]

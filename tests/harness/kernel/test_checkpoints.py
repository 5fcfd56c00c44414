"""Going back: named places, threads that fork from any event, and what they take along."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Harness, InvalidValue, Mode, SessionExists, UnsafePoint, tool
from holdfast.models.scripted import Fail, Say, ScriptedModel, Use

from .scene import Slow, helper, read, script, serve


@pytest.mark.parity("harness-kernel", 97)
async def test_places_are_named_listed_and_forgotten(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    async with serve(helper(), "hi", store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.send("one")
        first = await session.checkpoints.create("before", {"why": "to try"})
        second = await session.checkpoints.create()
    async with serve(helper(), "hi", store=storage) as harness:
        checkpoints = (await harness.get_or_create("s")).checkpoints
        assert await checkpoints.list() == [first, second]
        assert await checkpoints.get(first.id) == first
        assert (first.label, first.metadata) == ("before", {"why": "to try"})
        assert await checkpoints.delete(first.id)
        assert not await checkpoints.delete(first.id)
        assert await checkpoints.get(first.id) is None
        assert await checkpoints.list() == [second]


@pytest.mark.parity("harness-kernel", 98)
async def test_every_message_has_a_place_before_it() -> None:
    model = script(lambda call: f"re {read(call)[-1]}")
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        for text in ("one", "two", "three"):
            await session.send(text)
        before = await session.transcript()
        asked = [m for m in before if m.role == "user"]
        for n, message in enumerate(asked):
            other = await session.threads.edit(message.seq, "instead")
            result = await other.wait()
            assert result.text == "re user: instead"
            assert read(model.calls[-1]) == [
                *[line for m in before[: 2 * n] for line in [_line(m.role, m.text)]],
                "user: instead",
            ]
        assert await session.transcript() == before
        again = await session.threads.regenerate(asked[1].seq)
        assert (await again.wait()).text == "re user: two"


def _line(role: str, text: str) -> str:
    return f"{'user' if role == 'user' else 'model'}: {text}"


@pytest.mark.parity("harness-kernel", 99)
async def test_a_thread_goes_on_from_a_place_as_it_was_there() -> None:
    models = [
        ScriptedModel(["a"], ref="a/m", repeat=True),
        ScriptedModel(["b"], ref="b/m", repeat=True),
    ]
    agent = helper(modes=[Mode("one"), Mode("two")], state={"n": 0})
    async with Harness(agent, providers=models, default_model="a/m") as harness:
        session = await harness.get_or_create("s")
        await session.send("first")
        await session.state.update(n=1)
        await session.mode.switch("two")
        await session.model.set("b/m")
        place = await session.checkpoints.create("here")
        told = await session.transcript()
        await session.send("second")
        await session.state.replace({"n": 2, "more": True})
        await session.mode.switch("one")
        await session.model.clear()
        back = await session.threads.restore(place.id)
        assert (back.mode.name, back.model.chosen) == ("two", "b/m")
        assert back.state.get() == {"n": 1}
        assert await back.transcript() == told
        assert (await back.send("third")).text == "b"
        assert (session.mode.name, session.model.chosen) == ("one", None)
        with pytest.raises(InvalidValue):
            await session.threads.restore("nobody")


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.mark.parity("user-demand", 77)
@pytest.mark.parity("harness-kernel", 100)
async def test_where_something_is_open_there_is_no_going_back_to() -> None:
    async with serve(helper(tools=[pay]), Say(calls=[Use("pay")]), "ok") as harness:
        session = await harness.get_or_create("s")
        place = await session.checkpoints.create()
        await session.send("go")
        with pytest.raises(UnsafePoint) as caught:
            await session.threads.fork()
        assert caught.value.nearest >= place.seq
        near = await session.threads.fork(at=caught.value.nearest)
        assert near.status.pending == 0
        assert session.status.pending == 1  # nothing is taken from the thread that waits
        await session.approve()
        assert (await session.wait()).text == "ok"


@pytest.mark.parity("harness-kernel", 100)
async def test_a_run_that_goes_on_is_not_disturbed_by_one_who_goes_back() -> None:
    model = Slow(quick=["elsewhere"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        place = await session.checkpoints.create()
        await session.post("go")
        await model.gate.someone()
        with pytest.raises(UnsafePoint):
            await session.threads.fork()
        other = await session.threads.restore(place.id)
        assert (await other.send("elsewhere")).text == "quick elsewhere"
        model.gate.open()
        assert (await session.wait()).text == "Let me see."


@pytest.mark.parity("harness-kernel", 101)
async def test_one_can_go_back_after_a_failure() -> None:
    model = script(
        lambda call: Fail(RuntimeError("no")) if read(call)[-1].endswith("bad") else "fine",
    )
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        place = await session.checkpoints.create()
        assert (await session.send("bad")).status == "failed"
        back = await session.threads.restore(place.id)
        assert back.status.phase == "idle"
        assert (await back.send("good")).text == "fine"
        after = await session.threads.fork()
        assert (await after.send("good")).text == "fine"


@pytest.mark.parity("user-demand", 77)
@pytest.mark.parity("harness-kernel", 103)
async def test_a_fork_keeps_what_it_left_and_both_go_on() -> None:
    async with serve(helper(), "one", "two", default_model=script("hi")) as harness:
        session = await harness.get_or_create("s")
        first = await session.send("a")
        await session.send("b")
        side = await session.threads.fork(at=first.seq, thread="side", title="Another way")
        await side.send("c")
        assert [m.text for m in await side.transcript()] == ["a", "hi", "c", "hi"]
        assert [m.text for m in await session.transcript()] == ["a", "hi", "b", "hi"]
        threads = await harness.list(session="s")
        assert sorted(row.key.thread for row in threads.items) == ["main", "side"]
        with pytest.raises(SessionExists):
            await session.threads.fork(thread="side")
        assert await harness.get_or_create("s", thread="side") is side
        deeper = await side.threads.fork()
        await deeper.send("d")
        assert [m.text for m in await deeper.transcript()][-2:] == ["d", "hi"]


@pytest.mark.parity("harness-kernel", 99)
async def test_a_place_in_another_thread_has_the_state_that_all_threads_had_then() -> None:
    async with serve(helper(state={"n": 0}), "hi") as harness:
        main = await harness.get_or_create("s")
        await main.send("x")
        side = await main.threads.fork(thread="side")
        await side.state.update(n=1)
        place = await side.checkpoints.create()
        await main.state.update(n=2)
        back = await side.threads.restore(place.id)
        assert back.state.get() == main.state.get() == {"n": 1}

"""Approvals: each reaches its own call, is decided once, and is bound to what was shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    Agent,
    AlreadyDecided,
    Event,
    Harness,
    InvalidValue,
    Store,
    ToolMissing,
    connect,
    key,
    tool,
)
from holdfast.harness.host import sessions_of
from holdfast.harness.live.decisions import settle_pending
from holdfast.harness.session.session import Session, core_of
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.harness.tools import Tool, ToolContext
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.stores.memory import MemoryStore
from tests.harness.kernel.scene import until

AT = key("s")
PATIENCE = 20.0


class Paid:
    """What a payment service was asked to do."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []

    def tool(self, name: str = "pay", **options: object) -> Tool:
        def pay(n: int, context: ToolContext) -> str:
            """Pay."""
            self.done.append((context.key, n))
            return f"paid {n}"

        return tool(pay, name=name, **{"approval": "ask", **options})  # type: ignore[call-overload, no-any-return]


def harness(store: Store | str, *tools: Tool, calls: int = 1, ttl: float = 15.0) -> Harness:
    use = [Use(tools[0].name if tools else "pay", n=n) for n in range(1, calls + 1)]
    return Harness(
        Agent("Pay", instructions="Pay.", tools=tools),
        default_model=ScriptedModel([Say("So.", calls=use), "Done.", "Thanks."]),
        store=store,
        ttl=ttl,
        logging=LogConfig(level="silent"),
    )


async def restored(events: Iterable[Event]) -> MemoryStore:
    """A store that holds what a process had written when it died."""

    async def all() -> AsyncIterator[Event]:
        for event in events:
            yield event

    store = MemoryStore()
    await store.restore(AT, all())
    return store


async def results(session: Session) -> list[object]:
    calls = [call for message in await session.transcript() for call in message.calls]
    return [(c.arguments["n"], c.outcome.outcome, c.outcome.result) for c in calls if c.outcome]


@given(st.permutations(range(5)), st.lists(st.sampled_from("ynea"), min_size=5, max_size=5))
@pytest.mark.parity("user-demand", 15)
def test_five_at_once_are_answered_in_any_order(order: list[int], how: list[str]) -> None:
    async def check() -> None:
        paid = Paid()
        async with harness(MemoryStore(), paid.tool(), calls=5) as serving:
            session = await serving.get_or_create("s")
            waiting = (await session.send("Pay five.")).pending
            assert [ask.arguments["n"] for ask in waiting] == [1, 2, 3, 4, 5]
            for place in order:
                await _answer(session, waiting[place].id, how[place])
            async with asyncio.timeout(PATIENCE):
                assert (await session.wait()).status == "done"
            wanted = [_result(n + 1, how[n]) for n in range(5)]
            assert await results(session) == wanted
            places = {ask.call: n for n, ask in enumerate(waiting)}
            assert {places[k]: n for k, n in paid.done} == {
                n: 99 if how[n] == "e" else n + 1 for n in range(5) if how[n] in "ye"
            }
            assert len(paid.done) == len({k for k, _ in paid.done})

    asyncio.run(check())


def _result(n: int, how: str) -> tuple[int, str, str]:
    return {
        "y": (n, "ok", f"paid {n}"),
        "n": (n, "denied", "This call was denied. Reason: no"),
        "e": (n, "ok", "paid 99"),
        "a": (n, "denied", "This call was denied. Reason: elsewhere"),
    }[how]


async def _answer(session: Session, item: str, how: str) -> None:
    match how:
        case "y":
            await session.approve(item, actor="ann")
        case "n":
            await session.deny(item, "no", actor="ann")
        case "e":
            await session.approve(item, arguments={"n": 99}, actor="ann")
        case _:
            with pytest.raises(InvalidValue, match="approve it"):
                await session.answer("elsewhere", item, actor="ann")
            await session.deny(item, "elsewhere", actor="ann")


@pytest.mark.parity("user-demand", 14, 16)
async def test_of_two_approvers_at_once_one_is_told_who_was_first(tmp_path: Path) -> None:
    paid = Paid()
    url = f"sqlite:{tmp_path / 'one.db'}"
    async with harness(url, paid.tool()) as serving, connect(url) as other:
        session = await serving.get_or_create("s")
        (ask,) = (await session.send("Pay.")).pending
        (listed,) = (await serving.pending()).items
        assert (listed.id, listed.call, listed.title) == (ask.id, ask.call, ask.title)
        answers = await asyncio.gather(
            session.approve(ask.id, actor="ann"),
            settle_pending(other, AT, ask.id, "denied", actor="bob"),
            return_exceptions=True,
        )
        (late,) = [answer for answer in answers if isinstance(answer, BaseException)]
        (first,) = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert isinstance(late, AlreadyDecided)
        (event,) = await session.events(kinds=("pending.settled",))
        assert (late.by, late.outcome, late.at) == (first.by, first.outcome, event.at)
        assert f"by {first.by}" in str(late)
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
        assert len(paid.done) == (first.outcome == "approved")


async def test_what_one_answers_who_serves_nobody_is_taken_up_where_the_session_is_open(
    tmp_path: Path,
) -> None:
    url, paid = f"sqlite:{tmp_path / 'one.db'}", Paid()
    async with harness(url, paid.tool(), ttl=600.0) as serving, connect(url) as other:
        session = await serving.get_or_create("s")
        (ask,) = (await session.send("Pay.")).pending
        await settle_pending(other, AT, ask.id, "approved", actor="bob")
        with pytest.raises(AlreadyDecided, match="by bob"):
            await session.approve(ask.id, actor="ann")
        assert core_of(session).live.state.pending == {}
        async with asyncio.timeout(PATIENCE):  # the next look for work is minutes away
            assert (await session.wait()).status == "done"
        assert len(paid.done) == 1


@pytest.mark.parametrize("when", ["pending.opened", "run.waiting"])
async def test_what_comes_as_a_driver_ends_is_not_left_to_the_next_look(when: str) -> None:
    store, paid = MemoryStore(), Paid()
    async with harness(store, paid.tool(), ttl=600.0) as serving:
        session = await serving.get_or_create("s")
        live = core_of(session).live

        def answer(event: Event) -> None:
            if event.kind == when:
                item = next(iter(live.state.pending))
                tasks.append(asyncio.create_task(settle_pending(store, AT, item, "approved")))

        tasks: list[asyncio.Task[object]] = []
        live.watchers.append(answer)
        await session.post("Pay.")
        async with asyncio.timeout(PATIENCE):
            await live.until(lambda: live.state.run is not None and not live.state.run.open)
        assert live.state.run is not None
        assert (live.state.run.status, len(paid.done)) == ("done", 1)
        await asyncio.gather(*tasks)


@pytest.mark.parity("user-demand", 17)
async def test_a_tool_that_changed_is_asked_about_again() -> None:
    store, before, after = MemoryStore(), Paid(), Paid()
    async with harness(store, before.tool()) as serving:
        session = await serving.get_or_create("s")
        (ask,) = (await session.send("Pay.")).pending
    await settle_pending(store, AT, ask.id, "approved", actor="ann")
    async with harness(store, after.tool(version="2")) as serving:
        session = await serving.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "waiting"
        (again,) = await session.pending()
        assert again.call == ask.call
        assert again.id != ask.id
        assert after.done == []
        await session.approve(again.id, actor="ann")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
    assert before.done == []
    assert after.done == [(ask.call, 1)]


@pytest.mark.parity("user-demand", 18)
async def test_a_tool_that_is_gone_stops_the_session_before_anything_happens() -> None:
    store, paid = MemoryStore(), Paid()
    async with harness(store, paid.tool()) as serving:
        (ask,) = (await serving.send("s", "Pay.")).pending
    await settle_pending(store, AT, ask.id, "approved", actor="ann")
    head = (await store.row(AT)).head  # type: ignore[union-attr]
    async with harness(store, paid.tool(name="other")) as serving:
        session = await serving.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ToolMissing, match="pay"):
                await session.wait()
        kinds = [event.kind for event in await session.events(after=head)]
        assert "tool.started" not in kinds
        assert paid.done == []
    async with harness(store, paid.tool()) as serving:
        session = await serving.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
    assert paid.done == [(ask.call, 1)]


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parity("user-demand", 17, 31)
async def test_what_a_person_changed_is_what_runs_after_a_crash_too(safe: bool) -> None:
    paid = Paid()
    async with harness(MemoryStore(), paid.tool(repeat_safe=safe)) as serving:
        session = await serving.get_or_create("s")
        await session.send("Pay.")
        await session.approve(arguments={"n": 7}, actor="ann")
        async with asyncio.timeout(PATIENCE):
            await session.wait()
        events = await session.events()
    begun = next(event.seq for event in events if event.kind == "tool.started")
    paid.done.clear()
    store = await restored(events[:begun])
    async with harness(store, paid.tool(repeat_safe=safe)) as serving:
        session = await serving.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            result = await session.wait()
            if not safe:
                (ask,) = result.pending
                assert (ask.what, ask.arguments) == ("external", {"n": 7})
                await session.approve(ask.id, actor="ann")
                result = await session.wait()
        assert result.status == "done"
        assert [n for _, n in paid.done] == [7]


@pytest.mark.parity("user-demand", 13)
async def test_what_was_asked_about_never_runs_because_the_question_is_gone() -> None:
    store, paid = MemoryStore(), Paid()
    async with harness(store, paid.tool()) as serving:
        session = await serving.get_or_create("s")
        await session.send("Pay.")
        (opened,) = await session.events(kinds=("pending.opened",))
    await store.erase(AT, [opened.seq], reason="by request")
    async with harness(store, paid.tool()) as serving:
        session = await serving.get_or_create("s")
        await session.post("Well?")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "waiting"
        assert paid.done == []
        (ask,) = await session.pending()
        await session.approve(ask.id, actor="ann")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
    assert len(paid.done) == 1


async def test_an_approval_continues_a_session_that_was_deleted_and_created_again() -> None:
    store, paid = MemoryStore(), Paid()
    async with harness(store, paid.tool()) as one, harness(store, paid.tool()) as two:
        session = await one.get_or_create("s")
        await session.send("Pay.")
        for n in range(10):
            await session.post(f"More {n}.")  # the old log is longer than the new one
        live = core_of(session).live
        await two.delete("s")
        await until(lambda: live.failure is not None)
        created = await two.get_or_create("s")
        waiting = await created.send("Pay.")
        approved = await one.approve("s", waiting.pending[0].id)
        async with asyncio.timeout(PATIENCE):
            await core_of(created).live.reach(approved.seq)
            result = await created.wait()
        assert (result.status, len(paid.done)) == ("done", 1)


async def test_a_log_that_was_created_again_is_not_driven_with_the_old_state() -> None:
    store, paid = MemoryStore(), Paid()
    async with harness(store, paid.tool()) as one, harness(store, paid.tool()) as two:
        session = await one.get_or_create("s")
        await session.send("Pay.")
        await session.post("More.")
        old, drivers = core_of(session).live, sessions_of(one).drivers
        await until(lambda: not drivers.drives(AT))
        await store.delete(AT)
        await (await two.get_or_create("s")).send("Pay.")
        drivers.wake(old)
        await until(lambda: not drivers.drives(AT))
        await store.release(await store.acquire(AT, "another process", ttl=1.0))
        assert old.log != core_of(await two.open("s")).live.log

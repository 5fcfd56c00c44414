"""What programs tell a session of: when its model reads it, and what becomes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.harness.session.notifications import ROUTES, Notice, route
from holdfast.harness.session.session import Session
from holdfast.models.scripted import ScriptedModel

from ..kernel.scene import PATIENCE, Slow, helper, kinds, read, script, serve, until


async def told(session: Session, priority: Any, **more: Any) -> Any:
    more = {"payload": {"n": 7}, **more}
    return await session.notifications.send(
        "github", "review", "Ann wants a change.", priority=priority, **more
    )


SHORT = "Notification from github (review, {}): Ann wants a change."


@pytest.mark.parity("mastra-session", 176)
@pytest.mark.parametrize(
    ("priority", "idle", "busy"),
    [
        ("urgent", "queue", "steer"),
        ("high", "queue", "queue"),
        ("medium", "queue", "mention"),
        ("low", "mention", "mention"),
    ],
)
def test_the_table(priority: Any, idle: str, busy: str) -> None:
    notice = Notice(source="a", kind="b", summary="c", priority=priority)
    assert [route(notice, going) for going in (False, True)] == [idle, busy]
    assert len(ROUTES) == 4


@pytest.mark.parity("mastra-session", 176)
@pytest.mark.parametrize("priority", ["medium", "high", "urgent"])
async def test_what_matters_has_a_run_of_its_own_while_nothing_goes_on(priority: Any) -> None:
    model = script("Seen.")
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        made = await told(session, priority)
        assert (made.route, made.notice.priority) == ("queue", priority)
        assert (await session.wait()).text == "Seen."
        assert read(model.calls[0]) == [f'user: {SHORT.format(priority)}\n{{"n":7}}']
        [event] = await session.events(kinds=("message.received",))
        assert (event.seq, event.actor) == (made.seq, "github")
        [listed] = await session.notifications.list()
        assert (listed.notice, listed.status) == (made.notice, "delivered")


@pytest.mark.parity("mastra-session", 176)
async def test_what_matters_little_waits_for_the_next_call_and_wakes_nobody() -> None:
    model = script("Hello.", repeat=True)
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        made = await told(session, "low")
        assert (made.route, made.status, session.run.id) == ("mention", "pending", None)
        assert "message.received" not in await kinds(session)
        await session.send("hi")
        assert read(model.calls[0]) == [f"user: {SHORT.format('low')} | hi"]
        [listed] = await session.notifications.list()
        assert listed.status == "delivered"
        await session.send("again")
        assert SHORT.format("low") not in str(read(model.calls[1])[-1])  # once


@pytest.mark.parity("mastra-session", 176)
@pytest.mark.parametrize("priority", ["low", "medium", "high", "urgent"])
async def test_while_a_run_is_going(priority: Any) -> None:
    full = f'{SHORT.format(priority)}\n{{"n":7}}'
    model = Slow(quick=[full, "next"])
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        made = await told(session, priority)
        assert made.status == "pending"
        assert made.route == {"urgent": "steer", "high": "queue"}.get(priority, "mention")
        assert [one.status for one in await session.notifications.list()] == ["pending"]
        model.gate.open()
        result = await sending
        last = await session.wait()
        if priority == "urgent":  # it joined the run
            assert (result.run, result.text) == (last.run, f"quick {full}")
        elif priority == "high":  # it came right behind it
            assert (result.text, last.text) == ("Let me see.", f"quick {full}")
            assert result.run != last.run
        else:  # the call that was going on had not read it, and did not use it up
            assert (result.run, len(model.calls)) == (last.run, 1)
            assert [one.status for one in await session.notifications.list()] == ["pending"]
            await session.send("next")
            assert SHORT.format(priority) in str(read(model.calls[-1]))
        assert [one.status for one in await session.notifications.list()] == ["delivered"]


async def test_it_is_there_once_and_after_a_restart(tmp_path: Path) -> None:
    url, model = f"sqlite:{tmp_path / 'n.db'}", ScriptedModel(["Hello."], per_turn=True)
    async with serve(helper(), default_model=model, store=url) as harness:
        session = await harness.get_or_create("s")
        first = await told(session, "low", key="8812")
        again = await told(session, "low", key="8812")
        assert again == first
        # With the same key it stays what it was, also where it would take another way now.
        assert await told(session, "urgent", key="8812") == first
        assert session.run.id is None
    async with serve(helper(), default_model=model, store=url) as harness:
        session = await harness.get_or_create("s")
        assert [one.seq for one in await session.notifications.list()] == [first.seq]
        await session.send("hi")
        assert SHORT.format("low") in str(read(model.calls[0]))


async def test_one_that_is_about_the_same_takes_the_place_of_the_other() -> None:
    model = script("Hello.")
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        for n in (1, 2, 3):
            await session.notifications.send(
                "ci", "build", f"{n} failed", priority="low", about="x"
            )
        assert [one.status for one in await session.notifications.list()] == [
            "replaced",
            "replaced",
            "pending",
        ]
        await session.send("hi")
        assert "3 failed" in str(read(model.calls[0]))
        assert "2 failed" not in str(read(model.calls[0]))
        assert [one.status for one in await session.notifications.list(limit=1)] == ["delivered"]


async def test_a_program_may_decide_otherwise_and_what_waits_can_be_taken_out() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        nothing = await told(session, "urgent", policy=lambda notice, busy: "drop")
        assert (nothing.status, nothing.seq) == ("dropped", 0)
        assert await session.notifications.list() == []
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        made = await told(session, "low", policy=lambda n, busy: "queue" if busy else "drop")
        await session.follow_ups.remove(made.seq)
        model.gate.open()
        await sending
        async with asyncio.timeout(PATIENCE):
            await until(lambda: session.run.id is None)
        assert [one.status for one in await session.notifications.list()] == ["dropped"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": ""},
        {"kind": "x" * 200},
        {"summary": 7},
        {"priority": "huge"},
        {"about": ""},
        {"key": ""},
        {"policy": lambda notice, busy: "shout"},
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(wrong: dict[str, Any]) -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        before = await session.events()
        given: dict[str, Any] = {"source": "a", "kind": "b", "summary": "c", **wrong}
        with pytest.raises(InvalidValue):
            await session.notifications.send(
                given.pop("source"), given.pop("kind"), given.pop("summary"), **given
            )
        assert await session.events() == before


async def test_mentions_that_nobody_reads_are_bounded() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        for n in range(100):
            await session.notifications.send("ci", "build", f"{n}", priority="low", key=str(n))
        with pytest.raises(InvalidValue, match="already has 100 unread notices"):
            await session.notifications.send("ci", "build", "more", priority="low")
        again = await session.notifications.send("ci", "build", "7", priority="low", key="7")
        assert again.status == "pending"  # what is there already is found
        await session.send("hi")
        assert (await session.notifications.send("ci", "b", "more", priority="low")).seq

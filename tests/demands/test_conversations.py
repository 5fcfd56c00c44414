"""Conversations that many take part in: people on several surfaces, timers, sub-agents and forks.
Each gets what is its own."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, Harness, Media, Sessions, connect, key, tool
from holdfast.bundle import export_bundle, import_bundle
from holdfast.harness.session.session import Session
from holdfast.models.port import ModelCall
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.store import wall_clock
from holdfast.testing.samples import read_all
from tests.harness.kernel.scene import PATIENCE, Slow, helper, only, read, script, serve, until
from tests.harness.subagents.scene import GO, child, lead, plays, sent

WEB, SLACK, MAIL = ("web", "thread-1"), ("slack", "D42"), ("mail", "ben@example.org")


@tool(approval="ask")
async def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


def echo(call: ModelCall) -> str:
    return f"re {read(call)[-1].removeprefix('user: ')}"


def paying(call: ModelCall) -> Say | str:
    """Pays first where it is told to, then answers."""
    last = read(call)[-1]
    return Say(calls=[Use("pay", order=last[-1])]) if "pay for" in last else echo(call)


# Surfaces


class Outbox:
    """What went out, by surface."""

    def __init__(self) -> None:
        self.sent: list[tuple[tuple[str, str], Any]] = []

    async def send(self, surface: str, address: str, message: Any) -> None:
        self.sent.append(((surface, address), message))

    def to(self, surface: tuple[str, str]) -> list[Any]:
        return [message for where, message in self.sent if where == surface]


async def gateway(session: Session, sessions: Sessions, outbox: Outbox, runs: int) -> None:
    """Send what a run says and asks to the surface that its message came by."""
    came: dict[int, tuple[str, str]] = {}
    by_run: dict[str | None, tuple[str, str]] = {}
    async for item in session.subscribe(after=0):
        if not isinstance(item, Event):
            continue
        data = item.json()
        if item.kind == "message.received":
            came[item.seq] = tuple(data["metadata"]["surface"])
        elif item.kind == "run.started":
            by_run[item.run] = came[data["inputs"][0]]
        elif item.kind in ("message.completed", "pending.opened"):
            words = data.get("text") or data.get("title")
            if words:
                await sessions.emit(session.id, words, outbox.send, to=[by_run[item.run]])
        elif item.kind == "run.finished":
            runs -= 1
            if not runs:
                return


@pytest.mark.parity("user-demand", 76)
async def test_what_a_run_says_and_asks_goes_to_the_surface_it_was_begun_from(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([paying], repeat=True)
    async with (
        asyncio.timeout(PATIENCE),
        connect(f"sqlite:{tmp_path / 'x.db'}") as store,
        serve(helper(tools=[pay]), default_model=model, store=store) as harness,
    ):
        sessions, outbox = Sessions(store), Outbox()
        session, other = [await harness.get_or_create(id, user="ann") for id in ("a", "b")]
        for surface in (WEB, SLACK):
            await sessions.attach_surface("a", *surface)
        await sessions.attach_surface("b", *MAIL)
        working = asyncio.create_task(gateway(session, sessions, outbox, 3))
        also = asyncio.create_task(gateway(other, sessions, outbox, 1))
        await session.post("hello", metadata={"surface": WEB})
        await session.post("pay for 7", metadata={"surface": SLACK})
        await session.post("and?", metadata={"surface": WEB})
        await other.send("secret", metadata={"surface": MAIL})
        await until(lambda: session.status.pending == 1)
        await session.approve()
        await asyncio.gather(working, also)
        log = await session.events()
        said = [data["text"] for data in only(log, "message.completed") if data.get("text")]
    assert outbox.to(WEB) == ["re hello", "re and?"]
    asked, answered = outbox.to(SLACK)
    assert "pay" in asked
    assert answered == "re tools: paid 7"
    assert outbox.to(MAIL) == ["re secret"]
    assert [m for where, m in outbox.sent if where != MAIL and m in said] == said  # one order


# Timers and people


@pytest.mark.parity("user-demand", 69)
async def test_timers_and_people_stand_in_one_line_and_get_their_own_answers() -> None:
    slow = Slow(quick=["tick", "person", "tock"])
    async with asyncio.timeout(PATIENCE), serve(helper(), default_model=slow, ttl=0.2) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await slow.gate.someone()
        await session.timers.set("tick", at=wall_clock() - 2)
        mine = asyncio.create_task(session.send("person", actor="ann"))
        await until(lambda: session.status.queued == 1)
        await session.timers.set("tock", at=wall_clock() - 1)
        assert len(slow.calls) == 1  # nobody breaks in on the run that is going
        slow.gate.open()
        answer = await mine
        await until(lambda: len(slow.calls) == 4 and session.status.phase == "idle")
        events = await session.events()
    assert (answer.text, answer.status) == ("quick person", "done")
    asked = {e.seq: e.json()["text"] for e in events if e.kind == "message.received"}
    said = {e.run: e.json()["text"] for e in events if e.kind == "message.completed"}
    started = [e for e in events if e.kind == "run.started"]
    answers = {tuple(asked[n] for n in e.json()["inputs"]): said[e.run] for e in started}
    assert answers == {
        ("go",): "Let me see.",
        ("tick",): "quick tick",
        ("person",): "quick person",
        ("tock",): "quick tock",
    }
    ended = [e.run for e in events if e.kind == "run.finished"]
    assert ended == [e.run for e in started]  # none began before the one before it had ended


@pytest.mark.parity("user-demand", 69)
async def test_an_approval_that_a_timer_needs_is_not_given_by_a_message_of_a_person() -> None:
    model = ScriptedModel([paying], repeat=True)
    async with (
        asyncio.timeout(PATIENCE),
        serve(helper(tools=[pay]), default_model=model, ttl=0.2) as harness,
    ):
        session = await harness.get_or_create("s")
        await session.timers.set("pay for 1", at=wall_clock() - 1)
        await until(lambda: session.status.pending == 1)
        (first,) = await session.pending()
        assert (await session.send("yes", actor="ann")).status == "queued"
        assert [ask.id for ask in await session.pending()] == [first.id]
        await session.post("pay for 2", actor="ben")
        await session.approve(first.id, actor="ann")
        await until(lambda: session.status.pending == 1 and len(model.calls) >= 4)
        (second,) = await session.pending()
        assert second.id != first.id
        await session.deny(second.id, "no")
        await session.wait()
        done = only(await session.events(), "tool.finished")
    assert [e.get("outcome", "ok") for e in done] == ["ok", "denied"]
    assert done[0]["result"] == "paid 1"


# Forks


def weight(path: Path) -> dict[str, int]:
    """How many rows each table has."""
    with closing(sqlite3.connect(path)) as conn:
        names = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: conn.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in names
        }


@pytest.mark.parity("user-demand", 77)
async def test_a_fork_adds_the_same_few_rows_however_long_its_past_is(tmp_path: Path) -> None:
    added: list[dict[str, int]] = []
    for turns in (2, 60):
        path = tmp_path / f"{turns}.db"
        async with serve(helper(), "hi", store=f"sqlite:{path}") as harness:
            session = await harness.get_or_create("s")
            await session.send(["look", Media(b"a picture" * 1000, "image/png")])
            for n in range(turns):
                await session.send(f"number {n}")
            before, events = await asyncio.to_thread(weight, path), await session.events()
            fork = await session.threads.fork()
            after = await asyncio.to_thread(weight, path)
            added.append({name: after[name] - before[name] for name in after})
            await fork.send("elsewhere")
            assert await session.events() == events
            assert (await fork.events())[: len(events)] == events
    assert added[0] == added[1]
    assert (added[0]["blobs"], added[0]["events"]) == (0, 1)


@pytest.mark.parity("user-demand", 77)
async def test_a_fork_shows_the_model_the_same_beginning_to_the_byte() -> None:
    model = script(echo)
    async with serve(helper(tools=[pay]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        for text in ("one", "two"):
            await session.send(text)
        fork = await session.threads.fork()
        await session.send("three")
        await fork.send("three")
    here, there = model.calls[-2:]
    assert (here.messages, here.system, here.tools) == (there.messages, there.system, there.tools)


# Sub-agents


@pytest.mark.parity("user-demand", 78)
async def test_a_sub_agent_has_a_log_of_its_own_that_goes_and_moves_with_its_parent(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'x.db'}"
    async with connect(url) as store:
        async with Harness(lead(), default_model=plays(GO), store=store) as harness:
            session, result = await sent(harness)
            thread = await child(session)
            where = thread.key
            row = await store.row(where)
        assert result.status == "done"
        assert row is not None
        assert where.thread.startswith("sub/")
        assert (row.parent.thread if row.parent else None) == "main"
        assert row.run == "done"
        main, own = await read_all(store, key("s")), await read_all(store, where)
        assert {event.id for event in main}.isdisjoint(event.id for event in own)
        bundle = await export_bundle((store, where.scope), "local")
        async with connect("memory:") as other:
            await import_bundle(other, bundle)
            for log in (key("s"), where):
                assert [e.id for e in await read_all(other, log)] == [
                    e.id for e in await read_all(store, log)
                ]
        await store.delete(where.scope)
        assert (await store.row(where), await store.row(key("s"))) == (None, None)

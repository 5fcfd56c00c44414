"""The documented calls of the session that ours is measured by, a test each, named after the call:
what it gives back, what it does where there is nothing, what is kept, and what is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Harness, InvalidValue, NotPending, SessionNotFound
from holdfast.harness.session.session import Session
from holdfast.models import ScriptedModel, Use
from holdfast.state import Grants
from holdfast.stores.memory import MemoryStore
from holdfast.values.display import Display
from holdfast.values.usage import Usage

from ..kernel.scene import Slow, helper, kinds, only, serve
from .stage import says, workshop

PAY = says(Use("pay", amount=1))
ASK = says(Use("ask_user", question="Colour?"))
DONE = says(text="Done.")


class Room:
    """A session, and the same session in a process that comes later."""

    def __init__(self, *steps: Any, **settings: Any) -> None:
        model = ScriptedModel(steps or [DONE], per_turn=True)
        self._settings: dict[str, Any] = {"default_model": model, **settings}
        self._store = MemoryStore()

    @contextlib.asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Session]:
        agent = self._settings.get("agent") or workshop()
        rest = {name: value for name, value in self._settings.items() if name != "agent"}
        async with Harness(agent, store=self._store, **rest) as harness:
            yield await harness.get_or_create("s", **options)


async def test_grant_category_and_grant_tool() -> None:
    room = Room()
    async with room.opened() as session:
        for _ in range(2):  # a set: twice is once
            await session.grant_category("payments")
            await session.grant_tool("nobody knows this one")
        assert session.grants.categories == ("payments",)
        assert session.grants.tools == ("nobody knows this one",)
        assert (await kinds(session)).count("grant.given") == 4
        await session.send("go")
        assert session.grants.tools  # they hold as long as this process drives
    async with room.opened() as session:
        await session.send("go")
        assert session.grants == Grants()  # and no longer


async def test_get_grants() -> None:
    async with Room().opened() as session:
        before = session.grants
        assert (before.categories, before.tools) == ((), ())
        await session.grant_tool("pay")
        assert before.tools == ()  # a value: it stays what it was
        assert session.grants.tools == ("pay",)


async def test_respond_to_tool_approval() -> None:
    room = Room(PAY, DONE)
    async with room.opened() as session:
        assert await session.respond_to_approval("approve") is None  # no gate, nothing happens
        [ask] = (await session.send("go")).pending
        decided = await session.respond_to_approval("always_allow_category")
        assert decided is not None
        assert (decided.item, decided.outcome) == (ask.id, "approved")
        assert (await session.wait()).status == "done"
        assert session.grants.categories == ("payments",)
        assert await session.respond_to_approval("decline") is None
        with pytest.raises(InvalidValue):
            await session.respond_to_approval("perhaps")  # type: ignore[arg-type]


async def test_get_current_run_id() -> None:
    async with Room(PAY, DONE).opened() as session:
        assert session.current_run_id is None
        result = await session.send("go")
        assert session.current_run_id == result.run  # a run that waits is there
        await session.approve()
        await session.wait()
        assert session.current_run_id is None


async def test_abort_run() -> None:
    async with Room(PAY, ASK, DONE).opened() as session:
        await session.abort()
        assert "abort.requested" not in await kinds(session)  # idle: nothing changes
        await session.send("go")
        await asyncio.gather(session.abort("enough"), session.abort("enough"))
        assert (await session.wait()).status == "aborted"
        [settled] = only(await session.events(), "pending.settled")
        assert settled["outcome"] == "abandoned"
        [end] = only(await session.events(), "run.finished")
        assert (end["status"], end["code"]) == ("aborted", "aborted")


async def test_get_token_usage() -> None:
    room = Room()
    async with room.opened() as session:
        assert session.usage.get() == Usage()
        await session.send("go")
        used = session.usage.get()
        assert (used.input_tokens, used.output_tokens, used.total_tokens) == (10, 5, 15)
        assert (used.cache_read_tokens, used.cache_write_tokens) == (0, 0)
    async with room.opened() as session:
        assert session.usage.get() == used == session.display.get().usage


async def test_identity_get_resource_id_and_get_default_resource_id() -> None:
    room = Room()
    async with room.opened(user="ann") as session:
        assert (session.identity.resource, session.identity.user) == ("ann", "ann")
    async with room.opened(user="bob") as session:
        assert session.identity.resource == "ann"  # it never changes: it is its own default
        assert (session.identity.session, session.identity.owner) == ("s", "workshop")


async def test_thread_get_id() -> None:
    async with Room().opened() as session:
        assert session.thread.id == "main"
        other = await session.thread.create("Other", id="other")
        assert (other.thread.id, session.thread.id) == ("other", "main")


async def test_thread_list() -> None:
    async with Room().opened() as session:
        assert [row.thread for row in (await session.thread.list()).items] == ["main"]
        other = await session.thread.create("Other", id="other")
        await other.thread.settings.set(theme="dark")
        await session.thread.clone("Copy", id="copy")
        page = await session.thread.list()
        assert {row.thread for row in page.items} == {"main", "other", "copy"}
        found = await session.thread.list(settings={"theme": "dark"})
        assert [row.thread for row in found.items] == ["other"]
        assert [row.thread for row in (await session.thread.list(forks=True)).items] == ["copy"]


async def test_thread_get_by_id() -> None:
    async with Room().opened() as session:
        row = await session.thread.get("main")
        assert row is not None
        assert (row.session, row.thread) == ("s", "main")
        assert await session.thread.get("nobody") is None


async def test_thread_list_active_messages() -> None:
    async with Room().opened() as session:
        assert await session.thread.messages() == []
        for text in ("one", "two"):
            await session.send(text)
        texts = [message.text for message in await session.thread.messages()]
        assert texts == ["one", "Done.", "two", "Done."]
        assert [m.text for m in await session.thread.messages(2)] == ["two", "Done."]


async def test_thread_list_messages() -> None:
    async with Room().opened() as session:
        other = await session.thread.create(id="other")
        await other.send("hello")
        found = await session.thread.messages(thread="other")
        assert [message.text for message in found] == ["hello", "Done."]
        with pytest.raises(SessionNotFound):
            await session.thread.messages(thread="nobody")


async def test_thread_first_user_message_and_first_user_messages() -> None:
    async with Room().opened() as session:
        await session.send("one")
        await session.thread.create(id="empty")
        assert await session.thread.first_user_messages([]) == {}
        assert await session.thread.first_user_messages(["main", "empty", "x"]) == {"main": "one"}
        assert await session.thread.first_user_messages() == {"main": "one"}


async def test_thread_get_setting_set_setting_and_delete_setting() -> None:
    room = Room()
    async with room.opened() as session:
        settings = session.thread.settings
        assert settings.get("theme") is None
        await settings.delete("theme")
        await asyncio.gather(settings.set(theme="dark"), settings.set(size=3))
        assert settings.all() == {"theme": "dark", "size": 3}
        await settings.delete("size")
    async with room.opened() as session:
        assert session.thread.settings.all() == {"theme": "dark"}


async def test_mode_get_and_resolve() -> None:
    room = Room()
    async with room.opened() as session:
        assert (session.mode.name, session.mode.resolve().name) == ("plan", "plan")
        with pytest.raises(InvalidValue):
            session.mode.resolve("nobody")
        await session.mode.switch("build")
        assert only(await session.events(), "mode.changed") == [{"mode": "build", "left": "plan"}]
    async with room.opened() as session:
        assert session.mode.name == "build"


async def test_model_get_and_has_selection() -> None:
    room = Room()
    async with room.opened() as session:
        assert (session.model.ref, session.model.chosen) == ("scripted/demo", None)
        await session.model.set("scripted/demo")
        assert session.model.chosen == "scripted/demo"
        assert len(only(await session.events(), "model.changed")) == 1
    async with room.opened() as session:
        assert session.model.chosen == "scripted/demo"


async def test_run_get_run_id_get_trace_id_and_is_running() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        run = session.run
        assert (run.id, run.trace_id, run.is_running) == (None, None, False)
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        running = session.run.id
        assert (running is not None, session.run.is_running) == (True, True)
        model.gate.open()
        assert (await sending).run == running
        assert (session.run.id, session.run.is_running) == (None, False)


async def test_stream_active_run_id_and_is_active() -> None:
    async with Room(PAY, DONE).opened() as session:
        assert (session.stream.active_run_id, session.stream.is_active) == (None, False)
        result = await session.send("go")
        assert (session.stream.active_run_id, session.stream.is_active) == (result.run, True)
        await session.stream.abort()
        await session.wait()
        assert not session.stream.is_active


async def test_suspensions_has_pending_and_has() -> None:
    room = Room(ASK, DONE)
    async with room.opened() as session:
        assert (session.suspensions.has_pending, session.suspensions.has("x")) == (False, False)
        [ask] = (await session.send("go")).pending
    async with room.opened() as session:
        assert session.suspensions.has_pending
        assert session.suspensions.has(ask.call or "")
        assert len(only(await session.events(), "pending.opened")) == 1


async def test_follow_ups_count_and_is_empty() -> None:
    room = Room(PAY, DONE)
    async with room.opened() as session:
        assert (session.follow_ups.count, session.follow_ups.is_empty) == (0, True)
        await session.send("go")
        await session.follow_ups.add("and then")
        assert (session.follow_ups.count, session.display.get().queued) == (1, 1)
    async with room.opened() as session:
        assert (session.follow_ups.count, session.follow_ups.is_empty) == (1, False)
        assert [item.text for item in await session.follow_ups.list()] == ["and then"]


async def test_approval_is_armed() -> None:
    room, armed = Room(PAY, DONE), []
    async with room.opened() as session:
        armed.append(session.approval.is_armed)
        await session.send("go")
        armed.append(session.approval.is_armed)
    async with room.opened() as session:
        armed.append(session.approval.is_armed)
        await session.respond_to_approval("decline")
        await session.wait()
        armed.append(session.approval.is_armed)
    assert armed == [False, True, True, False]


async def test_display_state_get() -> None:
    async with Room().opened() as session:
        first = session.display.get()
        assert isinstance(first, Display)
        assert (first.running, first.message, first.queued, first.tools) == (False, None, 0, {})
        assert (first.pending, first.subagents, first.files, first.tasks) == ({}, {}, {}, ())
        changes = session.display.changes()
        assert await anext(changes) == first
        await session.send("go")
        assert (await anext(changes)).head > first.head
        await changes.aclose()
        assert first.message is None  # a value: what came later is in the next one


async def test_display_state_restore_tasks() -> None:
    """There is no such verb: tasks are in the log, and so they are shown."""
    tasks = [says(Use("task_write", tasks=[{"content": n}])) for n in ("Old", "New")]
    room = Room(*tasks, DONE)
    async with room.opened() as session:
        await session.send("go")
    async with room.opened() as session:
        before = await session.events()
        shown = session.display.get()
        assert [task.content for task in shown.tasks] == ["New"]
        assert [task.content for task in shown.previous_tasks] == ["Old"]
        assert await session.events() == before  # and nothing was told for it


async def test_state_get_set_and_update() -> None:
    room = Room(agent=workshop(state={"n": 0}))
    async with room.opened() as session:
        mine = session.state.get()
        mine["n"] = 99
        assert session.state.get() == {"n": 0}
        assert await session.state.update(colour="red") == {"n": 0, "colour": "red"}

        def add(state: dict[str, Any]) -> str:
            state["n"] += 1
            return "added"

        assert await session.state.update(add) == "added"
        changed = only(await session.events(), "state.changed")
        assert [one["set"] for one in changed[1:]] == [{"colour": "red"}, {"n": 1}]
    async with room.opened() as session:
        assert session.state.get() == {"n": 1, "colour": "red"}


async def test_harness_set_resource_id() -> None:
    """Another resource is another session; the one that was there stays as it is."""
    async with Harness(workshop(), default_model=ScriptedModel([DONE], per_turn=True)) as harness:
        first = await harness.get_or_create("one", user="ann")
        await first.send("go")
        before = await first.events()
        other = await harness.get_or_create("two", user="bob")
        assert (other.identity.resource, other.thread.id) == ("bob", "main")
        assert await other.thread.messages() == []
        assert (first.identity.resource, await first.events()) == ("ann", before)


async def test_harness_respond_to_tool_suspension() -> None:
    room = Room(ASK, DONE)
    async with room.opened() as session:
        with pytest.raises(NotPending):
            await session.answer("red")
        [ask] = (await session.send("go")).pending
        with pytest.raises(InvalidValue):
            await session.answer(7, ask.id)  # not what was asked for, so it stays open
    async with room.opened() as session:
        answered = await session.answer("red", ask.id)
        assert answered.outcome == "answered"
        assert (await session.wait()).status == "done"
        order = await kinds(session)
        assert order.index("pending.settled") < order.index("run.resumed")
        assert only(await session.events(), "tool.finished")[0]["result"] == "red"

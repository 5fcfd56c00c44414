"""The tools that come with the harness: asking, planning, wanting access, keeping tasks."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, Harness, InvalidValue, Mode, ToolContext, tool
from holdfast.errors import ToolError
from holdfast.events import Task
from holdfast.harness.builtins import ASKING, TASKS
from holdfast.harness.live.answers import mismatch
from holdfast.harness.session.session import core_of
from holdfast.harness.tools import Park
from holdfast.harness.tools.tasks import GivenTask, changed, completed, summary, written
from holdfast.models import Say, ScriptedModel, Use
from holdfast.stores import connect

PLAN = [Mode("plan", after_plan="build"), Mode("build")]


def agent(*tools: Any) -> Agent:
    return Agent("helper", instructions="Help.", tools=[*ASKING, *TASKS, *tools], modes=PLAN)


def script(*calls: Any) -> ScriptedModel:
    return ScriptedModel([Say("", calls=list(calls)), "Done."], per_turn=True)


async def results(session: Any) -> list[Any]:
    return [
        (c.name, c.outcome.outcome, c.outcome.result)
        for m in await session.transcript()
        for c in m.calls
    ]


@pytest.mark.parity("mastra-session", 87, 88, 89, 94)
async def test_a_question_waits_for_an_answer_that_fits_and_survives_the_process() -> None:
    options = [{"label": "red"}, {"label": "blue"}]
    model = script(
        Use("ask_user", question="Which colour?", options=options),
        Use("ask_user", question="How many?"),
        Use("ask_user", question="And?", options=options, selection="multi_select"),
    )
    async with connect("memory:") as store:
        async with Harness(agent(), default_model=model, store=store) as harness:
            result = await (await harness.get_or_create("s")).send("go")
            assert [ask.what for ask in result.pending] == ["question"] * 3
            colour, number, several = (ask.id for ask in result.pending)
        # Another process, much later.
        async with Harness(agent(), default_model=model, store=store) as harness:
            session = await harness.get_or_create("s")
            for wrong in ("green", ["red"], 7):
                with pytest.raises(InvalidValue, match="the answer"):
                    await session.answer(wrong, colour)
            await session.answer(["red", "blue"], several)
            await session.answer("blue", colour, actor="ann")
            assert (await session.wait()).status == "waiting"
            await session.deny(number, "none of your business")
            assert (await session.wait()).status == "done"
            assert await results(session) == [
                ("ask_user", "ok", "blue"),
                ("ask_user", "ok", "The user declined to answer. none of your business"),
                ("ask_user", "ok", ["red", "blue"]),
            ]


@pytest.mark.parametrize(
    "arguments", [{"question": " "}, {"question": "x", "selection": "multi_select"}]
)
async def test_a_question_that_makes_no_sense_goes_back_to_the_model(arguments: Any) -> None:
    async with Harness(agent(), default_model=script(Use("ask_user", **arguments))) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "done"
        assert [(name, how) for name, how, _ in await results(session)] == [("ask_user", "failed")]


@pytest.mark.parity("mastra-session", 96)
async def test_a_plan_that_is_approved_leads_to_the_next_mode() -> None:
    model = script(Use("submit_plan", title="Move", plan="1. pack"))
    async with Harness(agent(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.pending[0].what, session.mode.name) == ("plan", "plan")
        await session.approve()
        assert (await session.wait()).status == "done"
        assert session.mode.name == "build"


@pytest.mark.parity("mastra-session", 97)
async def test_a_plan_that_is_rejected_tells_why_and_changes_nothing() -> None:
    model = script(Use("submit_plan", title="Move", plan="1. pack"))
    async with Harness(agent(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        await session.deny(reason="too expensive")
        await session.wait()
        (_, how, said) = (await results(session))[0]
        assert (how, said["approved"], said["feedback"]) == ("ok", False, "too expensive")
        assert session.mode.name == "plan"


async def test_access_is_asked_for_once() -> None:
    model = script(Use("request_access", path="/data", reason="to look"))
    async with Harness(agent(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).pending[0].what == "access"
        await session.approve()
        await session.wait()
        assert session.state.get()["access"] == ["/data"]
        assert (await session.send("again")).status == "done"


async def test_a_tool_of_ones_own_can_ask_and_go_on_with_the_answer() -> None:
    begun = []

    @tool(repeat_safe=True)
    async def book(city: str, context: ToolContext) -> str:
        """Book a journey."""
        begun.append(context.answer)
        if context.answer is None:
            schema = {"type": "object", "required": ["seat"]}
            raise Park(f"A seat to {city}?", detail={"city": city}, schema=schema, expires=3600)
        return f"{context.answer.value['seat']} by {context.answer.by}"

    async with Harness(agent(book), default_model=script(Use("book", city="Bern"))) as harness:
        session = await harness.get_or_create("s")
        ask = (await session.send("go")).pending[0]
        assert ask.expires is not None
        with pytest.raises(InvalidValue, match="lacks 'seat'"):
            await session.answer({}, ask.id)
        await session.answer({"seat": "7A"}, ask.id, actor="ann")
        await session.wait()
        assert await results(session) == [("book", "ok", "7A by ann")]
        assert len(begun) == 2


@pytest.mark.parametrize("how", ["abort", "steer"])
@pytest.mark.parity("mastra-session", 99)
async def test_a_question_that_is_given_up_is_settled(how: str) -> None:
    model = ScriptedModel([Say("", calls=[Use("ask_user", question="?")]), "Fine.", "Fine."])
    async with Harness(agent(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        if how == "abort":
            await session.abort()
        else:
            await session.post("never mind", busy="steer")
        await session.wait()
        assert await session.pending() == []
        assert [how for _, how, _ in await results(session)] == ["cancelled"]
        assert (await session.send("still there?")).status == "done"


async def test_a_nested_call_cannot_wait_for_an_answer() -> None:
    @tool
    async def outer(context: ToolContext) -> str:
        """Ask through another tool."""
        return (await context.invoke("ask_user", question="?")).content

    async with Harness(agent(outer), default_model=script(Use("outer"))) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "done"
        assert "cannot wait" in str(await results(session))


# Tasks


@pytest.mark.parity("mastra-session", 154)
async def test_tasks_are_kept_with_the_thread() -> None:
    first = [{"content": "pack", "status": "in_progress"}, {"content": "go"}]
    model = ScriptedModel(
        [
            Say("", calls=[Use("task_write", tasks=first)]),
            Say("", calls=[Use("task_update", id="task_go", status="in_progress")]),
            Say("", calls=[Use("task_complete", id="task_pack")]),
            Say("", calls=[Use("task_complete", id="nothing")]),
            Say("", calls=[Use("task_check")]),
            "Done.",
        ]
    )
    async with connect("memory:") as store:
        async with Harness(agent(), default_model=model, store=store) as harness:
            session = await harness.get_or_create("s")
            assert (await session.send("go")).status == "done"
            last = (await results(session))[-1][2]["summary"]
            assert (last["total"], last["completed"], last["in_progress"]) == (2, 1, 1)
            assert [how for _, how, _ in await results(session)].count("failed") == 1
        async with Harness(agent(), default_model=model, store=store) as harness:
            tasks = (core_of(await harness.get_or_create("s"))).live.state.tasks
            assert [(t.id, t.status) for t in tasks] == [
                ("task_pack", "completed"),
                ("task_go", "in_progress"),
            ]


@pytest.mark.parity("mastra-session", 151)
def test_ids_are_kept_reserved_and_made_unique() -> None:
    before = [Task(id="a", content="one"), Task(id="b", content="two"), Task(id="c", content="two")]
    given = [
        GivenTask("one"),  # the same words: the same task
        GivenTask("two"),  # which of the two is not clear
        GivenTask("Three!", id="a1"),
        GivenTask("four", id="a1"),  # taken
        GivenTask("…"),
    ]
    assert [t.id for t in written(before, given)] == [
        "a",
        "task_two",
        "a1",
        "task_four",
        "task_task",
    ]


@pytest.mark.parity("mastra-session", 152)
def test_only_one_task_is_in_progress() -> None:
    with pytest.raises(ToolError, match="only one"):
        written([], [GivenTask("a", "in_progress"), GivenTask("b", "in_progress")])
    before = [Task(id="a", content="a", status="in_progress"), Task(id="b", content="b")]
    after = changed(before, "b", {"status": "in_progress"})
    assert [t.status for t in after] == ["pending", "in_progress"]
    with pytest.raises(ToolError, match="tasks: a, b"):
        completed(before, "c")
    with pytest.raises(ToolError, match="no changes were passed"):
        changed(before, "a", {})


@pytest.mark.parity("mastra-session", 153)
def test_a_summary_counts_and_an_empty_list_is_not_done() -> None:
    assert summary([]).data["summary"]["all_completed"] is False
    done = summary([Task(id="a", content="a", status="completed")])
    assert done.data["summary"]["all_completed"] is True


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ({"type": "string"}, "x", False),
        ({"type": "string"}, 1, True),
        ({"type": "integer"}, True, True),
        ({"type": ["string", "null"]}, None, False),
        ({"enum": [1, 2]}, 3, True),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"], True),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": "x"}, True),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {}, False),
    ],
)
def test_an_answer_is_checked_by_what_was_asked(schema: Any, value: Any, wrong: bool) -> None:
    assert (mismatch(schema, value) is not None) == wrong

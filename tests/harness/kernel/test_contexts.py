"""What a model is shown beside the conversation, and what becomes of it when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Context,
    ErrorPolicy,
    InvalidValue,
    Mode,
    Reading,
    ToolContext,
    context,
    hook,
    tool,
)
from holdfast.events import ModelCalled
from holdfast.harness.faults import context_outcome
from holdfast.models.scripted import Say, ScriptedModel, Use

from .scene import helper, only, read, script, serve


def shows(name: str, said: Any, **options: Any) -> Context:
    """A context that says one thing."""
    return Context(name, lambda reading: said, **options)


async def first(agent: Any, text: str = "hello") -> ScriptedModel:
    """The model of a run of one step."""
    model = script("hi")
    async with serve(agent, default_model=model) as harness:
        await harness.send("s", text)
    return model


@pytest.mark.parity("harness-kernel", 29)
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("rain", "## c\nrain"),
        ({"content": "rain"}, "## c\nrain"),
        ({"rain": True}, '## c\n{\n  "rain": true\n}'),
        (["rain", {"content": "wind"}, None], "## c\nrain\n\nwind"),
        (None, None),
        ("  ", None),
        ([], None),
    ],
)
async def test_the_forms_of_a_context(said: Any, shown: str | None) -> None:
    model = await first(helper(contexts=[shows("c", said)]))
    assert model.calls[0].system == "\n\n".join(filter(None, ["Help.", shown]))


@pytest.mark.parity("harness-kernel", 29)
async def test_a_context_may_be_async_and_reads_the_session() -> None:
    @context(label="Facts")
    async def facts(reading: Reading) -> str:
        await asyncio.sleep(0)
        heard = [message.text for message in await reading.transcript()]
        return f"{reading.session.session} {reading.state} {heard}"

    model = await first(helper(contexts=[facts], state={"n": 1}))
    assert model.calls[0].system == "Help.\n\n## Facts\ns {'n': 1} ['hello']"


@pytest.mark.parity("harness-kernel", 30)
async def test_options_are_bound() -> None:
    @context
    def place(reading: Reading, city: str = "Rome", unit: str = "C") -> str:
        return f"{city} in {unit}"

    contexts = [place.with_options(city="Oslo"), place.with_options(unit="F")]
    agent = helper(modes=[Mode("a", contexts=contexts)])
    model = await first(agent)
    assert model.calls[0].system == "Help.\n\n## place\nOslo in C\n\n## place\nRome in F"


@pytest.mark.parity("harness-kernel", 31)
async def test_all_by_priority_but_for_those_left_out() -> None:
    low, high, left = shows("low", "1"), shows("high", "2", priority=9), shows("left", "3")
    of_other = shows("other", "4", priority=5)
    agent = helper(
        contexts=[low, high, left],
        modes=[Mode("a", exclude=["left"]), Mode("b", contexts=[of_other, low])],
    )
    model = script("hi")
    async with serve(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("1")
        await session.mode.switch("b")
        await session.send("2")
    heads = [
        [line for line in call.system.splitlines() if line.startswith("## ")]
        for call in model.calls
    ]
    assert heads == [["## high", "## other", "## low"], ["## other", "## low"]]


@pytest.mark.parity("harness-kernel", 32)
async def test_a_message_stands_right_before_the_newest_input() -> None:
    note = shows("note", "by the way", role="message")
    model = script("hi", "ho")
    async with serve(helper(contexts=[note]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("one")
        await session.send("two")
        assert [m.text for m in await session.transcript()] == ["one", "hi", "two", "hi"]
    assert read(model.calls[1]) == ["user: one", "model: hi", "user: by the way | two"]
    assert model.calls[1].system == "Help."


@pytest.mark.parity("harness-kernel", 33)
@pytest.mark.parametrize(
    "hidden",
    [
        shows("c", "secret", role="hidden"),
        shows("c", {"role": "hidden", "content": "secret"}),
        shows("c", ["open", {"role": "hidden", "content": "secret"}], role="message"),
    ],
)
async def test_what_is_hidden_is_recorded_and_not_sent(hidden: Context) -> None:
    model = script("hi")
    async with serve(helper(contexts=[hidden]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("hello")
        (built,) = only(await session.events(), "context.built")
    assert "secret" not in str(model.calls)
    assert {"name": "c", "role": "hidden", "content": "secret"} in built["parts"]


@pytest.mark.parity("harness-kernel", 33)
async def test_a_role_that_nobody_knows_never_reaches_a_model() -> None:
    odd = shows("c", {"role": "Hidden", "content": "secret"})
    model = script("hi")
    async with serve(helper(contexts=[odd]), default_model=model) as harness:
        result = await harness.send("s", "hello")
    assert (result.status, result.code) == ("failed", "context_failed")
    assert model.calls == []


@pytest.mark.parity("harness-kernel", 34)
async def test_what_was_shown_is_in_the_log_once_for_each_change(tmp_path: Path) -> None:
    weather = {"now": "rain"}
    agent = helper(contexts=[Context("w", lambda reading: weather["now"])])
    storage = f"sqlite:{tmp_path}/x.db"
    async with serve(agent, "hi", store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.send("1")
        await session.send("2")
        weather["now"] = "sun"
        await session.send("3")
    async with serve(agent, "hi", store=storage) as harness:
        session = await harness.get_or_create("s")
        built = only(await session.events(), "context.built")
    assert [item["system"] for item in built] == ["Help.\n\n## w\nrain", "Help.\n\n## w\nsun"]
    assert built[0]["mode"] == "default"
    assert built[0]["parts"] == [{"name": "w", "role": "system", "content": "rain"}]


@pytest.mark.parity("harness-kernel", 35)
@pytest.mark.parametrize("via", ["itself", "another"])
async def test_a_context_that_renders_itself_fails_the_run(via: str) -> None:
    made: dict[str, Context] = {}

    @context
    async def one(reading: Reading) -> str:
        return await reading.render(made["one" if via == "itself" else "two"])

    @context
    async def two(reading: Reading) -> str:
        return await reading.render(made["one"])

    made.update(one=one, two=two)
    async with serve(helper(contexts=[one]), "hi") as harness:
        result = await harness.send("s", "hello")
    assert (result.status, result.code) == ("failed", "context_failed")


@pytest.mark.parity("harness-kernel", 35)
async def test_one_context_may_be_rendered_by_many_at_once() -> None:
    @context
    async def slow(reading: Reading) -> str:
        await asyncio.sleep(0.01)
        return "slow"

    @tool
    async def show(context: ToolContext) -> str:
        """Show."""
        return await context.render(slow)  # type: ignore[attr-defined, no-any-return]

    steps = Say(calls=[Use("show")] * 5), lambda call: read(call)[-1]
    async with serve(helper(tools=[show]), *steps) as harness:
        results = await asyncio.gather(*(harness.send(f"s{n}", "go") for n in range(3)))
    assert [r.text for r in results] == ["tools: slow | slow | slow | slow | slow"] * 3


Act = Callable[[Any], Any]


def acting(act: Act, *, steps: int = 3) -> tuple[Any, ScriptedModel]:
    """An agent whose tool does `act` at its first call, and a model that calls it and others."""
    done: list[bool] = []

    @tool
    async def do(context: ToolContext) -> str:
        """Do."""
        if not done:
            done.append(True)
            await act(context)
        return "done"

    model = script(*[Say(calls=[Use("do")])] * (steps - 1), "end")
    return helper(tools=[do]), model


def shown(model: ScriptedModel) -> list[bool]:
    """For each model call, whether it saw what was added."""
    return ["extra" in call.system for call in model.calls]


@pytest.mark.parity("harness-kernel", 36, 40)
@pytest.mark.parametrize(
    ("scope", "consume", "expected"),
    [
        ("step", "once", [False, True, False, False, False, False]),
        ("step", "while_active", [False, True, False, False, False, False]),
        ("run", "once", [False, True, False, False, False, False]),
        ("run", "while_active", [False, True, True, False, False, False]),
        ("session", "once", [False, True, False, False, False, False]),
        ("session", "while_active", [False, True, True, True, True, True]),
    ],
)
async def test_how_long_an_addition_lasts(scope: Any, consume: Any, expected: list[bool]) -> None:
    agent, model = acting(lambda c: c.add_context("extra", scope=scope, consume=consume))
    async with serve(agent, default_model=model) as harness:
        await harness.send("s", "one")
        await harness.send("s", "two")
    assert shown(model) == expected


@pytest.mark.parity("harness-kernel", 36)
async def test_an_addition_may_be_a_message() -> None:
    agent, model = acting(lambda c: c.add_context("extra", role="message"), steps=2)
    async with serve(agent, default_model=model) as harness:
        await harness.send("s", "one")
    assert read(model.calls[1])[0] == "user: extra | one"


@pytest.mark.parity("harness-kernel", 37, 40)
async def test_an_addition_waits_for_its_event() -> None:
    """It is added while one tool runs, and shown after the next one has ended."""
    agent, model = acting(
        lambda c: c.add_context("extra", consume="while_active", on="my.moment"), steps=4
    )
    seen = 0

    @hook("tool.finished")
    async def moment(acting: Any, event: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            await acting.emit("my.moment")

    agent = helper(tools=agent.tools, hooks=[moment])
    async with serve(agent, default_model=model) as harness:
        await harness.send("s", "one")
    assert shown(model) == [False, False, True, True]


@pytest.mark.parity("harness-kernel", 37)
async def test_an_addition_for_the_end_of_a_tool_is_shown_after_that_tool() -> None:
    agent, model = acting(lambda c: c.add_context("extra", on="tool.finished"), steps=2)
    async with serve(agent, default_model=model) as harness:
        await harness.send("s", "one")
    assert shown(model) == [False, True]


@pytest.mark.parity("harness-kernel", 40)
async def test_a_hook_adds_to_the_very_call_that_it_is_told_of() -> None:
    @hook("model.called")
    async def add(acting: Any, event: Any) -> None:
        step = event.payload(ModelCalled).step
        await acting.add_context(f"extra {step}", scope="step")

    model = script(Say(calls=[Use("nothing")]), "end")
    async with serve(helper(hooks=[add]), default_model=model) as harness:
        await harness.send("s", "one")
    assert [call.system.splitlines()[-1] for call in model.calls] == ["extra 1", "extra 2"]


@pytest.mark.parity("harness-kernel", 38)
async def test_ids_of_additions() -> None:
    counts: list[int] = []

    async def act(context: Any) -> None:
        await context.add_context("old", id="x")
        with pytest.raises(InvalidValue, match="replace"):
            await context.add_context("new", id="x")
        await context.add_context("extra", id="x", replace=True)
        await context.add_context("y", id="y")
        await context.add_context("z", id="z")
        counts.append(await context.remove_context("y", "nobody"))
        counts.append(await context.remove_context("y"))

    agent, model = acting(act, steps=2)
    async with serve(agent, default_model=model) as harness:
        assert (await harness.send("s", "one")).status == "done"
    assert counts == [1, 0]
    assert model.calls[1].system == "Help.\n\n## x\nextra\n\n## z\nz"


@pytest.mark.parity("harness-kernel", 38)
async def test_all_additions_are_cleared() -> None:
    counts: list[int] = []

    async def act(context: Any) -> None:
        for n in range(3):
            await context.add_context("extra", id=str(n), scope="session")
        counts.append(await context.remove_context())

    agent, model = acting(act, steps=2)
    async with serve(agent, default_model=model) as harness:
        await harness.send("s", "one")
    assert counts == [3]
    assert shown(model) == [False, False]


@pytest.mark.parity("harness-kernel", 39)
async def test_an_addition_to_the_session_survives_reopening(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    agent, model = acting(
        lambda c: c.add_context("extra", scope="session", consume="while_active"), steps=2
    )
    async with serve(agent, default_model=model, store=storage) as harness:
        await harness.send("s", "one")
    model = script("hi")
    async with serve(agent, default_model=model, store=storage) as harness:
        await harness.send("s", "two")
    assert shown(model) == [True]


@pytest.mark.parity("harness-kernel", 130)
@pytest.mark.parametrize(
    ("policy", "mode", "required", "bound"),
    [*product(("fail", "skip"), ("fail", "skip"), (True, False), (None, True, False))],
)
async def test_whether_a_context_that_fails_ends_the_run(
    policy: Any, mode: Any, required: bool, bound: bool | None
) -> None:
    def broken(reading: Reading) -> str:
        raise RuntimeError("no")

    item = Context("broken", broken, required=required)
    if bound is not None:
        item = item.with_options(required=bound)
    need = required if bound is None else bound
    skipped = policy == "skip" and (not need or mode == "skip")
    assert context_outcome(ErrorPolicy(context_failure=policy), mode, required, bound) == (
        "skip" if skipped else "fail"
    )
    agent = helper(modes=[Mode("a", contexts=[item, shows("c", "kept")], context_failure=mode)])
    model = script("hi")
    policy = ErrorPolicy(context_failure=policy)
    async with serve(agent, default_model=model, error_policy=policy) as harness:
        result = await harness.send("s", "hello")
    if skipped:
        assert result.status == "done"
        assert model.calls[0].system == "Help.\n\n## c\nkept"
    else:
        assert (result.status, result.code) == ("failed", "context_failed")
        assert model.calls == []


async def test_instructions_that_fail_end_the_run_as_a_context_does() -> None:
    def told(reading: Reading) -> str:
        raise RuntimeError("the key is hunter2")

    async with serve(helper(instructions=told), "hi") as harness:
        result = await harness.send("s", "hello")
    assert (result.status, result.code) == ("failed", "context_failed")
    assert "hunter2" not in str(result)

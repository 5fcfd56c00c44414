"""The user state: the session's own, copied in and out, and in the log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, InvalidValue, Mode, ToolContext, tool
from holdfast.models.scripted import Say, Use

from .scene import helper, script, serve


@pytest.mark.parity("harness-kernel", 50)
@pytest.mark.parametrize("form", ["dict", "function"])
async def test_each_session_begins_with_a_copy(form: str) -> None:
    start: dict[str, Any] = {"list": [1]}
    agent = helper(state=start if form == "dict" else lambda: start)
    async with serve(agent, "hi") as harness:
        one, two = await harness.get_or_create("1"), await harness.get_or_create("2")
        assert one.state.get() == {"list": [1]}
        one.state.get()["list"].append(2)
        await one.state.update(x=1)
        assert one.state.get() == {"list": [1], "x": 1}
        assert two.state.get() == start == {"list": [1]}


@pytest.mark.parity("harness-kernel", 50)
async def test_update_sets_entries_and_replace_sets_all() -> None:
    async with serve(helper(state={"a": {"b": 1}, "c": 2}), "hi") as harness:
        state = (await harness.get_or_create("s")).state
        given = {"x": [1]}
        assert await state.update(a=given) == {"a": {"x": [1]}, "c": 2}  # shallow
        given["x"].append(2)
        assert state.get()["a"] == {"x": [1]}
        assert await state.update({"not a name": 1}) == {"a": {"x": [1]}, "c": 2, "not a name": 1}
        assert await state.drop("a", "nobody") == {"c": 2, "not a name": 1}
        assert await state.replace({"z": None}) == {"z": None}


@pytest.mark.parity("harness-kernel", 50)
async def test_tools_change_it_too_and_none_of_them_loses_anything() -> None:
    @tool
    async def put(context: ToolContext, name: str) -> str:
        """Put."""
        seen = context.state
        seen["mine"] = True
        await asyncio.sleep(0)
        await context.update_state(**{name: True})
        return str(sorted(context.state))

    @tool
    async def reset(context: ToolContext) -> str:
        """Reset."""
        await context.set_state(fresh=1)  # type: ignore[attr-defined]
        return "ok"

    calls = [Use("put", name=str(n)) for n in range(8)]
    steps = Say(calls=calls), Say(calls=[Use("reset")]), "ok"
    async with serve(helper(tools=[put, reset]), *steps) as harness:
        session = await harness.get_or_create("s")
        states = []
        async for item in session.stream("go"):
            if getattr(item, "kind", "") == "tool.finished":
                states.append(session.state.get())
        assert states[7] == {str(n): True for n in range(8)}
        assert session.state.get() == {"fresh": 1}


@pytest.mark.parity("harness-kernel", 50)
async def test_what_is_too_large_or_no_json_is_refused_and_changes_nothing() -> None:
    async with serve(helper(), "hi") as harness:
        state = (await harness.get_or_create("s")).state
        await state.update(a=1)
        with pytest.raises(InvalidValue, match="state"):
            await state.update(big="x" * 2_000_000)
        with pytest.raises(InvalidValue):
            await state.update(bad=float("nan"))
        with pytest.raises((InvalidValue, TypeError)):
            await state.update(bad=object())
        assert state.get() == {"a": 1}


@pytest.mark.parity("harness-kernel", 51, 52)
async def test_state_mode_and_model_are_there_after_reopening(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    models = [script("a", ref="a/m"), script("b", ref="b/m")]
    agent = helper(state={"n": 0}, modes=[Mode("one"), Mode("two")])

    def make() -> Harness:
        return Harness(agent, providers=models, default_model="a/m", store=storage)

    async with make() as harness:
        session = await harness.get_or_create("s")
        await session.state.update(n=1)
        await session.mode.switch("two")
        await session.model.set("b/m")
        before = session.status
    async with make() as harness:
        session = await harness.get_or_create("s")
        assert session.state.get() == {"n": 1}
        assert (session.mode.name, session.model.chosen) == ("two", "b/m")
        assert session.status == before
        assert (await session.send("hello")).text == "b"


@pytest.mark.parity("harness-kernel", 50)
async def test_all_threads_share_it() -> None:
    async with serve(helper(state={"n": 0}), "hi") as harness:
        main = await harness.get_or_create("s")
        side = await harness.get_or_create("s", thread="side")
        await side.state.update(n=1)
        assert main.state.get() == side.state.get() == {"n": 1}

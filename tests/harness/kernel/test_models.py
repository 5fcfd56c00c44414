"""Which model speaks: the run's, the session's, the mode's, the agent's, the harness's."""

from __future__ import annotations

import pytest

from holdfast import Harness, InvalidValue, Mode
from holdfast.models.scripted import Fail, Say, ScriptedModel

from .scene import helper, script, serve


def voices(*names: str) -> list[ScriptedModel]:
    """Models that say their own names."""
    return [ScriptedModel([name], ref=f"{name}/m", repeat=True) for name in names]


@pytest.mark.parity("harness-kernel", 8, 9, 13)
async def test_run_over_session_over_mode_over_agent_over_harness() -> None:
    agent = helper(
        modes=[Mode("plain"), Mode("own", model="mode/m")],
        initial_mode="own",
        model="agent/m",
    )
    models = voices("run", "session", "mode", "agent", "default")
    async with Harness(agent, providers=models, default_model="default/m") as harness:
        session = await harness.get_or_create("s")
        await session.model.set("session/m")
        run = await session.send("1", model="run/m")
        assert (run.text, run.model) == ("run", "run/m")
        assert (await session.send("2")).text == "session"
        await session.model.clear()
        assert (await session.send("3")).text == "mode"
        await session.mode.switch("plain")
        assert (await session.send("4")).text == "agent"
    async with Harness(helper(), providers=models, default_model="default/m") as harness:
        assert (await harness.send("t", "5")).text == "default"


@pytest.mark.parity("harness-kernel", 13)
async def test_the_choice_of_a_session_is_seen_after_set_and_clear() -> None:
    models = voices("a", "b")
    async with Harness(helper(), providers=models, default_model="a/m") as harness:
        session = await harness.get_or_create("s")
        assert (session.model.chosen, session.model.ref) == (None, "a/m")
        await session.model.set("b/m")
        assert (session.model.chosen, session.model.ref) == ("b/m", "b/m")
        assert session.status.model == "b/m"
        await session.model.clear()
        assert (session.model.chosen, session.model.ref) == (None, "a/m")


@pytest.mark.parity("harness-kernel", 9, 13)
@pytest.mark.parametrize("ref", ["", "  ", "b", "a/other"])
async def test_a_model_that_is_none_is_refused_at_once(ref: str) -> None:
    async with Harness(helper(), default_model=voices("a")[0]) as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue):
            await session.model.set(ref)
        with pytest.raises(InvalidValue):
            await session.send("hi", model=ref)
        assert session.model.chosen is None
        assert not await session.transcript()


@pytest.mark.parity("harness-kernel", 9)
async def test_the_wish_of_a_run_is_only_of_that_run_and_outlives_a_fallback() -> None:
    broken = script(Fail(RuntimeError("no")), ref="broken/m")
    models = [broken, *voices("a", "b")]
    async with Harness(helper(), providers=models, default_model="a/m") as harness:
        session = await harness.get_or_create("s")
        failed = await session.send("1", model="broken/m")
        assert (failed.status, failed.code) == ("failed", "model_failed")
        assert (await session.send("2")).text == "a"


async def test_fallbacks_speak_in_turn_when_a_model_cannot() -> None:
    from holdfast import ModelUnavailable

    down = script(Fail(ModelUnavailable(model="down/m", problem="away")), ref="down/m")
    up = script(Say("here", usage={"input_tokens": 3}), ref="up/m")
    async with serve(
        helper(), providers=[down, up], default_model="down/m", fallback_models=["up/m"]
    ) as harness:
        result = await harness.send("s", "hi")
    assert (result.text, result.model) == ("here", "up/m")

"""Settings and limits: what cannot work is refused at once, with every fault; what is odd but
legal neither hangs nor floods the log."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import sys
from typing import Any

import pytest
from pydantic_ai.providers import infer_provider_class

from holdfast import (
    Agent,
    ErrorPolicy,
    Harness,
    InvalidAgent,
    InvalidValue,
    LogConfig,
    Mode,
    RunLimits,
    sync,
    tool,
)
from holdfast.harness.sandbox import NoSandbox
from holdfast.models import Say, ScriptedModel, Use
from holdfast.models.pydantic_ai import KINDS, knows
from holdfast.server import HoldfastEngine

NAN = float("nan")


@tool
async def look(at: str = "") -> str:
    """Look at something."""
    return "seen"


def agent(**parts: Any) -> Agent:
    return Agent("desk", **{"instructions": "Help.", "tools": [look], **parts})


def served(*steps: Any, **settings: Any) -> Harness:
    model = ScriptedModel(steps or ("hi",), repeat=True)
    return Harness(agent(), **{"default_model": model, **settings})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("window_tokens", bad) for bad in (0, -1, 1.5, "9", None, True)),
        *(("window_turns", bad) for bad in (0, -1, NAN)),
        *(("parallel_tools", bad) for bad in (0, -1, "2")),
        *(("result_limit", bad) for bad in (0, 999, 1e4, "many")),
        *(("parallel_recovery", bad) for bad in (0, -1, "2")),
        *(("crashes", bad) for bad in (-1, "3", None)),
        *(("ttl", bad) for bad in (0, -1, NAN, float("inf"), "5", 0.0001, 86_401, None, True)),
        *(("recovery", bad) for bad in ("x", None, 1)),
        *(("error_policy", bad) for bad in (5, ErrorPolicy)),
        *(("logging", bad) for bad in (5, "debug", LogConfig)),
        *(("limits", bad) for bad in (5, {"steps": 2}, RunLimits(steps=0), RunLimits(cost=-1))),
        *(("limits", bad) for bad in (RunLimits(seconds=NAN), RunLimits(tokens=0))),
        *(("summarise", bad) for bad in ("nope", 5, "")),
        *(("tenant", bad) for bad in ("", 5, None, "x" * 600)),
        *(("sandbox", bad) for bad in (5, "docker", NoSandbox)),
        *(("store", bad) for bad in (5, None)),
        *(("price", bad) for bad in (5, "free")),
        *(("budgets", bad) for bad in (None, "user", [{"scope": "user", "tokens": 5}], 5)),
        *(("versions", bad) for bad in ("x", None, 1)),
        *(("trace", bad) for bad in ("x", 5)),
        *(("providers", bad) for bad in (5, "openai")),
        *(("fallback_models", bad) for bad in (5, "openai/gpt-5.1", [5])),
    ],
)
async def test_a_setting_that_cannot_work_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidAgent) as caught:
        served(**{name: value})
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(name)


async def test_all_faults_are_listed_at_once() -> None:
    with pytest.raises(InvalidAgent) as caught:
        Harness(
            agent(instructions=None),
            default_model=5,  # type: ignore[arg-type]
            window_turns=0,
            ttl=0,
            limits=RunLimits(steps=-1, seconds=0),
        )
    text = str(caught.value)
    for word in ("instructions", "providers[0]", "window_turns", "ttl", "steps", "seconds"):
        assert word in text


async def test_the_least_that_is_allowed_works() -> None:
    settings: dict[str, Any] = {"window_tokens": 1, "window_turns": 1, "parallel_tools": 1}
    async with served(crashes=0, recovery="leave", summarise="on", **settings) as harness:
        for _ in range(3):
            async with asyncio.timeout(30):
                assert (await harness.send("s", "go")).status == "done"


@pytest.mark.parametrize("window", [{"window_tokens": 1}, {"window_turns": 1}, {"window_turns": 3}])
async def test_no_compaction_is_written_that_puts_nothing_away(window: dict[str, int]) -> None:
    steps: list[Say | str] = [Say("Let me look. " * 20, calls=[Use("look", at="x" * 400)]), "done"]
    model = ScriptedModel(steps, per_turn=True)
    async with Harness(agent(), default_model=model, **window) as harness:  # type: ignore[arg-type]
        session = await harness.get_or_create("s")
        for n in range(6):
            async with asyncio.timeout(30):
                assert (await session.send(f"{n}: look")).text == "done"
        made = [event.json() for event in await session.events(kinds=("compaction.made",))]
    places = [payload["upto"] for payload in made]
    assert places == sorted(set(places))
    assert places[0] > 0
    assert len(model.calls) == 12


# Limits of one run


async def test_limits_of_a_message_leave_the_others_as_they_are() -> None:
    calling = Say("on", calls=[Use("look")])
    async with served(calling, limits=RunLimits(steps=3)) as harness:
        for given in (RunLimits(seconds=60), {"seconds": 60}, RunLimits(), None):
            result = await harness.send("s", "go", limits=given)
            assert (result.code, result.metrics and result.metrics.steps) == ("limit_steps", 3)
        result = await harness.send("s", "go", limits=RunLimits(steps=2))
        assert result.metrics is not None
        assert result.metrics.steps == 2


async def test_steps_are_limited_where_only_other_limits_are_given() -> None:
    calling = Say("on", calls=[Use("look")])
    async with served(calling, limits=RunLimits(tokens=10_000_000)) as harness:
        result = await harness.send("s", "go")
        assert (result.code, result.metrics and result.metrics.steps) == ("limit_steps", 50)


async def test_no_limit_is_no_limit() -> None:
    calling = Say("on", calls=[Use("look")])
    async with served(*[calling] * 60, "end", limits=RunLimits(steps=None)) as harness:
        assert (await harness.send("s", "go")).text == "end"


@pytest.mark.parametrize(
    "limits",
    [
        *({"steps": bad} for bad in (0, -1, 1.5, NAN, "x", True)),
        *({"seconds": bad} for bad in (0, -1, NAN, float("inf"), "x")),
        *({"cost": bad} for bad in (0, -0.5, NAN)),
        *(RunLimits(tokens=0), RunLimits(seconds=NAN), RunLimits(cost=-1.0)),
        *(5, [1], {"step": 1}, {1: 2}, "steps"),
    ],
)
async def test_limits_of_a_message_that_are_none_are_refused(limits: Any) -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue) as caught:
            await session.send("go", limits=limits)
        assert caught.value.field == "limits"
        assert session.status.head == 1


# Models that nobody serves


@pytest.mark.parametrize(
    "settings",
    [
        {"default_model": "nobody/x"},
        {"fallback_models": ["nobody/x"]},
        {"summarise": "nobody/x"},
    ],
)
async def test_a_vendor_that_nobody_serves_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidAgent, match="'nobody/x' has no known provider"):
        served(**settings)
    with pytest.raises(InvalidAgent, match="'nobody/x' has no known provider"):
        Harness(agent(modes=[Mode("a", model="nobody/x")]))


async def test_so_it_is_for_a_session() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue, match="nobody/x"):
            await session.model.set("nobody/x")
        with pytest.raises(InvalidValue, match="nobody/x"):
            await session.send("go", model="nobody/x")


async def test_without_the_package_a_vendor_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(InvalidAgent, match=r"holdfast\[models\]"):
        served(default_model="openai/gpt-5.1")


def test_our_list_of_vendors_is_theirs() -> None:
    cases = re.findall(r"^ *case (.*):$", inspect.getsource(infer_provider_class), re.MULTILINE)
    theirs = {name for case in cases for name in re.findall(r"'([^']+)'", case)}
    assert len(theirs) > 30
    assert theirs == KINDS


def test_a_vendor_of_a_later_version_is_found_by_its_module() -> None:
    assert not knows("no-vendor")
    assert not knows("../models")
    assert knows("gateway")  # which has a module, and is not in our list


async def test_a_missing_key_is_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with served(default_model="openai/gpt-5.1") as harness:
            result = await harness.send("s", "go")
    assert result.code == "model_failed"
    assert (result.error or "").startswith("The model call failed. Set OPENAI_API_KEY, or pass")
    assert "openai/gpt-5.1: the key or the address is missing; set OPENAI_API_KEY" in caplog.text
    shown = ErrorPolicy(expose_internal_errors=True)
    async with served(default_model="openai/gpt-5.1", error_policy=shown) as harness:
        result = await harness.send("s", "go")
        assert "set OPENAI_API_KEY" in (result.error or "")


async def test_the_former_name_of_store_still_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"Harness\(store=…\)"):
        harness = served(storage="memory:")
    async with harness:
        assert (await harness.send("s", "go")).text == "hi"


@pytest.mark.parametrize("make", [Harness, sync.Harness])
def test_an_unknown_setting_is_reported_by_the_public_name_of_the_class(make: Any) -> None:
    with pytest.raises(TypeError, match=r"^Harness\.__init__\(\) got .* argument 'stor'"):
        make(agent(), default_model="scripted/offline", stor="memory:")
    with pytest.raises(TypeError, match=r"^Harness\.__init__\(\) missing .*'agent'"):
        make()


def test_a_function_written_for_the_former_name_still_gets_its_store() -> None:
    def make(storage: Any, tenant: str) -> Harness:
        return served(store=storage, tenant=tenant)

    with pytest.warns(DeprecationWarning, match=r"make\(store, …\)"):
        HoldfastEngine({"desk": make})


def test_a_model_in_place_of_its_name_is_told_where_it_belongs() -> None:
    model: Any = ScriptedModel(["Hi."], ref="mine/own")
    with pytest.raises(InvalidAgent) as caught:
        Harness(Agent("shop", instructions="Help.", model=model), providers=[model])
    wanted = "the agent's model is an object: write 'mine/own', and pass the object to Harness("
    assert wanted in str(caught.value)
    assert Harness(Agent("shop", instructions="Help.", model="mine/own"), providers=[model])

"""What a harness logs of a turn: which records, in which order, with which fields."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, Harness, LogConfig, tool
from holdfast.harness.telemetry.logs import MemorySink
from holdfast.models import Say, ScriptedModel, Use


@pytest.mark.parity("harness-kernel", 137)
async def test_a_turn_with_a_tool_that_fails_is_logged_like_this() -> None:
    @tool
    async def look(order: str) -> str:
        """Look an order up."""
        return "fine"

    @tool
    async def fall(secret: str) -> str:
        """Fail."""
        raise ValueError(f"no {secret}")

    script = [
        Say("", calls=[Use("look", order="4")]),
        Say("", calls=[Use("fall", secret="s3cr3t")]),
    ]
    model = ScriptedModel([*script, "Done."], per_turn=True)
    sink = MemorySink()
    agent = Agent("shop", instructions="Help.", tools=[look, fall])
    settings: dict[str, Any] = {"logging": LogConfig(level="info", sinks=[sink])}
    async with Harness(agent, default_model=model, **settings) as harness:
        result = await (await harness.get_or_create("s")).send("go")
        await harness._logs.flush()
    records = [record for record in sink.records if record["category"] != "session"]
    assert [(r["level"], r["category"], r["event"]) for r in records] == [
        ("info", "run", "run_started"),
        ("info", "model", "model_answered"),
        ("info", "tool", "tool_started"),
        ("info", "tool", "tool_finished"),
        ("info", "model", "model_answered"),
        ("info", "tool", "tool_started"),
        ("warning", "tool", "tool_failed"),
        ("info", "model", "model_answered"),
        ("info", "run", "run_finished"),
    ]
    assert {r["session"] for r in records} == {"s"}
    assert {r["thread"] for r in records} == {"main"}
    assert records[0]["run"] == records[-1]["run"] == result.run
    assert [r["step"] for r in records if r["event"] == "model_answered"] == [1, 2, 3]
    assert [r["tool"] for r in records if r["event"] == "tool_started"] == ["look", "fall"]
    failed = records[6]["error"]
    assert (failed["code"], failed["category"], failed["severity"], failed["recoverable"]) == (
        "tool_failed",
        "tool",
        "error",
        True,
    )

"""Those who watch a server change nothing of what its clients get, whatever they raise."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from holdfast import Agent, Hook, tool
from holdfast.client import Client
from holdfast.events import Event
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import ServerLimits, SharedSecret, create_app

from .scene import PATIENCE, QUICK, SECRET, serving

WORDS = "One two three four five."


class Watchers:
    """Everything that a program can hang into a server to watch it. With `raising`, each of them
    fails whenever it is called."""

    def __init__(self, *, raising: bool) -> None:
        self.raising = raising
        self.called: Counter[str] = Counter()

    def _come(self, who: str) -> None:
        self.called[who] += 1
        if self.raising:
            raise RuntimeError(f"{who} failed")

    def sink(self, record: dict[str, Any]) -> None:
        self._come("sink")

    async def audit(self, record: Any) -> None:
        self._come("audit")

    def hook(self, acting: Any, event: Event) -> None:
        self._come("hook")

    def logger(self) -> logging.Logger:
        watchers = self

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                watchers._come("handler")

        found = logging.Logger("watched")
        found.addHandler(Handler())
        return found

    def tracer(self) -> TracerProvider:
        watchers = self

        class Processor(SpanProcessor):
            def on_start(self, span: Any, parent_context: Any = None) -> None:
                watchers._come("span")

            def on_end(self, span: Any) -> None:
                watchers._come("span")

        found = TracerProvider()
        found.add_span_processor(Processor())
        return found


@tool
def look(what: str) -> str:
    """Look at something."""
    return f"seen {what}"


async def watched(
    watchers: Watchers, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], str, Any]:
    """What a client is given of one message: events, text, result."""
    model = ScriptedModel.by_input({"Go": [Say("", calls=[Use("look", what="it")]), WORDS]})
    hooks = [Hook(kind, watchers.hook) for kind in ("run.started", "tool.finished")]
    sinks: list[Any] = [watchers.sink, watchers.logger()]
    # What `set_tracer_provider` does, which a process may do only once.
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", watchers.tracer())
    app = await asyncio.to_thread(
        create_app,
        agents=[Agent("clerk", instructions="Look.", tools=[look], hooks=hooks)],
        stores="memory:",
        auth=SharedSecret(SECRET),
        audit=watchers.audit,
        limits=ServerLimits(rate=None),
        harness={
            "default_model": model,
            "logging": LogConfig(level="debug", sinks=sinks, propagate=False),
            "trace": True,
        },
    )
    async with serving(app) as url, Client(url, SECRET, patience=QUICK) as client:
        session = await client.get_or_create("s")
        stream = session.stream("Go")
        kinds, text = [], ""
        async for item in stream:
            if isinstance(item, Event):
                kinds.append(item.kind)
            else:
                text += getattr(item, "text", "")
        result = stream.result
        assert kinds == [event.kind for event in await session.events(after=(stream.seq or 0) - 1)]
        return kinds, text, (result.status, result.text, result.usage)


@pytest.mark.parity("computeragent", "S23")
async def test_whatever_those_who_watch_raise_a_client_gets_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    async with asyncio.timeout(2 * PATIENCE):
        calm, raising = Watchers(raising=False), Watchers(raising=True)
        plain = await watched(calm, monkeypatch)
        assert await watched(raising, monkeypatch) == plain
    kinds, text, result = plain
    assert (kinds[0], kinds[-1], text) == ("message.received", "run.finished", WORDS)
    assert result[:2] == ("done", WORDS)
    assert {*calm.called} == {*raising.called} == {"sink", "handler", "audit", "hook", "span"}

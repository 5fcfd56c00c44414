"""Traces: the spans of a run as an exporter of OpenTelemetry gets them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from holdfast.errors import ModelTimeout
from holdfast.harness.telemetry.spans import SILENT, tracing

SECRET = "what was said"


class Traced:
    """A tracer provider that keeps its spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.provider.shutdown()


async def test_a_run_its_model_calls_and_its_tools_are_one_trace(traced: Traced) -> None:
    to = tracing(tracer_provider=traced.provider)
    assert to.enabled
    with to.run("s1", "shop", "r1", thread="main"):
        with to.chat("openai", "gpt-5.1", step=1) as chat:
            await asyncio.sleep(0)
            chat.usage(
                {"input_tokens": 12, "output_tokens": 3, "cache_read_tokens": 8}, "gpt-5.1-a"
            )
            chat.finish("calls")

        async def call(id: str) -> None:
            with to.tool(f"refund{id}", id):
                await asyncio.sleep(0)

        await asyncio.gather(call("1"), call("2"))
    spans = traced.spans
    run = spans["invoke_agent shop"]
    assert dict(run.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "shop",
        "gen_ai.conversation.id": "s1",
        "holdfast.run": "r1",
        "holdfast.thread": "main",
    }
    assert dict(spans["chat gpt-5.1"].attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5.1",
        "gen_ai.response.model": "gpt-5.1-a",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.response.finish_reasons": ("calls",),
        "holdfast.step": 1,
    }
    assert dict(spans["execute_tool refund2"].attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "refund2",
        "gen_ai.tool.call.id": "2",
        "gen_ai.tool.type": "function",
    }
    assert (run.parent, run.kind) == (None, SpanKind.INTERNAL)
    assert spans["chat gpt-5.1"].kind == SpanKind.CLIENT
    for name, span in spans.items():
        if span is not run:
            assert span.parent is not None, name
            assert span.parent.span_id == run.context.span_id
        assert span.status.status_code == StatusCode.UNSET


def test_every_name_is_one_of_the_conventions(traced: Traced) -> None:
    to = tracing(tracer_provider=traced.provider)
    usage = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    with to.run("s", "a", "r"), to.chat("p", "m") as chat, to.tool("t", "c"):
        chat.usage(dict.fromkeys((*usage, "reasoning_tokens"), 1), "m")
        chat.finish("stop")
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    names = {name for span in traced.spans.values() for name in span.attributes or {}}
    assert {name for name in names if name.startswith("gen_ai.")} <= known
    assert len(names) >= 15


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelTimeout(model="m", problem=SECRET), "model_timeout"),
        (ValueError(SECRET), "ValueError"),
        (asyncio.CancelledError(SECRET), "CancelledError"),
    ],
)
def test_a_span_that_fails_names_the_error_and_nothing_it_says(
    traced: Traced, error: BaseException, kind: str
) -> None:
    to = tracing(tracer_provider=traced.provider)
    with pytest.raises(type(error)), to.tool("refund", "c1"):
        raise error
    span = traced.spans["execute_tool refund"]
    assert (span.attributes or {})["error.type"] == kind
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, kind)
    assert SECRET not in span.to_json()
    assert span.events == ()


def test_a_failure_that_raises_nothing_is_put_down_too(traced: Traced) -> None:
    with tracing(tracer_provider=traced.provider).tool("refund", "c1") as span:
        span.fail("denied")
    assert (traced.spans["execute_tool refund"].attributes or {})["error.type"] == "denied"


def test_without_tracing_a_span_is_silent(traced: Traced) -> None:
    to = tracing(enabled=False, tracer_provider=traced.provider)
    assert not to.enabled
    with to.run("s", None, "r") as run, to.chat("p", "m") as chat:
        chat.usage({"input_tokens": 1})
        chat.finish("stop")
        run.fail("run_failed")
        assert run is chat is SILENT
    assert traced.spans == {}


def test_an_agent_without_a_name_has_a_span_too(traced: Traced) -> None:
    with tracing(tracer_provider=traced.provider).run("s", None, "r"):
        pass
    assert list(traced.spans) == ["invoke_agent"]


PROGRAMS = {
    "not imported unless asked for": """
from holdfast.harness.telemetry.spans import tracing
with tracing().run("s", "a", "r") as span:
    span.fail("x")
assert "opentelemetry" not in sys.modules
assert not tracing(False).enabled
""",
    "taken up where the program uses it": """
import opentelemetry.trace
from opentelemetry.sdk.trace import TracerProvider
from holdfast.harness.telemetry.spans import tracing
assert not tracing().enabled
opentelemetry.trace.set_tracer_provider(TracerProvider())
assert tracing().enabled
with tracing().run("s", "a", "r") as span:
    span.fail("x")
""",
    "missing where it is asked for": """
sys.modules["opentelemetry"] = None
from holdfast.errors import MissingExtra
from holdfast.harness.telemetry.spans import tracing
assert not tracing().enabled
try:
    tracing(True)
except MissingExtra as error:
    assert "holdfast[otel]" in str(error)
else:
    raise SystemExit("it was not missed")
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_package_is_imported_only_when_used(program: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys\n{program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")

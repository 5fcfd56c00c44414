"""OpenTelemetry traces that follow its GenAI conventions: a span for each run, model call and tool
call.

OpenTelemetry is imported if tracing is enabled or the program already uses it; otherwise spans do
nothing. Spans contain ids and the names of models and tools. They never contain content: no
messages, arguments, results or error messages.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import MissingExtra
from ...log.events import Key
from ...log.state import Run

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer, TracerProvider

LOGGER = logging.getLogger("holdfast.tracing")
# Usage counters that have a different name in the conventions.
USAGE = {
    "cache_read_tokens": "cache_read.input_tokens",
    "cache_write_tokens": "cache_creation.input_tokens",
    "reasoning_tokens": "reasoning.output_tokens",
}


@contextmanager
def _errors_logged() -> Iterator[None]:
    """Context manager that logs and suppresses the exceptions of a tracer, so that they never fail
    the traced work."""
    try:
        yield
    except Exception as error:
        LOGGER.warning("the OpenTelemetry tracer failed (%s)", type(error).__name__)


class OpenSpan:
    """An open span. Without OpenTelemetry, its methods do nothing."""

    def __init__(self, span: OtelSpan | None = None) -> None:
        self._span = span

    def set(self, name: str, value: Any) -> None:
        """Set an attribute, unless the value is None."""
        if self._span is not None and value is not None:
            with _errors_logged():
                self._span.set_attribute(name, value)

    @property
    def trace(self) -> str | None:
        """The trace id in hexadecimal."""
        return None if self._span is None else f"{self._span.get_span_context().trace_id:032x}"

    def usage(self, usage: Mapping[str, int], model: str | None = None) -> None:
        """Record the usage of a model call, and the model that answered, if known."""
        for name, number in usage.items():
            self.set(f"gen_ai.usage.{USAGE.get(name, name)}", number)
        self.set("gen_ai.response.model", model)

    def finish(self, *reasons: str) -> None:
        """Record the reasons why the model stopped."""
        self.set("gen_ai.response.finish_reasons", list(reasons) or None)

    def fail(self, code: str) -> None:
        """Mark the span as failed; `code` is the code of a fault or the name of an exception."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

            with _errors_logged():
                self._span.set_attribute("error.type", code)
                self._span.set_status(Status(StatusCode.ERROR, code))


SILENT = OpenSpan()


class Tracing:
    """Starts spans. A span is the parent of the spans that are started inside it."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer
        self._traces: dict[str, str | None] = {}  # by run, for runs driven by this process

    @property
    def enabled(self) -> bool:
        return self._tracer is not None

    def trace(self, run: str | None) -> str | None:
        """Return the trace id of a run driven by this process."""
        return self._traces.get(run or "")

    @contextmanager
    def run(
        self, session: str, agent: str | None, run: str, thread: str | None = None
    ) -> Iterator[OpenSpan]:
        """Start a span for one run of an agent, as a context manager."""
        with self._span(
            f"invoke_agent {agent}" if agent else "invoke_agent",
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": agent,
                "gen_ai.conversation.id": session,
                "holdfast.run": run,
                "holdfast.thread": thread,
            },
        ) as span:
            self._traces[run] = span.trace
            try:
                yield span
            finally:
                self._traces.pop(run, None)

    def chat(
        self, provider: str, model: str, step: int | None = None
    ) -> AbstractContextManager[OpenSpan]:
        """Return a context manager that starts a span for one model call."""
        return self._span(
            f"chat {model}",
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": model,
                "holdfast.step": step,
            },
            remote=True,
        )

    def tool(self, name: str, call: str) -> AbstractContextManager[OpenSpan]:
        """Return a context manager that starts a span for one tool call."""
        return self._span(
            f"execute_tool {name}",
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call,
                "gen_ai.tool.type": "function",
            },
        )

    @contextmanager
    def _span(
        self, name: str, attributes: dict[str, Any], *, remote: bool = False
    ) -> Iterator[OpenSpan]:
        if self._tracer is None:
            yield SILENT
            return
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 - an extra

        span, opened = SILENT, None
        with _errors_logged():
            opened = self._tracer.start_as_current_span(
                name,
                kind=SpanKind.CLIENT if remote else SpanKind.INTERNAL,
                attributes={key: value for key, value in attributes.items() if value is not None},
                record_exception=False,  # its message may contain content
                set_status_on_exception=False,
            )
            span = OpenSpan(opened.__enter__())
        try:
            yield span
        except BaseException as error:
            span.fail(str(getattr(error, "code", None) or type(error).__name__))
            raise
        finally:
            if opened is not None and span is not SILENT:
                with _errors_logged():
                    opened.__exit__(None, None, None)


class RunSpan:
    """The span of a driver's current run, if there is one."""

    def __init__(self, tracing: Tracing, key: Key, agent: str) -> None:
        self._tracing, self._key, self._agent = tracing, key, agent
        self._stack = ExitStack()
        self._span: OpenSpan | None = None

    def begin(self, run: str) -> None:
        """Start the span of a run."""
        key = self._key
        span = self._tracing.run(key.session, self._agent, run, key.thread)
        self._span = self._stack.enter_context(span)

    def end(self, run: Run | None) -> None:
        """End the span; `run` is the final state of the run."""
        if self._span is not None and run is not None and run.status == "failed":
            self._span.fail(run.code or "run_failed")
        self._span = None
        self._stack.close()


def tracing(enabled: bool | None = None, tracer_provider: TracerProvider | None = None) -> Tracing:
    """Create the tracing of a harness. If `enabled` is None, tracing is enabled if
    `tracer_provider` is passed or the program has set a global provider. If it is True,
    `MissingExtra` is raised if OpenTelemetry is not installed."""
    if enabled is None:
        known = sys.modules.get("opentelemetry.trace")
        enabled = tracer_provider is not None or (
            known is not None and getattr(known, "_TRACER_PROVIDER", None) is not None
        )
    if not enabled:
        return Tracing()
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(extra="otel", needed_for="tracing") from error
    return Tracing(trace.get_tracer("holdfast", tracer_provider=tracer_provider))

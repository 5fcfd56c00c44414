"""Who stands in for models, tools and agents while a log is replayed.

A model says what was recorded, a tool returns it, and neither does anything else. What is
swapped is called instead, from its step on.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ...errors import Diverged, HoldfastError, InvalidValue, ModelError, ModelUnavailable
from ...harness.faults import Attempts, ErrorPolicy, Retry, RunFault
from ...harness.tools import Issue, Park, Tool, ToolResult, tool
from ...harness.tools.signature import is_async
from ...harness.tools.values import ROOT
from ...log import events as ev
from ...log.state import FINAL
from ...models.port import Chunk, EndChunk, Model, ModelCall, TextChunk
from ...models.recorded import RecordedModel, recorded_chunks
from ...models.registry import Models
from ...models.scripted import split_words
from .stage import Stage, forever
from .track import Track, result
from .values import masked


class Recorded(HoldfastError):
    """A failure that was recorded."""

    code = "recorded"

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def __str__(self) -> str:
        return f"recorded: {self.fault}"


def _classify(error: BaseException, fault: RunFault) -> dict[str, Any] | None:
    return {"code": error.fault} if isinstance(error, Recorded) else None


POLICY = ErrorPolicy(classify=_classify, retry=Retry(model=Attempts(1), storage=Attempts(1)))


class Voices(Models):
    """Every model of a log."""

    def __init__(self, stage: Stage, track: Track, swapped: Model | None) -> None:
        super().__init__(default=False)
        self._stage, self._track, self._swapped = stage, track, swapped

    def resolve(self, ref: str, field: str = "model") -> Model:
        return Voice(ref, self._stage, self._track, self._swapped)

    def check(self, ref: str, field: str = "model") -> None:
        """All there were may be asked for."""


class Voice:
    """A model that says what was recorded at this place, or what the swapped one says."""

    def __init__(self, ref: str, stage: Stage, track: Track, swapped: Model | None) -> None:
        self.ref, self._stage, self._track, self._swapped = ref, stage, track, swapped

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        stage, track = self._stage, self._track
        if self._swapped is not None and stage.swaps(track):
            stage.notes.asked = call
            said = self._other(self._swapped, call)
        elif track.free:
            stage.notes.asked = call
            said = self._again(call)
        else:
            said = self._said()
        async with aclosing(said) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _other(self, model: Model, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self._stage.busy += 1
        try:
            async with aclosing(model.stream(call)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._stage.busy -= 1

    async def _again(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        """Off the recording: an answer only to the very same prompt."""
        stage, track = self._stage, self._track
        try:
            async for chunk in RecordedModel(track.events, ref=self.ref).stream(call):
                yield chunk
        except ModelError as error:
            asked = [e for e, p in track.ahead() if isinstance(p, ev.ModelCalled)]
            path = f"messages[{error.step}]" if isinstance(error, Diverged) else "messages"
            was, came = (
                (error.expected, error.found) if isinstance(error, Diverged) else (None, None)
            )
            stage.notes.add(track, asked[0] if asked else None, path, was, came, str(error))
            stage.end(track, "prompt")
            await forever()

    async def _said(self) -> AsyncGenerator[Chunk, None]:
        stage, track = self._stage, self._track
        coming = track.answer()
        if coming is None:
            stage.end(track)
            await forever()
            return
        payload = coming[1]
        if isinstance(payload, ev.MessageCompleted):
            if payload.model is not None and payload.model != self.ref and "/" in payload.model:
                raise ModelUnavailable(model=self.ref, problem="another one answered then")
            for chunk in recorded_chunks(payload):
                yield chunk
            return
        if isinstance(payload, ev.MessageInterrupted):
            for word in split_words(payload.text):
                yield TextChunk(word)
        await self._broke_off()
        yield EndChunk("other")

    async def _broke_off(self) -> None:
        """End as it ended: with an error, or when somebody put an end to it."""
        stage, track = self._stage, self._track
        if (broken := track.breaks()) is not None:
            await stage.hand_in(track)
            if not track.struck:
                stage.stops.leave(track) if broken == "left" else stage.stops.crash(track)
            await forever()
        ends = next((p for _, p in track.ahead() if isinstance(p, ev.RunFinished)), None)
        if ends is not None and ends.code == "limit_time":
            stage.stops.run_out(track)
            await forever()
        if ends is not None and ends.status == "failed":
            raise Recorded(ends.code or "model_failed")
        await stage.hand_in(track)  # with what ended it
        if ends is None:
            stage.end(track)
        await forever()


# Tools


class Given(dict[str, Any]):
    """Arguments as a function takes them; `raw` are those that were given."""

    raw: dict[str, Any]

    @classmethod
    def of(cls, values: dict[str, Any], raw: dict[str, Any]) -> Given:
        made = cls(values)
        made.raw = raw
        return made


@dataclass(frozen=True)
class Lenient:
    """The arguments of a tool as its own form reads them; those that were replaced as they are."""

    inner: Any
    refused: Callable[[dict[str, Any]], bool]

    @property
    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = self.inner.schema
        return found

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        values, issues = self.inner.read(arguments)
        if masked(arguments):
            bad = self.refused(arguments)
            values, issues = arguments, [Issue(ROOT, "were refused")] if bad else []
        return Given.of(values, arguments), issues

    def call(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Any:
        return function(arguments, context)


@dataclass(frozen=True)
class Anything:
    """The arguments of a tool of which only the name is known."""

    schema: dict[str, Any]

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        return Given.of(arguments, arguments), []

    def call(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Any:
        return function(arguments, context)


class Props:
    """The stand-ins of one log's tools. `swapped` are called instead, from their step on."""

    def __init__(self, stage: Stage, track: Track, swapped: Mapping[str, Tool]) -> None:
        self._stage, self._track, self._swapped = stage, track, swapped
        self._used: set[int] = set()

    def of(self, known: Tool) -> Tool:
        """The stand-in of a tool of the program: declared as it is, and doing nothing."""
        approval: Any = known.approval
        if callable(approval) and self._stage.plan.terms.masked:
            approval = self._decided(known)
        function = self._function(known.name, is_async(known.function))
        refused = lambda arguments: self._track.decision(known.name, arguments) == "bad"  # noqa: E731
        form = Lenient(known.form, refused)
        return known.replace(form=form, function=function, approval=approval)

    def named(self, name: str, *, thread: bool = False) -> Tool:
        """The stand-in of a tool of which the log has the name."""
        return Tool(
            name=name,
            description="",
            form=Anything({"type": "object"}),
            function=self._function(name, not thread),
        )

    def fitted(self, known: Mapping[str, Tool]) -> dict[str, Tool]:
        """The same with the fingerprints that they had at this place."""
        for name, item in known.items():
            object.__setattr__(item, "fingerprint", self._track.fingerprint(name))
        return dict(known)

    def _decided(self, known: Tool) -> Callable[..., Any]:
        """What was decided, where the arguments cannot be judged any more."""
        judge: Any = known.approval
        wanted = inspect.signature(judge).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted.values())

        async def approval(**arguments: Any) -> Any:
            context = arguments.pop("context", None)
            if masked(arguments):
                return self._track.decision(known.name, arguments)
            given = arguments if takes_all else {n: v for n, v in arguments.items() if n in wanted}
            if "context" in wanted:
                given = {**given, "context": context}
            said = judge(**given)
            return await said if inspect.isawaitable(said) else said

        return approval

    def _function(self, name: str, asynchronous: bool) -> Callable[..., Any]:
        async def stand_in(arguments: Given, context: Any) -> ToolResult:
            return await self._result(name, arguments.raw, context)

        def apart(arguments: Given, context: Any) -> Awaitable[ToolResult]:
            """What it returns is awaited, but the harness takes it for a function in a thread."""
            return stand_in(arguments, context)

        return stand_in if asynchronous else apart

    async def _result(self, name: str, arguments: dict[str, Any], context: Any) -> ToolResult:
        stage, track = self._stage, self._track
        if name in self._swapped and stage.swaps(track):
            return await self._other(self._swapped[name], arguments, context)
        found = self._again(name, arguments) if track.free else track.fate(context.call)
        if isinstance(found, Park):
            raise found
        if found is None and track.free:
            what = f"{name}({arguments})"
            stage.notes.add(track, None, "tool.finished", None, what, why="no answer was recorded")
            stage.end(track, "no_answer")
        if found is None:
            await forever()
        assert found is not None
        return found

    async def _other(self, other: Tool, arguments: dict[str, Any], context: Any) -> ToolResult:
        self._stage.busy += 1
        try:
            return await other.call(other.parse(arguments), context)
        finally:
            self._stage.busy -= 1

    def _again(self, name: str, arguments: Any) -> ToolResult | None:
        """Off the recording: what the same tool has answered to the same arguments, each once."""
        track, ids = self._track, list[str]()
        for payload in track.payloads:
            if isinstance(payload, ev.MessageCompleted):
                ids += [c.id for c in payload.calls if (c.name, c.arguments) == (name, arguments)]
        for place, payload in enumerate(track.payloads):
            if not isinstance(payload, ev.ToolFinished) or payload.call not in ids:
                continue
            if place >= track.at and place not in self._used:
                self._used.add(place)
                return result(payload) if payload.outcome in ("ok", "failed") else None
        return None


def final(fingerprint: str | None) -> Tool:
    """The tool of a typed answer, whatever that is like."""
    form = Anything({"type": "object"})
    made = Tool(name=FINAL, description="", form=form, function=lambda given, context: given)
    object.__setattr__(made, "fingerprint", fingerprint)
    return made


def swapped_tools(tools: Mapping[str, Any]) -> dict[str, Tool]:
    """What is given instead of tools, as tools."""
    found = {}
    for name, given in tools.items():
        if not isinstance(given, Tool) and not callable(given):
            raise InvalidValue(
                field=f"tools[{name!r}]",
                problem=f"is {type(given).__name__}",
                remedy="give a function with types, or a tool",
            )
        found[name] = given if isinstance(given, Tool) else tool(given, name=name)
    return found

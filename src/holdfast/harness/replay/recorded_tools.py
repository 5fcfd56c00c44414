"""Tools that return the recorded results. Only replacement tools are called, from the step on at
which the replacement begins."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidValue
from ...log import events as ev
from ...log.state import FINAL
from ..tools import DontKnow, Issue, Park, ProbeAnswer, Tool, ToolResult, tool
from ..tools.definition import DictForm
from ..tools.signature import is_async
from ..tools.values import ROOT
from .comparison import masked
from .outcomes import decision, fingerprint, probed, recorded_outcome, result
from .store import ReplayStore, forever
from .track import Track


class GivenArguments(dict[str, Any]):
    """Converted arguments for a function. `raw` are the arguments before conversion."""

    raw: dict[str, Any]

    @classmethod
    def of(cls, values: dict[str, Any], raw: dict[str, Any]) -> GivenArguments:
        made = cls(values)
        made.raw = raw
        return made


@dataclass(frozen=True)
class LenientForm(DictForm):
    """Converts the arguments of a tool by the tool's own signature, except arguments that contain
    redacted text. `refused` returns whether such arguments were rejected in the recording."""

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
            values, issues = arguments, [Issue(ROOT, "were rejected")] if bad else []
        return GivenArguments.of(values, arguments), issues


@dataclass(frozen=True)
class AnyForm(DictForm):
    """Accepts any arguments. Used for a tool that is known only by its name."""

    schema: dict[str, Any]

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        return GivenArguments.of(arguments, arguments), []


class RecordedTools:
    """The tools of one log. They return recorded results; the tools in `swapped` are called instead
    from a certain step on."""

    def __init__(self, stage: ReplayStore, track: Track, swapped: Mapping[str, Tool]) -> None:
        self._stage, self._track, self._swapped = stage, track, swapped
        self._used: set[int] = set()

    def of(self, known: Tool) -> Tool:
        """Return a tool with the declaration of the program's tool that returns recorded
        results."""
        approval: Any = known.approval
        if callable(approval) and self._stage.plan.terms.masked:
            approval = self._decided(known)
        function = self._function(known.name, is_async(known.function))

        def refused(arguments: dict[str, Any]) -> bool:
            return decision(self._track, known.name, arguments) == "bad"

        form = LenientForm(known.form, refused)
        probe = None if known.probe is None else self._probed
        return known.replace(form=form, function=function, approval=approval, probe=probe)

    def named(self, name: str, *, thread: bool = False) -> Tool:
        """Return a recorded tool that is known only by its name."""
        return Tool(
            name=name,
            description="",
            form=AnyForm({"type": "object"}),
            function=self._function(name, not thread),
            probe=self._probed,
        )

    def fitted(self, known: Mapping[str, Tool]) -> dict[str, Tool]:
        """Set the fingerprint of each tool to its recorded fingerprint at the current position.
        Returns the tools."""
        for name, item in known.items():
            object.__setattr__(item, "fingerprint", fingerprint(self._track, name))
        return dict(known)

    def _decided(self, known: Tool) -> Callable[..., Any]:
        """Return an approval function that uses the recorded decision for arguments that contain
        redacted text, and the tool's own function for all others."""
        judge: Any = known.approval
        wanted = inspect.signature(judge).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted.values())

        async def approval(**arguments: Any) -> Any:
            context = arguments.pop("context", None)
            if masked(arguments):
                return decision(self._track, known.name, arguments)
            given = arguments if takes_all else {n: v for n, v in arguments.items() if n in wanted}
            if "context" in wanted:
                given = {**given, "context": context}
            decided = judge(**given)
            return await decided if inspect.isawaitable(decided) else decided

        return approval

    async def _probed(self, context: Any) -> ProbeAnswer:
        """Return the recorded answer of a probe. After the replay has stopped following the
        recording there is none."""
        answer = probed(self._track, context.call)
        if answer is None and not self._track.free:
            await forever()
        return answer or DontKnow("The recording has no answer of the probe.")

    def _function(self, name: str, asynchronous: bool) -> Callable[..., Any]:
        async def recorded(arguments: GivenArguments, context: Any) -> ToolResult:
            return await self._result(name, arguments.raw, context)

        def in_thread(arguments: GivenArguments, context: Any) -> Awaitable[ToolResult]:
            """Return an awaitable. This function is not async, so the harness handles it as a tool
            that runs in a thread."""
            return recorded(arguments, context)

        return recorded if asynchronous else in_thread

    async def _result(self, name: str, arguments: dict[str, Any], context: Any) -> ToolResult:
        stage, track = self._stage, self._track
        if name in self._swapped and stage.swaps(track):
            return await self._other(self._swapped[name], arguments, context)
        found = (
            self._same_call(name, arguments)
            if track.free
            else recorded_outcome(track, context.call)
        )
        if isinstance(found, Park):
            raise found
        if found is None and track.free:
            call = f"{name}({arguments})"
            told = ("tool.finished", None, call, "no recorded result")
            stage.diverge(track, None, *told, stopped="no_answer")
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

    def _same_call(self, name: str, arguments: Any) -> ToolResult | None:
        """Return the recorded result of a call of the same tool with the same arguments. Used after
        the replay has stopped following the recording. Each result is used once."""
        track = self._track
        made = [call for message in track.every(ev.MessageCompleted) for call in message.calls]
        ids = [call.id for call in made if (call.name, call.arguments) == (name, arguments)]
        for place, payload in enumerate(track.payloads):
            if not isinstance(payload, ev.ToolFinished) or payload.call not in ids:
                continue
            if place >= track.at and place not in self._used:
                self._used.add(place)
                return result(payload) if payload.outcome in ("ok", "failed") else None
        return None


def final(known: str | None) -> Tool:
    """Return a tool with the fingerprint `known` for typed answers. It accepts values of any
    type."""
    form = AnyForm({"type": "object"})
    made = Tool(name=FINAL, description="", form=form, function=lambda given, context: given)
    object.__setattr__(made, "fingerprint", known)
    return made


def swapped_tools(tools: Mapping[str, Any]) -> dict[str, Tool]:
    """Return the replacements of recorded tools; plain functions are converted to tools."""
    found = {}
    for name, given in tools.items():
        if not isinstance(given, Tool) and not callable(given):
            raise InvalidValue(
                field=f"tools[{name!r}]",
                problem=f"is a {type(given).__name__}",
                remedy="pass a function with type annotations, or a tool",
            )
        found[name] = given if isinstance(given, Tool) else tool(given, name=name)
    return found

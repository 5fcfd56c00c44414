"""The agents of a replay: the program's own agent with recorded tools, or an agent built from a
log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...log import events as ev
from ..agents.agent import Agent, Context, Mode
from ..tools import Tool
from ..tools.stored_results import READ_RESULT
from .outcomes import answers, threads
from .recorded_tools import RecordedTools
from .track import Track


@dataclass(frozen=True, eq=False)
class ReplayAgent(Agent):
    """An agent with recorded tools. `known` are the tools that occur in the log but that the agent
    does not have."""

    props: Any = None
    known: Mapping[str, Tool] = field(default_factory=dict)

    def tools_in(self, mode: Mode) -> dict[str, Tool]:
        found = super().tools_in(mode)
        found.update({item.name: self.props.of(item) for item in self.delegation})
        return {**self.props.fitted(self.known), **found}

    def tool(self, name: str, mode: Mode) -> Tool | None:
        found = super().tool(name, mode)
        return self.props.of(found) if found is READ_RESULT else found


def quiet(agent: Agent, track: Track, props: RecordedTools) -> Agent:
    """Return the program's agent with recorded tools and without hooks. Tool sources are not
    connected; the tools that occur in the log are used instead."""
    listed = [*agent.tools, *(item for mode in agent.modes for item in mode.tools)]
    sources = any(not isinstance(item, Tool) for item in listed)
    modes = [
        replace(mode, tools=_quiet(mode.tools, props), on_enter=None, on_exit=None)
        for mode in agent.modes
    ]
    whole = {field.name: getattr(agent, field.name) for field in fields(Agent)}
    changes = {"hooks": (), "tools": _quiet(agent.tools, props), "modes": modes}
    known = from_log(track, props) if sources else {}
    return ReplayAgent(**{**whole, **changes}, props=props, known=known)


def _quiet(tools: Sequence[Any], props: RecordedTools) -> list[Any]:
    return [props.of(item) for item in tools if isinstance(item, Tool)]


def rebuilt(track: Track, props: RecordedTools, key: str) -> Agent:
    """Build an agent from a log: its prompts, and its modes and tools, of which only the names are
    known."""
    built, changed = track.every(ev.ContextBuilt), track.every(ev.ModeChanged)
    left = [change.left for change in changed if change.left]
    known = [*(context.mode for context in built), *(change.mode for change in changed)]
    modes = dict.fromkeys(filter(None, [*left[:1], *known]))
    added = {context.id for context in track.every(ev.ContextAdded)}

    def context_shown() -> ev.ContextBuilt:
        return track.shown() or (built[0] if built else ev.ContextBuilt(hash=""))

    def instructions(_: Any) -> str:
        shown = _parts(context_shown(), "system")
        text = context_shown().system
        for name, content in reversed(shown):
            text = text.removesuffix(f"## {name}\n{content}").rstrip("\n")
        kept = [f"## {name}\n{content}" for name, content in shown if name not in added]
        return "\n\n".join(filter(None, [text, *kept]))

    def notes(_: Any) -> list[dict[str, str]]:
        shown = _parts(context_shown(), "message")
        return [{"role": "message", "content": text} for name, text in shown if name not in added]

    return ReplayAgent(
        "replayed",
        instructions,
        modes=[Mode(name) for name in modes] or (),
        contexts=[Context("notes", notes)] if built else (),
        output_type=str if answers(track) else None,
        key=key,
        props=props,
        known=from_log(track, props),
    )


def _parts(built: ev.ContextBuilt, role: str) -> list[tuple[str, str]]:
    parts = [part for part in built.parts if isinstance(part, dict) and part.get("role") == role]
    return [(str(part.get("name")), str(part.get("content"))) for part in parts]


def from_log(track: Track, props: RecordedTools) -> dict[str, Tool]:
    """Return recorded tools for all calls that have a fingerprint. The model made the calls without
    a fingerprint to tools that do not exist."""
    found: dict[str, Tool] = {}
    thread = threads(track)
    for message in track.every(ev.MessageCompleted):
        for call in message.calls:
            if call.fingerprint is not None and call.name not in found:
                found[call.name] = props.named(call.name, thread=thread)
    return found

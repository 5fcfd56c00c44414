"""The declaration of an agent, with its modes, contexts and hooks, and its validation.

An agent is portable: it does not depend on a store, a key or a machine. The harness adds models, a
store, a sandbox and resources.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import cached_property
from typing import Any, Literal, TypeAlias, overload

import msgspec

from ...errors import HoldfastError, InvalidValue
from ...log.codec import LIMITS
from ...log.events import RESERVED_NAMESPACES
from ...log.state import FINAL
from ...models.port import split_ref
from ..tools import Tool
from ..tools.stored_results import READ, READ_RESULT
from .userstate import begun

Instructions: TypeAlias = str | Callable[..., str | Awaitable[str]]
DEFAULT = "default"
DELEGATION = "subagent"  # the name of the tool that delegates tasks to sub-agents
ROLES = ("system", "message", "hidden")  # where the text of a context may appear in the prompt
OWN_KIND = "use your own namespace, as in 'order.shipped'"


@dataclass(frozen=True, eq=False)
class Context:
    """Information for the model in addition to the conversation, rendered before each model call.

    `render` gets a `Reading` and the options; it returns text, a dict or list of values, or
    None for nothing. `role` says where the result goes: into the system prompt, before the newest
    input, or nowhere.

    See [run agents](../harness.md).
    """

    name: str
    render: Callable[..., Any]
    label: str | None = None
    priority: int = 0
    role: Literal["system", "message", "hidden"] = "system"
    required: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_options(self, *, required: bool | None = None, **options: Any) -> Context:
        """Return a copy with changed options. `required` sets whether the run fails if this context
        fails."""
        need = self.required if required is None else required
        return changed(self, options={**self.options, **options}, required=need)


@overload
def context(function: Callable[..., Any], /) -> Context: ...


@overload
def context(
    *,
    name: str | None = None,
    label: str | None = None,
    priority: int = 0,
    role: Literal["system", "message", "hidden"] = "system",
    required: bool = True,
) -> Callable[[Callable[..., Any]], Context]: ...


def context(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
) -> Context | Callable[[Callable[..., Any]], Context]:
    """Create a `Context` from a function, sync or async. Can be used as a decorator.

    ```python
    @context(priority=10)
    def plan(session) -> str:
        return f"The customer's plan is {session.state['plan']}."
    ```
    """

    def make(function: Callable[..., Any]) -> Context:
        return Context(name or str(getattr(function, "__name__", "")), function, **options)

    return make if function is None else make(function)


@dataclass(frozen=True, eq=False)
class Hook:
    """A function that the driver calls with each event of one kind, in log order. Its arguments are
    a context object (`Acting`) and the event. Before each model or tool call, the hooks for all
    earlier events have run. If a hook fails, the failure is logged and the run continues. Events
    that were written while there was no driver are passed to the next driver; after a restart, a
    hook may get an event again.

    See [run agents](../harness.md).
    """

    kind: str
    function: Callable[..., Any]


def hook(kind: str) -> Callable[[Callable[..., Any]], Hook]:
    """Decorator that creates a `Hook` from a function, sync or async. `kind` is the kind of event
    for which the hook is called.

    See [run agents](../harness.md).
    """
    return lambda function: Hook(kind, function)


@dataclass(frozen=True, eq=False)
class Mode:
    """A mode of an agent, with its own instructions, tools, contexts, model and limits.

    `approval` overrides the approval setting of the tools: `auto` approves every call, `ask`
    requires an approval for every call, `deny` denies every call, and `tool` keeps each tool's own
    setting. `contexts` is `all` (the agent's contexts by priority, except `exclude`) or a list,
    which is used in its order.

    `transitions` lists the modes that may follow this mode; None means any. `after_plan` is the
    mode that follows when the user approves a plan (`submit_plan`).

    When the mode changes, `on_exit` of the old mode is called with the object that changed it (a
    session, or the context of a tool or hook) and the name of the new mode. Then `on_enter` of the
    new mode is called with the same object and the text that was passed with the change, or None.
    `on_enter` is not called for the initial mode of a session: use `@hook("session.created")` for
    that.

    ```python
    Agent("shop", instructions="Help.", modes=[Mode("help"), Mode("audit", approval="deny")])
    ```
    """

    name: str
    instructions: Instructions | None = None
    tools: Sequence[Any] = ()
    contexts: Literal["all"] | Sequence[Context] = "all"
    exclude: Sequence[str] = ()
    model: str | None = None
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"
    context_failure: Literal["fail", "skip"] = "fail"
    steps: int | None = None
    label: str | None = None
    transitions: Sequence[str] | None = None
    after_plan: str | None = None
    on_enter: Callable[..., Any] | None = None
    on_exit: Callable[..., Any] | None = None


@dataclass(frozen=True, eq=False)
class Agent:
    """The declaration of an agent: instructions, tools, modes, contexts, hooks and initial state.
    `tools` may include tool sources, such as an `MCPServer`.

    `events` maps the agent's custom event kinds to the types of their payloads, which are validated
    when an event is emitted. `state_type` is the type of the user state, or a JSON Schema for it.

    ```python
    agent = Agent("shop", instructions="Help with orders.", tools=[refund], model="openai/gpt-5.1")
    ```
    """

    label: str
    instructions: Instructions | None = None
    tools: Sequence[Any] = ()
    modes: Sequence[Mode] = ()
    initial_mode: str | None = None
    contexts: Sequence[Context] = ()
    hooks: Sequence[Hook] = ()
    events: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = field(default_factory=dict)
    model: str | None = None
    output_type: Any = None
    key: str = ""
    description: str | None = None
    state_type: Any = None
    subagents: Sequence[Any] = ()  # each a `SubAgent`

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", slug(self.label))
        if not self.modes:
            object.__setattr__(self, "modes", (Mode(DEFAULT),))

    @property
    def first_mode(self) -> str:
        return self.initial_mode or self.modes[0].name

    def mode(self, name: str | None) -> Mode:
        """Return the mode with this name, or the initial mode if there is no such mode."""
        by_name = {mode.name: mode for mode in self.modes}
        return by_name.get(name or "", by_name.get(self.first_mode, self.modes[0]))

    def known_mode(self, name: str) -> Mode:
        """Return the mode with this name. Raises `InvalidValue` if it does not exist."""
        if (found := self.mode(name)).name != name:
            names = ", ".join(mode.name for mode in self.modes)
            raise InvalidValue(
                field="mode", problem=f"{name!r} does not exist", remedy=f"use one of {names}"
            )
        return found

    def follows(self, before: Mode, name: str) -> bool:
        """Return whether a switch from mode `before` to mode `name` changes the mode. Raises
        `InvalidValue` if `before` does not allow the transition."""
        self.known_mode(name)
        if name == before.name:
            return False
        if before.transitions is not None and name not in before.transitions:
            allowed = ", ".join(before.transitions) or "none"
            raise InvalidValue(
                field="mode",
                problem=f"cannot change from {before.name!r} to {name!r}",
                remedy=f"use one of the allowed transitions ({allowed})",
            )
        return True

    @cached_property
    def delegation(self) -> tuple[Tool, ...]:
        """The tool with which the agent delegates tasks; an empty tuple if it has no sub-agents."""
        return tuple(item.delegation(self.subagents) for item in self.subagents[:1])

    def tools_in(self, mode: Mode) -> dict[str, Tool]:
        """Return the tools of a mode by name: the tools of the agent and of the mode, and the
        delegation tool."""
        # A tool source is replaced by its tools when the agent is served.
        listed = (*self.tools, *mode.tools, *self.delegation)
        return {tool.name: tool for tool in listed if isinstance(tool, Tool)}

    def tool(self, name: str, mode: Mode) -> Tool | None:
        """Return the tool with this name in `mode`, or else in any mode, so that a call made before
        a mode change still finds its tool."""
        found = self.tools_in(mode).get(name)
        others = (self.tools_in(other).get(name) for other in self.modes)
        return found or next(filter(None, others), READ_RESULT if name == READ else None)

    def contexts_in(self, mode: Mode) -> list[Context]:
        """Return the contexts of a mode, in the order in which they are shown to the model."""
        if mode.contexts != "all":
            return [item for item in mode.contexts if item.name not in mode.exclude]
        known = {item.name: item for item in self.contexts}
        for other in self.modes:
            if other.contexts != "all":
                known.update({item.name: item for item in other.contexts})
        shown = [item for item in known.values() if item.name not in mode.exclude]
        return sorted(shown, key=lambda item: -item.priority)

    def initial_state(self) -> dict[str, Any]:
        """Return a new copy of a session's initial state, including the defaults of
        `state_type`."""
        start = self.state() if callable(self.state) else self.state
        return begun(start, self.state_type)

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the agent's declaration as plain values, for listings."""
        return {
            "key": self.key,
            "label": self.label,
            "description": self.description,
            "initial_mode": self.first_mode,
            "model": self.model,
            "modes": [_mode_manifest(self, mode) for mode in self.modes],
            "tools": [tool.manifest for tool in _all_tools(self)],
            "contexts": [
                {"name": c.name, "label": c.label, "priority": c.priority, "role": c.role}
                for c in _all_contexts(self)
            ],
            "hooks": [{"kind": item.kind, "name": _name(item.function)} for item in self.hooks],
            "events": sorted(self.events),
            "subagents": [
                {"name": item.name, "description": item.description, "forked": item.forked}
                for item in self.subagents
            ],
            "state": self.initial_state(),
        }

    @cached_property
    def version(self) -> str:
        """A hash of what the agent declares: instructions, tools, modes, contexts, models, hooks,
        the answer type and sub-agents. Of functions, only the names count. The same declaration has
        the same version in every process."""
        known = _versioned(self)
        try:
            text = msgspec.json.encode(known, order="sorted")
        except UnicodeEncodeError:  # instructions with lone surrogates
            text = json.dumps(known, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()[:16]


def slug(label: str) -> str:
    """Convert a label to a key: `My Agent`, `myAgent` and `my_agent` become `my-agent`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", label) if isinstance(label, str) else ""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "agent"


def kind_problem(kind: str) -> str | None:
    """Return the reason why an application may not use an event kind for its custom events, or None
    if it may."""
    namespace, dot, name = kind.partition(".")
    if not (namespace and dot and name):
        return f"{kind!r} must be 'namespace.name'"
    if namespace in RESERVED_NAMESPACES:
        return f"{kind!r} is in the reserved namespace {namespace!r}"
    return None


def faults(agent: Any) -> list[str]:
    """Return every problem with an agent; empty if it can be served."""
    found = [*_naming(agent), *_mode_faults(agent), *_tool_faults(agent)]
    found.extend(_delegate_faults(agent))
    for item in _all_contexts(agent):
        if not isinstance(item, Context) or not callable(item.render):
            found.append(f"context {item!r} is not a Context: create it with @context")
        elif item.role not in ROLES:
            known = ", ".join(ROLES)
            found.append(f"context {item.name!r}: role {item.role!r} is not one of {known}")
    for each in agent.hooks:
        if not isinstance(each, Hook):
            found.append(f"hook {each!r} is not a Hook: create it with @hook(kind)")
    for kind in agent.events:
        if wrong := kind_problem(kind):
            found.append(f"event kind {wrong}: {OWN_KIND}")
    try:
        size = len(msgspec.json.encode(agent.initial_state()))
        if size > LIMITS.map_bytes:
            found.append(f"the initial state has {size} bytes: use at most {LIMITS.map_bytes}")
    except Exception as error:  # a function of the program may raise anything
        found.append(f"the initial state cannot be created: {error}")
    return found


def _naming(agent: Agent) -> Iterable[str]:
    if not isinstance(agent.label, str) or not agent.label.strip():
        yield f"the label must be a non-empty string, got {agent.label!r}"
    if agent.model is not None:
        yield from _ref_faults(agent.model, "the agent's model")


def _mode_faults(agent: Agent) -> Iterable[str]:
    names = [mode.name for mode in agent.modes]
    yield from (f"mode {name!r} is declared twice" for name in sorted(_twice(names)))
    if agent.initial_mode is not None and agent.initial_mode not in names:
        yield f"the initial mode {agent.initial_mode!r} is not one of {', '.join(names)}"
    for mode in agent.modes:
        if mode.instructions is None and agent.instructions is None:
            yield f"mode {mode.name!r} has no instructions, and the agent has none either"
        if mode.after_plan is not None and (
            mode.after_plan not in names or mode.after_plan == mode.name
        ):
            wrong = f"after_plan {mode.after_plan!r} is not the name of another mode"
            yield f"mode {mode.name!r}: {wrong}"
        for name in mode.transitions or ():
            if name not in names or name == mode.name:
                yield f"mode {mode.name!r}: transition {name!r} is not the name of another mode"
        if mode.transitions is not None and mode.after_plan not in (None, *mode.transitions):
            yield f"mode {mode.name!r}: after_plan {mode.after_plan!r} is not in its transitions"
        if mode.approval not in ("auto", "ask", "deny", "tool"):
            yield f"mode {mode.name!r}: approval {mode.approval!r} is not auto, ask, deny or tool"
        if mode.model is not None:
            yield from _ref_faults(mode.model, f"the model of mode {mode.name!r}")


def _tool_faults(agent: Any) -> Iterable[str]:
    for mode in agent.modes:
        mine = [*agent.tools, *mode.tools]
        for item in mine:
            if not isinstance(item, Tool) and not callable(getattr(item, "tools", None)):
                yield f"mode {mode.name!r}: {item!r} is not a tool: create it with @tool"
        names = [item.name for item in mine if isinstance(item, Tool)]
        yield from (f"mode {mode.name!r} has two tools {name!r}" for name in sorted(_twice(names)))
        if FINAL in names:
            yield f"mode {mode.name!r}: the tool name {FINAL!r} is reserved"


def _delegate_faults(agent: Agent) -> Iterable[str]:
    names = []
    for item in agent.subagents:
        if not callable(getattr(item, "delegation", None)):
            yield f"{item!r} is not a sub-agent: create it with SubAgent"
            continue
        names.append(str(item.name))
        yield from item.faults(agent)
    yield from (f"sub-agent {name!r} is declared twice" for name in sorted(_twice(names)))
    tools = [item for mode in agent.modes for item in (*agent.tools, *mode.tools)]
    if names and any(isinstance(item, Tool) and item.name == DELEGATION for item in tools):
        yield f"the tool name {DELEGATION!r} is reserved for calling sub-agents"


def _ref_faults(ref: Any, where: str) -> Iterable[str]:
    name = getattr(ref, "ref", None)
    if isinstance(name, str):  # a model, where its name belongs
        yield f"{where} is an object: write {name!r}, and pass the object to Harness(providers=[…])"
        return
    try:
        split_ref(ref, where)
    except HoldfastError as error:
        yield str(error)


def _twice(names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]


def _all_tools(agent: Agent) -> list[Tool]:
    tools = {tool.name: tool for mode in agent.modes for tool in agent.tools_in(mode).values()}
    return list(tools.values())


def _all_contexts(agent: Any) -> list[Any]:
    listed = [c for mode in agent.modes if mode.contexts != "all" for c in mode.contexts]
    return list({id(item): item for item in (*agent.contexts, *listed)}.values())


def _mode_manifest(agent: Agent, mode: Mode) -> dict[str, Any]:
    return {
        "name": mode.name,
        "label": mode.label,
        "model": mode.model,
        "approval": mode.approval,
        "tools": sorted(agent.tools_in(mode)),
        "contexts": [item.name for item in agent.contexts_in(mode)],
        **({} if mode.transitions is None else {"transitions": list(mode.transitions)}),
    }


def _versioned(agent: Agent) -> dict[str, Any]:
    """Return what the version of an agent depends on. The fields are listed one by one, so that a
    field that a later release of Holdfast adds does not change every version."""
    answer = agent.output_type
    return {
        "instructions": _said(agent.instructions),
        "initial_mode": agent.first_mode,
        "model": agent.model,
        "modes": [_versioned_mode(agent, mode) for mode in agent.modes],
        "contexts": [
            [item.name, item.priority, item.role, item.required] for item in _all_contexts(agent)
        ],
        "hooks": sorted(item.kind for item in agent.hooks),
        "output_type": answer if isinstance(answer, dict) else answer and _name(answer),
        "subagents": [
            [item.name, item.description, item.forked, item.steps, item.within(agent).version]
            for item in agent.subagents
        ],
    }


def _versioned_mode(agent: Agent, mode: Mode) -> dict[str, Any]:
    tools = (item for item in (*agent.tools, *mode.tools) if isinstance(item, Tool))
    return {
        "name": mode.name,
        "instructions": _said(mode.instructions),
        "model": mode.model,
        "approval": mode.approval,
        "steps": mode.steps,
        "transitions": mode.transitions and [*mode.transitions],
        "after_plan": mode.after_plan,
        "contexts": [item.name for item in agent.contexts_in(mode)],
        "tools": sorted(
            [
                [item.fingerprint, item.name, item.description, item.manifest["approval"]]
                for item in tools
            ]
        ),
    }


def _said(instructions: Instructions | None) -> str | None:
    """Return instructions, or the name of the function that gives them."""
    return _name(instructions) if callable(instructions) else instructions


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


async def called(function: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call a function, if it is not None, and await its result if needed."""
    if function is not None:
        await settled(function(*arguments))


async def settled(value: Any) -> Any:
    """Return the value, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value

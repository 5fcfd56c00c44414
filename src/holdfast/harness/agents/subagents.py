"""Sub-agents: agents that an agent may delegate tasks to.

A sub-agent works in its own thread. A fresh sub-agent has its own instructions and tools, and the
tools of its parent that it may use. A forked sub-agent is a copy of its parent at that moment,
including the conversation so far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, runtime_checkable

from ...errors import ToolError
from ...log.state import Sub
from ..tools import CallAnswer, Tool, ToolContext, ToolResult, tool
from .agent import DELEGATION, Agent, Instructions, Mode, faults

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
NO_TASKS = ("task_write", "task_update", "task_complete", "task_check")
DETACHED = (
    "    detached: Whether to continue without waiting for the result, which arrives later as a "
    "message. Only for: {}.\n"
)
REFUSED = "This cannot be done by a forked sub-agent. Do the task yourself, with the other tools."


@dataclass(frozen=True, eq=False)
class SubAgent:
    """An agent that works for another agent, in its own thread.

    It runs `agent`, or a new agent with `instructions`. `tools` are names of the parent's tools
    that it may use, and tools of its own, which take precedence; it sees no other tools. `model` is
    its model, `steps` the maximum number of model calls for a task. With `forked`, it is a copy of
    its parent instead, with all the parent's instructions and tools. With `detached`, the parent's
    model may choose not to wait for it; its result is then a message to the parent.

    See [sub-agents](../subagents.md).
    """

    name: str
    description: str
    agent: Agent | None = None
    instructions: Instructions | None = None
    tools: Sequence[Any] = ()
    model: str | None = None
    forked: bool = False
    steps: int | None = None
    detached: bool = False

    def faults(self, parent: Agent) -> Iterator[str]:
        """Yield every problem with the declaration of this sub-agent."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            yield f"sub-agent {self.name!r}: the name must be 1 to 40 of a-z, 0-9, _ and -"
            return
        where = f"sub-agent {self.name!r}"
        if not isinstance(self.description, str) or not self.description.strip():
            yield f"{where} has no description: describe its purpose"
        if (self.agent is None) == (self.instructions is None) and not self.forked:
            yield f"{where}: pass either an agent or instructions"
        if self.steps is not None and not self.steps > 0:
            yield f"{where}: steps must be more than 0 or None, got {self.steps}"
        yield from (f"{where}: {fault}" for fault in self._tool_faults(parent))

    def _tool_faults(self, parent: Agent) -> Iterator[str]:
        known = _tools(parent)
        open = any(not isinstance(item, Tool) for item in _listed(parent))  # has a source of tools
        for item in self.tools:
            if item == DELEGATION:
                yield f"{item!r} cannot be inherited: pass sub-agents to the sub-agent itself"
            elif isinstance(item, str) and item not in known and not open:
                yield f"its parent has no tool {item!r}"
            elif not isinstance(item, (str, Tool)):
                yield f"{item!r} is neither a tool nor the name of a tool"
        if not self.forked:
            yield from faults(self.within(parent))

    def within(
        self,
        parent: Agent,
        *,
        forked: bool = False,
        approval: Literal["auto", "ask", "deny", "tool"] = "tool",
    ) -> Agent:
        """Return the agent that runs when `parent` delegates a task to this sub-agent; with
        `forked`, it is a copy of `parent`. `approval` is used for modes without an approval setting
        of their own."""
        key = f"{parent.key}/{self.name}"
        if forked:
            return replace(
                parent,
                key=key,
                model=self.model or parent.model,
                output_type=None,
                tools=_without_tasks(parent.tools),
                modes=[replace(mode, tools=_without_tasks(mode.tools)) for mode in parent.modes],
                subagents=[_refusing(item) for item in parent.subagents],
            )
        base = self.agent or Agent(self.name, self.instructions)
        own = [*base.tools, *(item for item in self.tools if isinstance(item, Tool))]
        taken = {item.name for item in own if isinstance(item, Tool)}
        taken |= {item.name for mode in base.modes for item in mode.tools if isinstance(item, Tool)}
        known, names = _tools(parent), [item for item in self.tools if isinstance(item, str)]
        lent = [known[name] for name in names if name in known and name not in taken]
        return replace(
            base,
            key=key,
            description=self.description,
            state=parent.state,
            state_type=parent.state_type,
            model=self.model or base.model,
            tools=[*own, *lent],
            modes=[_inheriting(mode, approval) for mode in base.modes],
        )

    def delegation(self, all: Sequence[SubAgent]) -> Tool:
        """Return the tool with which an agent delegates tasks to the sub-agents `all`."""
        return _delegation(all)


class _Refusing(SubAgent):
    """A sub-agent as declared for a forked sub-agent, which may not delegate: the delegation tool
    has its usual description, but rejects every call."""

    def delegation(self, all: Sequence[SubAgent]) -> Tool:
        return _delegation(all).replace(function=_refuse)


def _refusing(item: SubAgent) -> SubAgent:
    return _Refusing(**{one.name: getattr(item, one.name) for one in fields(SubAgent)})


async def _refuse(*_: Any, **__: Any) -> ToolResult:
    return ToolResult(content=REFUSED, failed=True, code="not_in_a_fork")


def _without_tasks(tools: Sequence[Any]) -> list[Any]:
    """Return a copy of the tools in which the tools for the task list reject every call."""
    return [
        item.replace(function=_refuse) if isinstance(item, Tool) and item.name in NO_TASKS else item
        for item in tools
    ]


def _inheriting(mode: Mode, approval: Literal["auto", "ask", "deny", "tool"]) -> Mode:
    return replace(mode, approval=approval) if mode.approval == "tool" else mode


def _listed(agent: Agent) -> list[Any]:
    return [*agent.tools, *(item for mode in agent.modes for item in mode.tools)]


def _tools(agent: Agent) -> dict[str, Tool]:
    return {item.name: item for item in _listed(agent) if isinstance(item, Tool)}


def family(agent: Agent) -> dict[str, Agent]:
    """Return the agent and all its sub-agents, at every level, by key."""
    found = {agent.key: agent}
    for item in agent.subagents:
        found.update(family(item.within(agent)))
    return found


def models_of(agent: Agent) -> frozenset[str]:
    """Return the models that the agent and its sub-agents use, in any mode."""
    agents = family(agent).values()
    modes = (mode.model for one in agents for mode in one.modes)
    return frozenset(filter(None, (*(one.model for one in agents), *modes)))


def steps_of(agent: Agent) -> list[int]:
    """Return the step limits of the agent's modes, its sub-agents and their modes."""
    found = [mode.steps for mode in agent.modes]
    for item in agent.subagents:
        found += [item.steps, *steps_of(item.within(agent))]
    return [steps for steps in found if steps is not None]


def tools_named(agent: Agent) -> Callable[[str], list[Tool]]:
    """Return a function that finds all tools with a given name, in all modes of the agent and its
    sub-agents."""

    def named(name: str) -> list[Tool]:
        places = [(one, mode) for one in family(agent).values() for mode in one.modes]
        found = (one.tools_in(mode).get(name) for one, mode in places)
        return [tool for tool in found if tool is not None]

    return named


def agent_of_thread(agent: Agent, sub: Sub) -> Agent | None:
    """Return the agent that works in a sub-agent's thread, or None if the agent no longer declares
    it."""
    *before, last = sub.agent.removeprefix(f"{agent.key}/").split("/")
    parent: Agent | None = agent
    for name in before:
        item = _named(parent, name)
        parent = item.within(parent) if item is not None and parent is not None else None
    item = _named(parent, last)
    if item is None or parent is None:
        return None
    return item.within(parent, forked=sub.forked, approval=sub.approval)


def _named(agent: Agent | None, name: str) -> SubAgent | None:
    known: Iterable[SubAgent] = agent.subagents if agent is not None else ()
    return next((item for item in known if item.name == name), None)


@runtime_checkable
class Delegating(Protocol):
    """A tool context with the method that the delegation tool calls."""

    async def delegate(
        self,
        name: str,
        task: str,
        *,
        model: str | None,
        forked: bool | None,
        detached: bool = False,
    ) -> ToolResult: ...


def _delegation(subagents: Sequence[SubAgent]) -> Tool:
    async def subagent(
        agent: str,
        task: str,
        context: ToolContext,
        model: str | None = None,
        forked: bool | None = None,
        detached: bool = False,
    ) -> ToolResult:
        if not isinstance(context, Delegating):
            raise ToolError(problem="sub-agents can be called only in a session")
        how: dict[str, Any] = {"model": model, "forked": forked, "detached": detached}
        return await context.delegate(agent, task, **how)

    async def attached(
        agent: str,
        task: str,
        context: ToolContext,
        model: str | None = None,
        forked: bool | None = None,
    ) -> ToolResult:
        return await subagent(agent, task, context, model, forked)

    may_detach = [item.name for item in subagents if item.detached]
    function: Callable[..., Any] = subagent if may_detach else attached
    names = tuple(item.name for item in subagents)
    function.__annotations__ = {
        "agent": Literal[names],
        "task": str,
        "context": ToolContext,
        "model": str | None,
        "forked": bool | None,
        **({"detached": bool} if may_detach else {}),
        "return": ToolResult,
    }
    listed = "\n".join(f"- {item.name}: {item.description}" for item in subagents)
    function.__doc__ = f"""Delegate a task to another agent and get its result.

It sees only what you tell it, unless it is forked. Several may work at once. Agents:
{listed}

Args:
    agent: The name of the agent.
    task: The task, with all the information that the agent needs.
    model: The model to use instead of the agent's default.
    forked: Whether the agent gets a copy of this conversation.
"""
    if may_detach:
        function.__doc__ = f"{function.__doc__}{DETACHED.format(', '.join(may_detach))}"
    return tool(function, name=DELEGATION, repeat_safe=True, category="agents", risk="safe")


def delegation_result(answer: CallAnswer) -> ToolResult:
    """Convert a sub-agent's answer to the result that the parent's model reads. If the task did
    not succeed, the result says how it ended."""
    said = answer.value if isinstance(answer.value, dict) else {"text": answer.value}
    if answer.outcome != "answered":
        words = f"The sub-agent was stopped. {answer.reason or ''}".strip()
        return ToolResult(content=words, metadata={"status": "aborted"})
    status, text = str(said.get("status", "done")), str(said.get("text") or "")
    metadata = {name: said[name] for name in ("agent", "thread", "usage", "code") if name in said}
    metadata["status"] = status
    if status == "done":
        return ToolResult(content=text, data=said.get("output"), metadata=metadata)
    so_far = f"\nIt had said so far: {text}" if text else ""
    if status == "aborted":
        return ToolResult(content=f"The sub-agent was stopped.{so_far}", metadata=metadata)
    why = said.get("error") or said.get("code") or status
    return ToolResult(
        content=f"The sub-agent did not finish ({status}): {why}{so_far}",
        metadata=metadata,
        failed=True,
        code=str(said.get("code") or f"subagent_{status}"),
    )

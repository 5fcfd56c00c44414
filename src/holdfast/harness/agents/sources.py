"""Tool sources, such as MCP servers. An agent lists them among its tools; when the agent is served,
each is connected and replaced by the tools that it provides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from ...errors import InvalidAgent
from ..tools.definition import Tool
from .agent import Agent, Mode, faults


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools, such as an MCP server. `tools` can be called after `connect`."""

    async def connect(self) -> Any: ...

    async def tools(self) -> list[Tool]: ...

    async def close(self) -> None: ...


async def gather(agent: Agent) -> tuple[Agent, list[ToolSource]]:
    """Connect all tool sources of an agent and its sub-agents. Returns the agent with each source
    replaced by its tools, and the connected sources. If a source fails, the sources that were
    connected are closed again."""
    found: dict[int, list[Tool]] = {}
    opened: list[ToolSource] = []
    try:
        for item in (*agent.tools, *(item for mode in agent.modes for item in mode.tools)):
            if not isinstance(item, Tool) and id(item) not in found:
                opened.append(item)
                await item.connect()
                found[id(item)] = await item.tools()
        subagents = []
        for item in agent.subagents:
            if item.agent is not None:
                whole, more = await gather(item.agent)
                opened.extend(more)
                item = replace(item, agent=whole)  # noqa: PLW2901
            subagents.append(item)
        if not opened:
            return agent, []
        whole = replace(
            agent,
            tools=_expanded(agent.tools, found),
            modes=[_mode(m, found) for m in agent.modes],
            subagents=subagents,
        )
        if wrong := faults(whole):
            raise InvalidAgent(agent=agent.key, faults=wrong)
    except BaseException:
        await release(opened)
        raise
    return whole, opened


async def release(sources: list[ToolSource]) -> None:
    """Close tool sources, in reverse order."""
    for source in reversed(sources):
        await source.close()


def _mode(mode: Mode, found: dict[int, list[Tool]]) -> Mode:
    return replace(mode, tools=_expanded(mode.tools, found))


def _expanded(items: Any, found: dict[int, list[Tool]]) -> list[Tool]:
    listed = [[item] if isinstance(item, Tool) else found[id(item)] for item in items]
    return [tool for tools in listed for tool in tools]

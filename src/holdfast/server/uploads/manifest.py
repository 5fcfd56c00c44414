"""An agent as a file describes it: `agent.toml` or `agent.json`, data and nothing else.

What it may use stands on the server: its tools are named, never carried. So an agent that a
client brings can say what to do, and nothing of it is executed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ...errors.root import instead
from ...harness.agents.agent import Agent, Mode
from ...harness.tools import Tool

NAMES = ("agent.toml", "agent.json")  # where a description is looked for, in this order
BYTES = 256 << 10  # of a description, at most


class DescribedMode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mode of such an agent."""

    name: str
    instructions: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"
    steps: int | None = None
    label: str | None = None
    transitions: tuple[str, ...] | None = None
    after_plan: str | None = None


class Described(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent in a file. `tools` are names of tools that the server offers."""

    name: str
    version: str = "0"
    description: str | None = None
    instructions: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    modes: tuple[DescribedMode, ...] = ()
    initial_mode: str | None = None
    state: dict[str, Any] = {}

    def agent(self, tools: Mapping[str, Tool], *, key: str) -> Agent:
        """The agent, with the server's tools of these names."""
        return Agent(
            self.name,
            key=key,
            description=self.description,
            instructions=self.instructions,
            model=self.model,
            tools=_found(self.tools, tools, "tools"),
            modes=[
                Mode(
                    mode.name,
                    instructions=mode.instructions,
                    tools=_found(mode.tools, tools, f"modes[{n}].tools"),
                    model=mode.model,
                    approval=mode.approval,
                    steps=mode.steps,
                    label=mode.label,
                    transitions=mode.transitions,
                    after_plan=mode.after_plan,
                )
                for n, mode in enumerate(self.modes)
            ],
            initial_mode=self.initial_mode,
            state=self.state,
        )


def read(text: bytes, name: str) -> Described:
    """The description in a file of this name."""
    toml = name.endswith(".toml")
    if len(text) > BYTES:
        raise InvalidValue(
            field=name, problem=f"has {len(text)} bytes", remedy=f"use at most {BYTES}", limit=BYTES
        )
    try:
        value = tomllib.loads(text.decode()) if toml else msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if toml else "JSON"
        problem, remedy = f"is not {kind} ({error})", "see docs/server.md for its fields"
        raise InvalidValue(field=name, problem=problem, remedy=remedy) from error
    return described(value, name)


def described(value: Any, name: str = "manifest") -> Described:
    """The description that a value is; every field that there is not is refused by name."""
    try:
        return msgspec.convert(value, Described)
    except msgspec.ValidationError as error:
        problem, remedy = f"is not a description of an agent: {error}", "see docs/server.md"
        raise InvalidValue(field=name, problem=problem, remedy=remedy) from error


def check_asks(described: Described) -> None:
    """Refuse an agent that would not ask where the server's tools do: who brings it is not who
    decides. `harden` may still say so."""
    for n, mode in enumerate(described.modes):
        if mode.approval == "auto":
            raise InvalidValue(
                field=f"modes[{n}].approval",
                problem="is 'auto', and would ask nobody about the tools of this server",
                remedy="use ask, deny or tool",
            )


def _found(names: Sequence[str], tools: Mapping[str, Tool], field: str) -> list[Tool]:
    for name in names:
        if name not in tools:
            raise InvalidValue(
                field=field,
                problem=f"name {name!r}, which this server does not offer",
                remedy=instead(name, sorted(tools)),
            )
    return [tools[name] for name in names]

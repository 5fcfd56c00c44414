"""The manifest of an uploaded agent: `agent.toml` or `agent.json`. It contains only data, such as
the names of tools of the server, and no code. So nothing that a client uploads is executed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ...errors.root import instead
from ...harness import Agent, Mode, Tool

NAMES = ("agent.toml", "agent.json")  # the files of a manifest, in the order of precedence
BYTES = 256 << 10  # of a manifest, at most


class ManifestMode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mode of an uploaded agent."""

    name: str
    instructions: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"
    steps: int | None = None
    label: str | None = None
    transitions: tuple[str, ...] | None = None
    after_plan: str | None = None


class AgentManifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of an uploaded agent. `tools` are names of tools that the server offers."""

    name: str
    version: str = "0"
    description: str | None = None
    instructions: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    modes: tuple[ManifestMode, ...] = ()
    initial_mode: str | None = None
    state: dict[str, Any] = {}

    def agent(self, tools: Mapping[str, Tool], *, key: str) -> Agent:
        """Create the agent from its manifest, with the server's tools."""
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


def read(text: bytes, name: str) -> AgentManifest:
    """Parse a manifest file with this name."""
    toml = name.endswith(".toml")
    if len(text) > BYTES:
        raise InvalidValue(
            field=name, problem=f"has {len(text)} bytes", remedy=f"use at most {BYTES}", limit=BYTES
        )
    try:
        value = tomllib.loads(text.decode()) if toml else msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if toml else "JSON"
        raise InvalidValue(
            field=name,
            problem=f"is not valid {kind} ({error})",
            remedy=f"correct the {kind} syntax; docs/server.md describes the fields",
        ) from error
    return described(value, name)


def described(value: Any, name: str = "manifest") -> AgentManifest:
    """Convert a value to a manifest. Raises `InvalidValue` for unknown fields and wrong types."""
    try:
        return msgspec.convert(value, AgentManifest)
    except msgspec.ValidationError as error:
        raise InvalidValue(
            field=name,
            problem=f"is not a valid manifest ({error})",
            remedy="see docs/server.md",
        ) from error


def check_asks(described: AgentManifest) -> None:
    """Reject a mode that would run tools without approval. Clients who upload agents may not choose
    this; the operator's `harden` may."""
    for n, mode in enumerate(described.modes):
        if mode.approval == "auto":
            raise InvalidValue(
                field=f"modes[{n}].approval",
                problem="is 'auto', which would use the server's tools without approval",
                remedy="use ask, deny or tool",
            )


def _found(names: Sequence[str], tools: Mapping[str, Tool], field: str) -> list[Tool]:
    for name in names:
        if name not in tools:
            raise InvalidValue(
                field=field,
                problem=f"this server does not offer the tool {name!r}",
                remedy=instead(name, sorted(tools)),
            )
    return [tools[name] for name in names]

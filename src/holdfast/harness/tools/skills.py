"""Skills: groups of instructions and tools that the model activates when it needs them.

The active skills are stored in the user state, so they survive a restart. The tools of a skill are
always listed. Until the skill is active, calling one of them only returns how to activate the
skill.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import InvalidValue
from .definition import ArgumentForm, DictForm, Tool, ToolContext, tool
from .values import Issue, ToolResult

STATE = "skills"
CONTROLS = ("activate_skill", "deactivate_skill", "list_skills")


@dataclass(frozen=True)
class Skill:
    """A skill that the model may activate. While it is active, `prompt` is added to the model's
    instructions, and `tools` can be called."""

    key: str
    description: str
    prompt: str | None = None
    tools: tuple[Tool, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", tuple(self.tools))


class Skills:
    """The skills of an agent. `tools` contains the tools of every skill, and the tools that
    activate, deactivate and list skills. `render` describes the skills to the model. Raises an
    `InvalidValue` that lists every duplicate key and tool name."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        given = tuple(skills)
        self._skills = {skill.key: skill for skill in given}
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        _check(given)
        gated = (self._gated(skill, one) for skill in given for one in skill.tools)
        self.tools: tuple[Tool, ...] = (*self._controls(), *gated)

    def active(self, state: dict[str, Any]) -> list[str]:
        """Return the keys of the active skills, in the order of activation. Skills that no longer
        exist are omitted."""
        found = state.get(STATE)
        return [key for key in found if key in self._skills] if isinstance(found, list) else []

    def render(self, state: dict[str, Any]) -> str:
        """Return the list of all skills and the prompts of the active skills, for the model's
        instructions."""
        if not self._skills:
            return ""
        active = self.active(state)
        lines = ["Skills (call activate_skill to use the instructions and tools of a skill):"]
        for skill in self._skills.values():
            mark = " (active)" if skill.key in active else ""
            lines.append(f"- {skill.key}{mark}: {skill.description}")
        prompts = [
            f"Skill {key}:\n{prompt}" for key in active if (prompt := self._skills[key].prompt)
        ]
        return "\n\n".join(["\n".join(lines), *prompts])

    def _controls(self) -> tuple[Tool, Tool, Tool]:
        @tool(category=STATE, risk="safe", repeat_safe=True)
        async def activate_skill(skill: str, context: ToolContext) -> ToolResult:
            """Activate a skill, to use its instructions and tools.

            Args:
                skill: the key of the skill, as list_skills shows it
            """
            return await self._switch(skill, True, context)

        @tool(category=STATE, risk="safe", repeat_safe=True)
        async def deactivate_skill(skill: str, context: ToolContext) -> ToolResult:
            """Deactivate a skill that is no longer needed.

            Args:
                skill: the key of the skill
            """
            return await self._switch(skill, False, context)

        @tool(category=STATE, risk="safe", repeat_safe=True)
        async def list_skills(context: ToolContext) -> list[dict[str, Any]]:
            """List all skills, and which of them are active."""
            active = self.active(context.state)
            return [
                {
                    "skill": skill.key,
                    "description": skill.description,
                    "active": skill.key in active,
                    "tools": [one.name for one in skill.tools],
                }
                for skill in self._skills.values()
            ]

        return activate_skill, deactivate_skill, list_skills

    async def _switch(self, key: str, on: bool, context: ToolContext) -> ToolResult:
        """Activate or deactivate a skill, and return the result for the model."""
        skill = self._skills.get(key)
        if skill is None:
            return self._unknown(key)
        async with self._lock():
            active = self.active(context.state)
            if (key in active) != on:
                changed = [*active, key] if on else [other for other in active if other != key]
                await context.update_state(**{STATE: changed})
                kind = "skill.activated" if on else "skill.deactivated"
                await context.emit(kind, {"skill": key})
        said = f"Skill {key} is active." if on else f"Skill {key} is not active."
        if on and skill.tools:
            said += "\nIts tools: " + ", ".join(one.name for one in skill.tools) + "."
        if on and skill.prompt:
            said += f"\n{skill.prompt}"
        return ToolResult(content=said, data={"skill": key, "active": on})

    def _unknown(self, key: str) -> ToolResult:
        known = ", ".join(self._skills) or "none"
        content = f"Skill {key!r} does not exist. Skills: {known}."
        return ToolResult(content=content, failed=True, code="unknown_skill")

    def _lock(self) -> asyncio.Lock:
        """Return the lock of the current event loop. Without a lock, one of two concurrent changes
        would be lost."""
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def _gated(self, skill: Skill, inner: Tool) -> Tool:
        async def call(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            if skill.key in self.active(context.state):
                return await inner.call(arguments, context)
            await context.emit("skill.required", {"skill": skill.key, "tool": inner.name})
            return ToolResult(
                content=f"{inner.name} did nothing: it belongs to skill {skill.key!r}, which is "
                f"not active. Call activate_skill with skill={skill.key!r}, then call it again.",
                data={"skill": skill.key, "tool": inner.name},
                code="skill_required",
            )

        return inner.replace(form=_Gated(inner.form), function=call)


@dataclass(frozen=True)
class _Gated(DictForm):
    """Parses the arguments of a skill's tool, and passes them to a function that runs the tool only
    if the skill is active."""

    inner: ArgumentForm

    @property
    def schema(self) -> dict[str, Any]:
        return self.inner.schema

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        return self.inner.read(arguments)


def _check(skills: tuple[Skill, ...]) -> None:
    keys = Counter(skill.key for skill in skills)
    names = Counter([*CONTROLS, *(one.name for skill in skills for one in skill.tools)])
    faults = [f"key {key!r} is used {n} times" for key, n in keys.items() if n > 1]
    faults += [f"tool {name!r} is used {n} times" for name, n in names.items() if n > 1]
    faults += ["a key is empty" for key in keys if not key.strip()]
    if faults:
        raise InvalidValue(
            field="skills", problem="; ".join(faults), remedy="use a unique name for each"
        )

"""Environment variables that a client sets for the commands of a session. Only variables that the
server allows are accepted. They are kept in the memory of this process, and are never written to a
log, a response or an audit record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...errors import InvalidValue
from ...harness import Place, Ran, Sandbox
from ...log.events import Key, Scope
from ...redact import values_only
from ..recent import RecentMap

ROOM = 10_000  # sessions whose variables are kept


def check(given: Mapping[str, str], allowed: Collection[str]) -> None:
    """Reject variables that the server does not allow, and invalid values."""
    for name, value in given.items():
        if name not in allowed:
            there = ", ".join(sorted(allowed)) or "none"
            raise InvalidValue(
                field="envs",
                problem=f"{name!r} is not allowed",
                remedy=f"use only the variables that the server allows: {there}",
            )
        if "\0" in value:
            raise InvalidValue(
                field=f"envs.{name}", problem="contains a NUL character", remedy="remove it"
            )


class SessionVariables:
    """The environment variables of sessions, in memory. If too many sessions set variables, the
    variables of the session that set them the longest ago are dropped."""

    def __init__(self) -> None:
        self._given: RecentMap[Scope, dict[str, str]] = RecentMap(ROOM)

    def give(self, scope: Scope, given: Mapping[str, str]) -> None:
        """Set variables of a session, in addition to the variables already set."""
        self._given[scope] = {**self.of(scope), **given}

    def of(self, scope: Scope) -> dict[str, str]:
        return self._given.get(scope, {})

    def drop(self, scope: Scope) -> None:
        self._given.pop(scope, None)


class VariablesSandbox:
    """A sandbox in which the commands of a session run with the session's environment variables."""

    def __init__(self, sandbox: Sandbox, envs: SessionVariables) -> None:
        self._sandbox, self._envs = sandbox, envs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)  # optional methods of the sandbox

    async def open(self, session: Key, *, agent: str, resources: Any) -> Place:
        place = await self._sandbox.open(session, agent=agent, resources=resources)
        made = VariablesPlace(place, lambda: self._envs.of(session.scope))
        return cast(Place, made)  # by __getattr__

    async def destroy(self, session: Scope) -> None:
        self._envs.drop(session)
        await self._sandbox.destroy(session)


class VariablesPlace:
    """Runs the commands of a session with additional environment variables. The values are masked
    in the output, which is stored in the log."""

    def __init__(self, place: Place, envs: Callable[[], Mapping[str, str]]) -> None:
        self._place, self._envs = place, envs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    async def run(
        self, command: str | Sequence[str], *, env: Mapping[str, str] | None = None, **more: Any
    ) -> Ran:
        given = self._envs()
        ran = await self._place.run(command, env={**given, **(env or {})}, **more)
        mask = values_only(given.values())
        return msgspec.structs.replace(
            ran, stdout=mask.text(ran.stdout), stderr=mask.text(ran.stderr)
        )

"""Variables that a client gives to a session's commands: those that the server allows, in this
process's memory alone. They are in no log, no answer and no record."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...errors import InvalidValue
from ...harness.sandbox import Place, Ran, Sandbox
from ...log.events import Key, Scope
from ...redact import values_only

ROOM = 10_000  # sessions whose variables are remembered


def check(given: Mapping[str, str], allowed: Collection[str]) -> None:
    """Refuse variables that the server does not allow, and what is no value of one."""
    for name, value in given.items():
        if name not in allowed:
            there = ", ".join(sorted(allowed)) or "none"
            raise InvalidValue(
                field="envs", problem=f"has {name!r}", remedy=f"the server allows: {there}"
            )
        if "\0" in value:
            raise InvalidValue(field=f"envs.{name}", problem="holds NUL", remedy="leave it out")


class Envs:
    """The variables of each session, of the sessions that were given some last."""

    def __init__(self) -> None:
        self._given: OrderedDict[Scope, dict[str, str]] = OrderedDict()

    def give(self, scope: Scope, given: Mapping[str, str]) -> None:
        """Set variables of a session, beside those that it has."""
        self._given[scope] = {**self._given.pop(scope, {}), **given}
        while len(self._given) > ROOM:
            self._given.popitem(last=False)

    def of(self, scope: Scope) -> dict[str, str]:
        return self._given.get(scope, {})

    def drop(self, scope: Scope) -> None:
        self._given.pop(scope, None)


class Supplied:
    """A sandbox whose commands find the variables of their session."""

    def __init__(self, sandbox: Sandbox, envs: Envs) -> None:
        self._sandbox, self._envs = sandbox, envs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)  # what not every sandbox has

    async def open(self, session: Key, *, agent: str, resources: Any) -> Place:
        place = await self._sandbox.open(session, agent=agent, resources=resources)
        made = SuppliedPlace(place, lambda: self._envs.of(session.scope))
        return cast(Place, made)  # by __getattr__

    async def destroy(self, session: Scope) -> None:
        self._envs.drop(session)
        await self._sandbox.destroy(session)


class SuppliedPlace:
    """A place that runs commands with more variables. What they write of their values is
    masked, since it goes into the log."""

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

"""Agents that clients brought, while a server runs: served by whichever replica meets a session of
theirs, taken up when another replica is gone, and let go with their last session."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ...errors import UnknownAgent
from ...log.catalog import Row
from ...values.records import Remains
from ..engines import Engine, Place
from .agents import Loading


def serving(engines: Mapping[str, Engine], agent: str | None) -> tuple[str, Engine, str]:
    """The engine that serves an agent, its name, and the agent's key (`UnknownAgent`)."""
    for name, engine in engines.items():
        with contextlib.suppress(UnknownAgent):
            return name, engine, engine.agent_key(agent)
    available = sorted({agent for one in engines.values() for agent in one.agents})
    raise UnknownAgent(agent=agent or "", available=available)


class Adopting:
    """What the engines of a server do with agents that it was not set up with. Without loaders,
    nothing."""

    def __init__(self, engines: Mapping[str, Engine], loading: Loading) -> None:
        self._engines, self._loading = engines, loading

    async def adopt(self, place: Place, row: Row) -> None:
        """Have the agent of a session served that somebody brought, here or to another replica."""
        agent = row.agent
        if self._loading.names and agent is not None and not self._knows(agent, place.tenant):
            await self._adopt(place, agent)

    def _knows(self, agent: str, tenant: str) -> bool:
        with contextlib.suppress(UnknownAgent):
            engine: Any = serving(self._engines, agent)[1]
            brought = agent in getattr(engine, "adopted", ())
            return not brought or engine.has_adopted(agent, tenant)
        return False

    async def _adopt(self, place: Place, agent: str) -> Any:
        """The engine that serves from now on an agent which is kept there, or None."""
        kept = await self._loading.kept(place, agent)
        if kept is None or kept.engine not in self._engines:
            return None
        self._loading.adopt(kept, self._engines[kept.engine], place.tenant)
        return self._engines[kept.engine]

    async def take_up(self, place: Place) -> None:
        """Take up the runs of such agents that nobody drives."""
        for agent in await self._loading.undone(place):
            if (engine := await self._adopt(place, agent)) is not None:
                await engine.take_up(place, agent)

    async def clear(self, place: Place, row: Row) -> tuple[Remains, ...]:
        """Remove what a session has outside of its store, such as its work folder; what remains
        of that."""
        await self.adopt(place, row)
        with contextlib.suppress(UnknownAgent):
            _, engine, agent = serving(self._engines, row.agent)
            if (clear := getattr(engine, "clear", None)) is not None:
                return await clear(place, agent, row.session) or ()
        return ()

    async def forget(self, place: Place, agent: str) -> None:
        """Forget an agent that was brought, once no session needs it."""
        if self._loading.names and await self._loading.forget(place, agent):
            with contextlib.suppress(UnknownAgent):
                engine: Any = serving(self._engines, agent)[1]
                await engine.drop(place, agent)

    async def tidy(self, place: Place) -> None:
        """Forget all that no session needs."""
        if self._loading.names:
            for agent in [agent async for agent in self._loading.all(place)]:
                await self.forget(place, agent)

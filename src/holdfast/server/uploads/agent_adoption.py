"""Agents that clients have uploaded, while a server runs: whichever replica meets one of their
sessions serves them, another replica takes their runs over, and they are dropped with their last
session."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ...errors import UnknownAgent
from ...log.catalog import Row
from ...values.records import Remains
from ..engines import Engine, TenantStore, serving
from .agents import AgentLoaders


class AgentAdoption:
    """Has the engines of a server serve uploaded agents. Does nothing without loaders."""

    def __init__(self, engines: Mapping[str, Engine], loading: AgentLoaders) -> None:
        self._engines, self._loading = engines, loading

    async def adopt(self, place: TenantStore, row: Row) -> None:
        """Serve the agent of a session that a client has uploaded, here or to another replica."""
        if self._loading.names and row.agent is not None:
            try:
                serving(self._engines, row.agent, place.tenant)
            except UnknownAgent:
                await self._adopt(place, row.agent)

    async def _adopt(self, place: TenantStore, agent: str) -> Any:
        """Serve an agent that a store has; its engine, or None."""
        kept = await self._loading.kept(place, agent)
        if kept is None or kept.engine not in self._engines:
            return None
        self._loading.adopt(kept, self._engines[kept.engine], place.tenant)
        return self._engines[kept.engine]

    async def take_up(self, place: TenantStore) -> None:
        """Resume runs of uploaded agents that nobody drives."""
        for agent in await self._loading.undone(place):
            if (engine := await self._adopt(place, agent)) is not None:
                await engine.take_up(place, agent)

    async def clear(self, place: TenantStore, row: Row) -> tuple[Remains, ...]:
        """Remove what a session has outside of its store, such as its work folder; returns what
        remains."""
        await self.adopt(place, row)
        with contextlib.suppress(UnknownAgent):
            _, engine, agent = serving(self._engines, row.agent, place.tenant)
            if (clear := getattr(engine, "clear", None)) is not None:
                return await clear(place, agent, row.session) or ()
        return ()

    async def forget(self, place: TenantStore, agent: str) -> None:
        """Drop an uploaded agent that no session needs."""
        if self._loading.names and await self._loading.forget(place, agent):
            with contextlib.suppress(UnknownAgent):
                engine: Any = serving(self._engines, agent, place.tenant).engine
                await engine.drop(place, agent)

    async def tidy(self, place: TenantStore) -> None:
        """Drop all uploaded agents that no session needs."""
        if self._loading.names:
            for agent in [agent async for agent in self._loading.all(place)]:
                await self.forget(place, agent)

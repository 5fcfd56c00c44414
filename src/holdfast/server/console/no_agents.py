"""An engine without agents, for a console that reads a store and decides. The processes that serve
the agents continue the runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from ...errors import UnknownAgent
from ...harness import GRACE, Session
from ...log import events as ev
from ...values.records import Receipt
from ..engines import TenantStore


class NoAgents:
    """An engine that serves no agent."""

    @property
    def agents(self) -> list[str]:
        return []

    def agent_key(self, name: str | None) -> str:
        raise UnknownAgent(agent=name or "", available=[])

    async def begin(
        self, place: TenantStore, id: str, created: ev.SessionCreated, ids: Sequence[str]
    ) -> bool:
        raise UnknownAgent(agent=created.agent or "", available=[])

    def open(
        self, place: TenantStore, agent: str, id: str, thread: str = "main"
    ) -> AbstractAsyncContextManager[Session]:
        raise UnknownAgent(agent=agent, available=[])

    async def delete(self, place: TenantStore, agent: str, id: str) -> Receipt:
        raise UnknownAgent(agent=agent, available=[])

    async def serve(self, place: TenantStore) -> None:
        """Resume nothing: there is no agent."""

    async def aclose(self, grace: float = GRACE) -> None:
        """Close nothing: no session was opened."""

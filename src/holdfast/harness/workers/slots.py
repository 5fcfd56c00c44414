"""The slots of recovered logs, and the order in which those who wait for them get one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from ...log.events import Key

FREE = 4  # search again when a quarter of the slots is free


Name = TypeVar("Name", bound=Hashable)


class Turns(Generic[Name]):
    """Names that wait for a turn, in the order in which they came or had their last turn."""

    def __init__(self) -> None:
        self._line: dict[Name, None] = {}

    def __iter__(self) -> Iterator[Name]:
        return iter([*self._line])

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, name: Name) -> bool:
        return name in self._line

    def join(self, *names: Name) -> None:
        """Let names wait. Those that wait already keep their place."""
        for name in names:
            self._line.setdefault(name)

    def leave(self, *names: Name) -> None:
        """Remove names that wait no longer."""
        for name in names:
            self._line.pop(name, None)

    def served(self, name: Name) -> None:
        """Move a name that had its turn behind all others."""
        self.leave(name)
        self.join(name)


class Slots:
    """The slots for recovered logs that are being driven. Their number is limited, if you like also
    for each tenant (in sessions) and for each agent (in threads). Free slots are dealt out one by
    one, round after round, to the tenants that wait for them."""

    def __init__(
        self, most: int, tenant_limit: int | None = None, agent_limit: int | None = None
    ) -> None:
        self._most, self._tenant_limit, self._agent_limit = most, tenant_limit, agent_limit
        self._taken: dict[Key, str] = {}  # and the agent
        self._sessions: dict[str, Counter[str]] = {}  # by tenant: session, and its threads
        self._agents: Counter[str] = Counter()
        self._turns = Turns[str]()  # tenants with due logs
        self._blocked: set[str] = set()  # tenants that wait for a slot of their own or of an agent
        self._given = False  # a slot was freed since slots were dealt
        self._freed = asyncio.Event()
        self.one = asyncio.Lock()  # one tenant takes its slots at a time

    @property
    def free(self) -> int:
        return self._most - len(self._taken)

    @property
    def limits_agents(self) -> bool:
        return self._agent_limit is not None

    def join(self, tenants: Iterable[str]) -> list[str]:
        """Let tenants with due logs wait for slots. Returns all that wait, in their order."""
        self._turns.join(*tenants)
        self._freed.set()
        return [*self._turns]

    def deal(self, tenant: str) -> int:
        """Return how many logs the tenant may take up now. If there are any, it is behind all other
        tenants from then on. Call `settle` afterwards."""
        self.join([tenant])
        self._given = False
        if count := self._share(tenant):
            self._turns.served(tenant)
        return count

    def settle(self, tenant: str, *, more: bool, blocked: bool = False) -> None:
        """Record whether a tenant has more due logs, and whether they need another slot of an agent
        to be free first."""
        if blocked and not self._given:
            self._blocked.add(tenant)
        if not more:
            self._turns.leave(tenant)
        self._freed.set()

    def left(self, agent: str) -> int:
        """Return how many more threads of an agent may be driven."""
        return self._most if self._agent_limit is None else self._agent_limit - self._agents[agent]

    def take(self, where: Key, agent: str = "") -> None:
        if where in self._taken:
            return
        self._taken[where] = agent
        self._agents[agent] += 1
        self._sessions.setdefault(where.tenant, Counter())[where.session] += 1
        if self._room(where.tenant) <= 0:
            self._blocked.add(where.tenant)

    def give(self, *wheres: Key) -> None:
        """Free the slots of logs; logs without a slot are ignored."""
        for where in wheres:
            if (agent := self._taken.pop(where, None)) is None:
                continue
            self._agents[agent] -= 1
            sessions = self._sessions[where.tenant]
            sessions[where.session] -= 1
            if not sessions[where.session]:
                del sessions[where.session]
            if not sessions:
                del self._sessions[where.tenant]
        self._blocked = {tenant for tenant in self._blocked if self._room(tenant) <= 0}
        self._given = True
        self._freed.set()

    def __iter__(self) -> Iterator[Key]:
        return iter([*self._taken])

    async def wait_for_some(self, tenant: str) -> None:
        """Wait until at least a quarter of the slots is free, and the tenant would get one."""
        while self.free < max(1, self._most // FREE) or not self._share(tenant):
            self._freed.clear()
            await self._freed.wait()

    async def next(self) -> str:
        """Wait until at least a quarter of the slots is free, and return the next tenant."""
        while True:
            if self.free >= max(1, self._most // FREE):
                for tenant in self._turns:
                    if self._share(tenant):
                        return tenant
            self._freed.clear()
            await self._freed.wait()

    def _share(self, tenant: str) -> int:
        """Return how many slots a tenant gets if the free ones are dealt out now."""
        free = self.free
        if free <= 0 or tenant in self._blocked:
            return 0
        ahead = 0  # tenants that get a slot before this one
        for other in self._turns:
            if other == tenant or ahead >= free:
                break
            ahead += other not in self._blocked
        waiting = len(self._turns) - sum(other in self._turns for other in self._blocked)
        count = -(-(free - ahead) // max(1, waiting))
        return max(0, min(count, self._room(tenant)))

    def _room(self, tenant: str) -> int:
        """Return how many more sessions of a tenant may be driven."""
        if self._tenant_limit is None:
            return self._most
        return self._tenant_limit - len(self._sessions.get(tenant, ()))

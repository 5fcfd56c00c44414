"""`Deliverer`: finds the webhook endpoints of all tenants that no process delivers to, and delivers
to them. Any number of processes may run one: each endpoint has a lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Literal, Self

from ..cancellation import cancellable, ended
from ..environment import current, new_id
from ..errors import InvalidValue, LeaseHeld, LogReplaced, MissingExtra, SessionNotFound
from ..log.codec import LIMITS
from ..log.events import Key
from ..redact import Redactor
from ..stores.port import Store
from .addresses import networks as parsed
from .delivery import EndpointDelivery
from .http import HttpSender, Sender
from .records import AGENT, TENANT

LOGGER = logging.getLogger("holdfast.webhooks")
POLL = 1.0  # seconds between two searches for endpoints and for news
TTL = 15.0  # seconds until the lease of a crashed process expires
RESERVED = "~"  # tenants with this prefix have no endpoints


class Deliverer:
    """Delivers to the webhook endpoints in a store, until it is closed.

        async with Deliverer(store):
            ...

    `tenants` are names, or "all". Endpoints in private networks are refused, except in `networks`,
    such as `["10.0.0.0/8"]`. Bodies are masked by `redactor`. `sender` replaces the sending over
    HTTP; you close it.

    See [webhooks](../webhooks.md).
    """

    def __init__(
        self,
        store: Store,
        *,
        tenants: Sequence[str] | Literal["all"] = "all",
        networks: Iterable[str] = (),
        redactor: Redactor | None = None,
        sender: Sender | None = None,
        poll: float = POLL,
        ttl: float = TTL,
    ) -> None:
        for name, value in (("poll", poll), ("ttl", ttl)):
            if isinstance(value, bool) or not 0 < value < math.inf:
                problem = f"is {value!r}"
                raise InvalidValue(field=name, problem=problem, remedy="pass a number above 0")
        self._store, self._tenants = store, tenants
        self._networks, self._given = parsed(networks), sender
        self._redactor = Redactor() if redactor is None else redactor
        self._poll, self._ttl = poll, ttl
        self._owner = f"{current().process_name()}:{new_id()[-12:]}"
        self._sender: Sender | None = sender
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def start(self, look: Callable[[], bool] = lambda: True) -> Self:
        """Begin to deliver. While `look` returns False, no further endpoints are taken up."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_always(look), name="webhooks")
        return self

    async def look(self) -> None:
        """Take up the endpoints that no process delivers to. This also happens every second."""
        for tenant in await self._due():
            for key in await self._store.runnable(tenant, agents=[AGENT], limit=LIMITS.page):
                if key not in self._running:
                    await self._take(key)

    async def _due(self) -> list[str]:
        due, after = list[str](), TENANT
        while True:
            found = await self._store.due_tenants(agents=[AGENT], after=after, limit=LIMITS.page)
            due += filter(self._serves, found)
            if len(found) < LIMITS.page:
                return due
            after = found[-1]

    def _serves(self, name: str) -> bool:
        tenant = name.removeprefix(TENANT)
        if not name.startswith(TENANT) or tenant.startswith(RESERVED):
            return False
        return self._tenants == "all" or tenant in self._tenants

    async def _take(self, key: Key) -> None:
        if self._sender is None:
            self._sender = HttpSender(self._networks)
        try:
            lease = await self._store.acquire(key, self._owner, ttl=self._ttl)
        except (LeaseHeld, SessionNotFound, LogReplaced):
            return
        work = EndpointDelivery(self._store, lease, self._sender, self._redactor, poll=self._poll)
        task = asyncio.create_task(work.run(), name=f"webhook endpoint {key.session}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _look_always(self, look: Callable[[], bool]) -> None:
        while True:
            try:
                with cancellable():
                    if look():
                        await self.look()
            except MissingExtra as error:
                LOGGER.error("%s", error)
                return
            except Exception as error:  # the next search tries again
                code = getattr(error, "code", type(error).__name__)
                LOGGER.warning("cannot look for webhook endpoints: %s", code)
            await asyncio.sleep(self._poll)

    async def aclose(self) -> None:
        """Stop delivering. What was not delivered is left to other processes. Calling it twice is
        safe."""
        looking, self._looking = self._looking, None
        if looking is not None:
            await ended(looking)
        await ended(*self._running.values())
        if self._sender is not None and self._given is None:
            sender, self._sender = self._sender, None
            with contextlib.suppress(Exception):
                await sender.aclose()

"""The users of a simulated cluster. Each action of a scenario is a request to one process, and is
retried at another process if the connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from ...errors import HarnessClosed, HoldfastError, StoreUnavailable
from .cluster import Cluster, Disconnected
from .loop import new_loop
from .outcome import ReaderView, Told
from .scenario import Step
from .verbs import VERBS, Reply, UserRequest, find_item, settle

PATIENCE = 60.0  # seconds that a user waits for an answer
TRIES = 12
ONCE = ("send", "post", "steer", "interrupt", "limited", "typed", "modelled", "vanish", "attach")
AGAIN = (Disconnected, StoreUnavailable, HarnessClosed, asyncio.TimeoutError)


class Users:
    """Performs the steps of a scenario, and records the replies."""

    def __init__(
        self,
        cluster: Cluster,
        failed: Callable[[BaseException], None],
        deleted: Callable[[str], None],
    ) -> None:
        self._cluster, self._failed, self._deleted = cluster, failed, deleted
        self.loop = new_loop(cluster.scheduler, "users")
        self.told: list[Told] = []
        self.readings: list[ReaderView] = []
        self.busy: dict[asyncio.Task[None], None] = {}
        self._scheduled = False  # whether a user was about to set a schedule

    def perform(self, step: Step) -> None:
        """Start a step. If `step.twice` is set, also send the same request to another process."""
        self._scheduled |= step.action == "schedule"
        self._spawn(self._perform(step, step.place))
        if step.twice:
            self._spawn(self._perform(step, step.place + 1, "bob"))

    def settle_all(self) -> None:
        """Decide all pending items, as an operator would."""
        self._spawn(self._settle_all())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.busy[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.busy.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _say(self, step: Step, reply: Reply) -> None:
        now, seq = self._cluster.scheduler.now, reply.seq
        self.told.append(
            Told(step.action, step.session, step.tag, now, reply.status, seq, reply.item, reply.run)
        )

    async def _perform(self, step: Step, place: int, actor: str = "ann") -> None:
        if step.action == "duel":
            await self._duel(step, place)
        else:
            await self._request(self._new(step, actor), place)

    def _new(self, step: Step, actor: str = "ann", item: str | None = None) -> UserRequest:
        return UserRequest(step, actor, item, self.readings, self._deleted)

    async def _duel(self, step: Step, place: int) -> None:
        """Let two users decide the same item at the same time, in two processes."""
        try:
            item = await self._ask(place, lambda harness: find_item(harness, self._new(step)))
        except (*AGAIN, HoldfastError):
            item = None
        if item is None:
            self._say(step, Reply("nothing"))
            return
        other = replace(step, action="deny" if step.pick % 3 == 2 else "approve")
        self._spawn(self._request(self._new(step, "ann", item), place))
        self._spawn(self._request(self._new(other, "bob", item), place + 1))

    async def _request(self, request: UserRequest, place: int) -> None:
        """Send a request to one process, and retry at other processes if the connection is lost."""
        step, verb = request.step, VERBS[request.step.action]
        for _ in range(TRIES if step.keyed or step.action not in ONCE else 1):
            try:
                reply = await self._ask(place, lambda harness: verb(harness, request))
            except AGAIN:
                place += 1
                await asyncio.sleep(0.3)
            except HoldfastError as error:
                self._say(step, Reply(error.code))
                return
            else:
                self._say(step, reply)
                return
        self._say(step, Reply("lost"))

    async def _ask(self, place: int, verb: Callable[[Any], Awaitable[Any]]) -> Any:
        process = self._cluster.places[place % len(self._cluster.places)]
        if process.dead or process.server is None:
            raise Disconnected(process.name)

        async def work() -> Any:
            if process.server is None:  # the process is shutting down
                raise HarnessClosed(what="the process")
            return await verb(process.server)

        async with asyncio.timeout(PATIENCE):
            return await process.ask(self.loop, work)

    # The operator

    async def _settle_all(self) -> None:
        for place in range(len(self._cluster.places)):
            try:
                await self._ask(place, self._settle)
                return
            except (*AGAIN, HoldfastError):
                continue

    async def _settle(self, harness: Any) -> None:
        await settle(harness, self._decided, self._scheduled)

    def _decided(self, session: str, item: str) -> None:
        self._say(Step(0.0, "approve", session), Reply("decided", item=item))

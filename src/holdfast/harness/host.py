"""The harness: hosts the sessions of an agent on a store, drives those that have something to
do, and takes up what other processes left. Here are its sessions, and their verbs by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from msgspec.structs import replace

from ..errors import InvalidValue
from ..log import events as ev
from ..log.catalog import Page, Pending, PendingQuery, Query, Row
from ..log.events import Scope, key, new_id
from ..sessions.changes import check_held
from ..values.options import Content, SendOptions, check_options
from ..values.pending import Decision
from ..values.records import Receipt
from ..values.result import Result
from .agents.subagents import tools_named
from .idle_sessions import evict
from .lifecycle import TTL, Serving
from .live.inbox import settle
from .live.inputs import check_entries, check_seconds
from .open_sessions import GRACE
from .sandbox.port import Reason
from .sandbox.removal import cleared, condemn
from .session.message_stream import Stream
from .session.session import Session
from .session.subagents import holder

__all__ = ["GRACE", "TTL", "Harness"]

IDLE = 600.0  # seconds after which a session that nobody uses may be forgotten


class Harness(Serving):
    """Serves one agent. Use it with `async with`, or call `start` and `aclose`.

    Everything that can be wrong with the agent and the settings is found here, at once.
    """

    # Sessions

    async def get_or_create(
        self,
        id: str | None = None,
        *,
        thread: str = "main",
        user: str | None = None,
        title: str | None = None,
        workspace: str | None = None,
        labels: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """The live session with this id, opened or begun if need be; without an id, a new one.
        All who ask at once get the same object. `open` begins none, and `get` opens none."""
        check_entries("metadata", metadata)
        if isinstance(labels, str):
            problem, remedy = "is one str", "give a list of them"
            raise InvalidValue(field="labels", problem=problem, remedy=remedy)
        created = ev.SessionCreated(
            agent=self.agent.key,
            user=user,
            title=title,
            workspace=workspace,
            labels=list(labels),
            metadata=dict(metadata or {}),
        )
        id = (_named(id) if id is not None else "") or new_id()
        await self.start()
        return await self.opened.get_or_create(key(id, thread, self.tenant), created)

    async def open(self, id: str, thread: str = "main") -> Session:
        """The session with this id, opened from the store if it is not live here yet;
        `SessionNotFound` where the store has none."""
        id = _named(id)
        await self.start()
        return await self.opened.open(id, thread)

    def get(self, id: str, thread: str = "main") -> Session | None:
        """The session if it is live in this process, else None, also for one that is stored: no
        I/O. `await harness.open(id)` opens a stored one."""
        where = key(_named(id), thread, self.tenant)
        return self._opened.sessions.get(where) if self._opened is not None else None

    async def list(
        self, *, active: bool = False, cursor: str | None = None, limit: int = 50, **filters: Any
    ) -> Page[Row]:
        """Sessions of this agent, the most recently active first; `active`: those live here."""
        self._check_open()
        if active:
            here = [where for where in self.opened.sessions if where.thread == "main"]
            rows = [await self.store.row(where) for where in here]
            return Page(items=[row for row in rows if row is not None], cursor=None)
        filters.setdefault("agent", self.agent.key)
        query = Query(tenant=self.tenant, **filters)
        limit = max(1, min(limit, 100))
        return await self.store.find(query, cursor=cursor, limit=limit)

    async def delete(self, id: str) -> Receipt:
        """Stop what is going on in a session, and remove all of it, its sandbox too; what could
        not be removed there is in the receipt. `DeletionRefused` where it must be kept,
        `InvalidValue` where it is another agent's."""
        self._check_open()
        id = _named(id)
        scope = Scope(self.tenant, id)
        if (row := await self.store.row(key(id, "main", self.tenant))) is not None:
            self.opened.check_agent(row)
            check_held(row)
        await self.close(id, grace=0.0, reason="delete")
        sandbox = self.config.sandbox
        await condemn(sandbox, scope, self.store.info().location)
        receipt = await self.store.delete(scope)
        left = await cleared(sandbox, scope)
        receipt = replace(receipt, remains=(*receipt.remains, *left))
        if receipt.removed.get("logs"):
            self._notices.tell("session.deleted", id)
        return receipt

    async def delete_thread(self, id: str, thread: str, *, grace: float = GRACE) -> Receipt:
        """Remove one thread; its forks stay whole. A run that is going there, whichever process
        drives it, is aborted first, and waited for `grace` seconds at most."""
        self._check_open()
        return await self.opened.delete_thread(_named(id), thread, grace=grace)

    async def close(self, id: str, *, grace: float = GRACE, reason: Reason = "close") -> bool:
        """Forget a live session; its run is handed over at a safe point, at the latest after
        `grace` seconds. False if it was not live."""
        return await self.opened.close(_named(id), grace=grace, reason=reason)

    def drives(self, id: str) -> bool:
        """Whether something goes on here in any thread of a session, also in a sub-agent's."""
        return self._opened is not None and self._opened.drivers.busy(_named(id))

    async def evict(self, idle: float = IDLE) -> tuple[str, ...]:
        """Forget the live sessions that nothing goes on in here, that nobody listens to, and of
        which nobody has asked anything for `idle` seconds; their ids. Nothing is lost: the next
        who asks for one gets it anew, as it was."""
        self._check_open()
        check_seconds("idle", idle)
        return await evict(self.opened, idle)

    async def close_all(self) -> None:
        """Forget all live sessions; the harness stays usable."""
        await self.opened.close_all()

    # The verbs of a session, by its id

    async def send(
        self,
        id: str | None,
        content: Content,
        *,
        output_type: Any = None,
        **options: Unpack[SendOptions],
    ) -> Result:
        """`session.send` of the session with this id, opened or begun if need be."""
        check_options(options)
        session = await self.get_or_create(id)
        return await session.send(content, output_type=output_type, **options)

    async def stream(
        self,
        id: str | None,
        content: Content,
        *,
        output_type: Any = None,
        **options: Unpack[SendOptions],
    ) -> Stream:
        """`session.stream` of the session with this id."""
        check_options(options)
        session = await self.get_or_create(id)
        return session.stream(content, output_type=output_type, **options)

    async def approve(self, id: str, item: str | None = None, **options: Any) -> Decision:
        """Decide on an item of any session, live here or not."""
        return await self._settle(id, item, "approved", **options)

    async def deny(self, id: str, item: str | None = None, **options: Any) -> Decision:
        return await self._settle(id, item, "denied", **options)

    async def answer(
        self, id: str, answer: Any, item: str | None = None, **options: Any
    ) -> Decision:
        return await self._settle(id, item, "answered", answer=answer, **options)

    async def _settle(
        self,
        id: str,
        item: str | None,
        outcome: Any,
        *,
        thread: str = "main",
        arguments: Mapping[str, Any] | None = None,
        answer: Any = None,
        **options: Any,
    ) -> Decision:
        self._check_open()
        where, item = await holder(self.store, key(_named(id), thread, self.tenant), item)
        if arguments is not None:
            answer = {"arguments": dict(arguments)}
        tools = tools_named(self.config.agent)
        made = await settle(self.store, where, item, outcome, answer=answer, tools=tools, **options)
        live = self.opened.lives.get(where)
        if live is not None:
            await live.reach(made.seq)
            self.wake(live)
        else:
            await self.opened.drivers.look()
        return made

    async def pending(
        self, *, cursor: str | None = None, limit: int = 50, **filters: Any
    ) -> Page[Pending]:
        """What waits for a person, in all sessions, oldest first."""
        self._check_open()
        query = PendingQuery(tenant=self.tenant, **filters)
        return await self.store.pending(query, cursor=cursor, limit=limit)


def _named(id: Any) -> str:
    """The id of a session without the blanks around it."""
    if not isinstance(id, str):
        problem, remedy = f"is {type(id).__name__}", "pass a str, or None for a new session"
        raise InvalidValue(field="id", problem=problem, remedy=remedy)
    return id.strip()

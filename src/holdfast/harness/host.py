"""The class `Harness`, which serves one agent: it opens the agent's sessions, drives them, and
resumes runs that other processes left unfinished."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from msgspec.structs import replace

from ..cancellation import outcomes
from ..environment import current
from ..errors import HarnessClosed, HoldfastError, InvalidValue
from ..log import events as ev
from ..log.catalog import Page, Pending, PendingQuery, Query, Row
from ..log.catalog.filters import AgentFilters, PendingFilters, check_filters
from ..log.events import Scope, key, new_id
from ..models.port import Model, Provider
from ..sessions.changes import check_held
from ..sessions.lifecycle import Sessions
from ..stores import connect
from ..stores.event_loop import OwnLoop
from ..stores.port import Store
from ..values.budgets import Budget
from ..values.options import Content, RunLimits, SendOptions, check_options
from ..values.pending import Decision
from ..values.records import Receipt
from ..values.result import Result
from .agents.agent import Agent
from .agents.config import PARALLEL, RECOVERING, Config, Price
from .agents.sources import ToolSource, gather, release
from .agents.subagents import models_of, tools_named
from .faults import ErrorPolicy
from .listeners import Listener, Listeners
from .live.decisions import settle_pending
from .live.inputs import check_entries, check_seconds
from .open_sessions import GRACE, OpenSessions
from .prices import price
from .sandbox.port import Reason, Sandbox
from .sandbox.removal import SweptFolders, clear_sandbox, mark_for_removal
from .session.message_stream import MessageStream
from .session.session import Session
from .session.subagents import thread_of_item
from .session_eviction import evict
from .setup import prepare
from .telemetry.logs import LogConfig, Logs
from .tools.stored_results import LIMIT
from .workers.signals import ending, on_shutdown
from .workers.slots import Slots

__all__ = ["GRACE", "TTL", "Harness"]

TTL = 15.0  # seconds that a lease lasts
IDLE = 600.0  # seconds after which an unused session may be evicted


class Harness:
    """Serves one agent. Use it with `async with`, or call `start` and `aclose`.

    The constructor validates the agent and all settings, and reports all errors together.

    ```python
    async with Harness(agent, store="sqlite:shop.db") as harness:
        session = await harness.get_or_create("customer-42")
        result = await session.send("Where is order 42?")
    ```
    """

    def __init__(
        self,
        agent: Agent,
        *,
        default_model: str | Model | None = None,
        providers: Sequence[Provider | Model] = (),
        fallback_models: Sequence[str] = (),
        store: str | Store = "memory:",
        sandbox: Sandbox | None = None,
        resources: Any = None,
        logging: LogConfig | None = None,
        error_policy: ErrorPolicy | None = None,
        tenant: str = "main",
        limits: RunLimits | None = None,
        window_tokens: int = 100_000,
        window_turns: int = 200,
        summarise: Callable[..., Any] | str | None = None,
        recovery: Literal["resume", "close", "leave"] = "resume",
        crashes: int = 3,
        ttl: float = TTL,
        parallel_tools: int = PARALLEL,
        parallel_recovery: int = RECOVERING,
        price: Price | None = price,
        budgets: Sequence[Budget] = (),
        trace: bool | None = None,
        result_limit: int | None = LIMIT,
        versions: Literal["float", "warn", "pin"] = "float",
        storage: str | Store | None = None,
    ) -> None:
        if storage is not None:  # the name of `store` before 0.2
            warnings.warn(
                "Harness(storage=…) is now Harness(store=…)", DeprecationWarning, stacklevel=2
            )
            store = storage
        self._settings = prepare(locals())
        self.agent, self.tenant, self._source = agent, tenant, store
        self._recovery = recovery
        self._logs: Logs = (logging or LogConfig()).open()
        self._notices = Listeners(self._logs.log)
        self._opened: OpenSessions | None = None
        self._sources: list[ToolSource] = []
        self._starting = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._closed = False
        self._own: OwnLoop | None = None
        self._signals = ExitStack()
        self._slots: Slots | None = None

    def __repr__(self) -> str:
        opened = self._opened
        status = "closed" if self._closed else "started" if opened is not None else "not started"
        about = "" if opened is None else f", store={opened.store!r}, live={len(opened.sessions)}"
        return f"Harness({self.agent.key!r}, tenant={self.tenant!r}{about}, {status})"

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self) -> Self:
        """Connect to the store, and resume the unfinished runs of other processes."""
        if self._opened is None and not self._starting.locked():
            self._own = OwnLoop("the harness")
        self._check_loop()
        if self._opened is not None and not (self._closed or self._starting.locked()):
            return self
        async with self._starting:
            self._check_open()
            if self._opened is None:
                self._opened = await self._open()
                if self._opened.meter is not None:
                    self._opened.meter.start()
                self._sweeping = asyncio.create_task(self._sweep(), name="sweep folders")
                self._handle_signals()
                if self._recovery != "leave":
                    await self._opened.drivers.start()
        return self

    def _handle_signals(self) -> None:
        self._signals.enter_context(on_shutdown(self.end_subscriptions, ending()))

    async def _open(self) -> OpenSessions:
        store = await connect(self._source) if isinstance(self._source, str) else self._source
        try:
            self.agent, self._sources = await gather(self.agent)
        except BaseException:
            if isinstance(self._source, str):
                await store.aclose()
            raise
        config = Config(
            agent=self.agent,
            log=self._logs.log,
            redactor=self._logs.redactor,
            owner=f"{current().process_name()}:{new_id()[-12:]}",
            **self._settings,
        )
        return OpenSessions(config, store, self.tenant, self._notices, self._slots)

    async def aclose(self, grace: float = GRACE) -> None:
        """Close the harness: accept no more work, let runs reach a safe point within `grace`
        seconds, and leave unfinished runs to other processes. Nothing is written afterwards.
        Calling it twice is safe; cancelling the call does not stop the shutdown."""
        self._check_loop()
        self._closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace), name="close")
        await asyncio.shield(self._closing)

    async def _close(self, grace: float) -> None:
        async with self._starting:  # wait for a start in progress, and close it as well
            opened = self._opened
        self._signals.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await outcomes(self._sweeping)
        if opened is not None:
            await opened.aclose(grace)
            await release(self._sources)
            await opened.config.models.aclose()
            if isinstance(self._source, str):
                await opened.store.aclose()
        await self._logs.aclose()

    def end_subscriptions(self) -> None:
        """End every current and later iteration of `session.subscribe` and
        `session.display.changes`. Runs continue, and so do `send` and `stream`. Called when a
        process that handles SIGTERM is asked to terminate, since a web server waits for open
        requests before it closes the harness."""
        if self._opened is not None:
            self._opened.end_subscriptions()

    def _check_open(self) -> None:
        if self._closed:
            raise HarnessClosed(what="the harness")
        self._check_loop()

    def _check_loop(self) -> None:
        """Raise `WrongLoop` if the harness is used on a different event loop than the one on which
        it was started."""
        if self._own is not None:
            self._own.check()

    @property
    def limits(self) -> RunLimits:
        """The default limits of a run. A message or a mode can override them."""
        limits: RunLimits = self._settings["bounds"].limits
        return limits

    @property
    def named_models(self) -> frozenset[str]:
        """The models that the agent, its modes, its sub-agents and this harness use."""
        given = self._settings
        refs = (given["default_model"], *given["fallbacks"], *models_of(self.agent))
        return frozenset(filter(None, refs))

    def offer_models(self, refs: Collection[str]) -> None:
        """Restrict the models that a model may choose for its sub-agents, and that clients of a
        server may choose for their messages. Each of `refs` is a model reference, `provider/*` or
        `*`. Call it before `start`. Models that the program chooses are not restricted."""
        self._settings["offered"] = frozenset(refs)

    async def sweep_folders(self) -> SweptFolders:
        """Remove the remaining work folders of deleted sessions, for example after a crash or when
        a file could not be removed. This also happens at each start. Has no effect if the sandbox
        has no method `sweep`."""
        sweep = getattr(self._sessions().config.sandbox, "sweep", None)
        return SweptFolders() if sweep is None else await sweep(self._is_gone)

    async def _is_gone(self, scope: Scope, store: str) -> bool | None:
        """Return whether a session whose deletion has started no longer exists. Return None if it
        belongs to another store."""
        if (scope.tenant, store) != (self.tenant, self.store.info().location):
            return None
        return await self.store.row(key(scope.session, "main", scope.tenant)) is None

    async def _sweep(self) -> None:
        try:
            swept = await self.sweep_folders()
        except (HoldfastError, OSError) as error:  # the next start tries again
            self._logs.log.warning("folders_not_swept", category="sandbox", problem=str(error))
            return
        for left in swept.remains:
            self._logs.log.warning("folder_remains", category="sandbox", problem=left.what)

    @property
    def store(self) -> Store:
        return self._sessions().store

    @property
    def manifest(self) -> dict[str, Any]:
        """The agent's declaration as plain values."""
        return self.agent.manifest

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(event, session id, value)` for events of sessions in this process:
        `session.created`, `session.opened`, `session.deleted`, `thread.deleted`, `sessions.closed`,
        and `session.event` with each event of the open sessions. Exceptions of the listener are
        logged. Returns a function that unsubscribes it."""
        self._check_open()
        return self._notices.subscribe(listener)

    def _sessions(self) -> OpenSessions:
        """Return the live sessions. Raises `HarnessClosed` if the harness was not started."""
        if self._opened is None:
            raise HarnessClosed(
                what="the harness was not started with `async with` or `start`, so it"
            )
        self._check_loop()
        return self._opened

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
        """Return the live session with this id. It is opened or created if necessary; without an
        id, a new session is created. Concurrent calls return the same object. `open` never creates
        a session, and `get` never opens one."""
        check_entries("metadata", metadata)
        if isinstance(labels, str):
            problem, remedy = "is a str", "pass a list of labels"
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
        return (await self._sessions().get_or_create(key(id, thread, self.tenant), created)).session

    async def open(self, id: str, thread: str = "main") -> Session:
        """Return the session with this id, opened from the store if it is not live in this process.
        Raises `SessionNotFound` if the store does not have it."""
        id = _named(id)
        await self.start()
        return (await self._sessions().open(id, thread)).session

    async def adopt(self, id: str, *, actor: str | None = None) -> Session:
        """Take over a session that was written by the adapter of another SDK, and open it: from now
        on this agent continues it. Messages that the SDK left unanswered stay in the conversation,
        but get no answer before the next message is sent. Has no effect on a session that already
        belongs to this agent."""
        id = _named(id)
        await self.start()
        await Sessions(self.store, tenant=self.tenant).adopt(id, self.agent.key, actor=actor)
        return await self.open(id)

    def get(self, id: str, thread: str = "main") -> Session | None:
        """Return the session if it is live in this process, otherwise None. Does no I/O: use `await
        harness.open(id)` to open a session from the store."""
        where = key(_named(id), thread, self.tenant)
        core = self._opened.sessions.get(where) if self._opened is not None else None
        return core.session if core is not None else None

    async def list(
        self,
        *,
        active: bool = False,
        cursor: str | None = None,
        limit: int = 50,
        **filters: Unpack[AgentFilters],
    ) -> Page[Row]:
        """Return the sessions of this agent that match all filters, most recently active first.
        `active` lists only the sessions that are live in this process."""
        self._check_open()
        check_filters(AgentFilters, filters, "active", "cursor", "limit")
        if active:
            here = [where for where in self._sessions().sessions if where.thread == "main"]
            rows = [await self.store.row(where) for where in here]
            return Page(items=[row for row in rows if row is not None], cursor=None)
        filters.setdefault("agent", self.agent.key)
        query = Query(tenant=self.tenant, **filters)
        limit = max(1, min(limit, 100))
        return await self.store.find(query, cursor=cursor, limit=limit)

    async def delete(self, id: str) -> Receipt:
        """Abort the active run of a session, and delete all its data, including its sandbox. The
        receipt lists data that could not be removed. Raises `DeletionRefused` if the session is
        under legal hold, and `InvalidValue` if it belongs to another agent."""
        self._check_open()
        id = _named(id)
        scope = Scope(self.tenant, id)
        if (row := await self.store.row(key(id, "main", self.tenant))) is not None:
            self._sessions().check_agent(row)
            check_held(row)
        await self.close(id, grace=0.0, reason="delete")
        sandbox = self._sessions().config.sandbox
        await mark_for_removal(sandbox, scope, self.store.info().location)
        receipt = await self.store.delete(scope)
        left = await clear_sandbox(sandbox, scope)
        receipt = replace(receipt, remains=(*receipt.remains, *left))
        if receipt.removed.get("logs"):
            self._notices.notify("session.deleted", id)
        return receipt

    async def delete_thread(self, id: str, thread: str, *, grace: float = GRACE) -> Receipt:
        """Delete one thread; its forks keep the shared events. An active run, in any process, is
        aborted first; the call waits at most `grace` seconds for it to end."""
        self._check_open()
        return await self._sessions().delete_thread(_named(id), thread, grace=grace)

    async def close(self, id: str, *, grace: float = GRACE, reason: Reason = "close") -> bool:
        """Close a live session. Its run stops at a safe point, after `grace` seconds at the latest,
        and can be resumed by another process. Returns False if the session was not live."""
        return await self._sessions().close(_named(id), grace=grace, reason=reason)

    def drives(self, id: str) -> bool:
        """Return whether this process drives any thread of a session, including threads of
        sub-agents."""
        return self._opened is not None and self._opened.drivers.busy(_named(id))

    async def evict(self, idle: float = IDLE) -> tuple[str, ...]:
        """Close the live sessions that have no driver in this process and no subscribers, and that
        were not used for `idle` seconds. Returns their ids. Nothing is lost: the next access opens
        them again."""
        self._check_open()
        check_seconds("idle", idle)
        return await evict(self._sessions(), idle)

    async def close_all(self) -> None:
        """Close all live sessions; the harness stays usable."""
        await self._sessions().close_all()

    # The methods of a session, by its id

    async def send(
        self,
        id: str | None,
        content: Content,
        *,
        output_type: Any = None,
        **options: Unpack[SendOptions],
    ) -> Result:
        """Call `session.send` on the session with this id, which is opened or created if
        necessary."""
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
    ) -> MessageStream:
        """Call `session.stream` on the session with this id, which is opened or created if
        necessary."""
        check_options(options)
        session = await self.get_or_create(id)
        return session.stream(content, output_type=output_type, **options)

    async def approve(self, id: str, item: str | None = None, **options: Any) -> Decision:
        """Approve a pending item of any session, even if the session is not live in this
        process."""
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
        where, item = await thread_of_item(self.store, key(_named(id), thread, self.tenant), item)
        if arguments is not None:
            answer = {"arguments": dict(arguments)}
        tools = tools_named(self.agent)
        made = await settle_pending(
            self.store, where, item, outcome, answer=answer, tools=tools, **options
        )
        live = self._sessions().logs.get(where)
        if live is not None and live.failure is None:
            await live.reach(made.seq)
            self._sessions().wake(live)
        else:
            await self._sessions().drivers.look()
        return made

    async def pending(
        self, *, cursor: str | None = None, limit: int = 50, **filters: Unpack[PendingFilters]
    ) -> Page[Pending]:
        """Return the pending items of all sessions that match all filters, oldest first."""
        self._check_open()
        check_filters(PendingFilters, filters, "cursor", "limit")
        query = PendingQuery(tenant=self.tenant, **filters)
        return await self.store.pending(query, cursor=cursor, limit=limit)


class TenantHarness(Harness):
    """The harness of one of the tenants of a `Worker`, which searches for due sessions and handles
    signals for all of them."""

    def share(self, slots: Slots) -> None:
        """Share the slots of recovered sessions with the other tenants of a worker."""
        self._recovery = "leave"
        self._slots = slots

    def _handle_signals(self) -> None:
        pass


def sessions_of(harness: Harness) -> OpenSessions:
    """Return the live sessions of a harness, for modules of this package that need more than its
    public methods. Raises `HarnessClosed` if the harness was not started."""
    return harness._sessions()


def _named(id: Any) -> str:
    """Return the id of a session without surrounding whitespace. Raises `InvalidValue` if it is not
    a str."""
    if not isinstance(id, str):
        problem, remedy = f"is {type(id).__name__}", "pass a str, or None for a new session"
        raise InvalidValue(field="id", problem=problem, remedy=remedy)
    return id.strip()

"""The harness: hosts the sessions of an agent on a store, drives those that have something to
do, and takes up what other processes left."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Unpack

from .. import events as ev
from ..catalog import Page, Pending, PendingQuery, Query, Row
from ..codec import typed
from ..errors import (
    HarnessClosed,
    HeadMoved,
    HoldfastError,
    InvalidAgent,
    InvalidValue,
    SessionNotFound,
)
from ..events import Event, Key, NewEvent, Scope, key, new_id
from ..models import registry
from ..models.port import Model, Provider
from ..store import Receipt, Store
from ..stores import connect
from . import settings
from .agent import Agent, faults
from .children import holder
from .config import PARALLEL, Config, Price
from .drivers import Drivers, handed_over
from .faults import CODES, ErrorPolicy
from .inbox import Decision, settle
from .inputs import Content, SendOptions, check_entries, check_options
from .live import Live
from .lives import Lives
from .logs import LogConfig, Logs
from .output import output_tool
from .prices import price
from .results import Result
from .sandbox import NoSandbox
from .sandbox.port import Reason, Sandbox
from .session import Session, Stream
from .sources import ToolSource, gather, release
from .spans import tracing
from .steps import Bounds, RunLimits
from .subagents import family
from .threads import check_deletable, end_run

TTL = 15.0  # seconds that a lease lasts
GRACE = 10.0  # seconds that runs get to reach a safe point when the harness closes


class Served(NamedTuple):
    """What a harness has once it is started."""

    config: Config
    lives: Lives
    drivers: Drivers
    sources: list[ToolSource]


class Harness:
    """Serves one agent. Use it with `async with`, or call `start` and `aclose`.

    Everything that can be wrong with the agent and the settings is found here, at once.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        default_model: str | Model | None = None,
        providers: Sequence[Provider | Model] = (),
        fallback_models: Sequence[str] = (),
        storage: str | Store = "memory:",
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
        price: Price | None = price,
        trace: bool | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        listed = isinstance(providers, (list, tuple))
        sources: list[Provider | Model] = [*providers] if listed else []
        if default_model is not None and not isinstance(default_model, str):
            sources.append(default_model)
            default_model = getattr(default_model, "ref", None)
        wrong = settings.faults(given)
        named = [] if wrong else [*fallback_models, *_summariser(summarise)]
        _check(agent, sources, [default_model, *named], wrong)
        self.agent, self.tenant, self.storage = agent, tenant, storage
        self.recovery = recovery
        self.logs: Logs = (logging or LogConfig()).open()
        self._settings = {
            "models": registry.Models(sources),
            "default_model": default_model,
            "fallbacks": tuple(fallback_models),
            "sandbox": sandbox or NoSandbox(),
            "resources": resources,
            "policy": error_policy or ErrorPolicy(),
            "bounds": Bounds(
                limits=limits or RunLimits(),
                tokens=window_tokens,
                turns=window_turns,
                crashes=crashes,
                recovery="close" if recovery == "close" else "resume",
            ),
            "tracing": tracing(trace),
            "ttl": ttl,
            "parallel": parallel_tools,
            "price": price,
            "summarise": summarise,
        }
        self._served: Served | None = None
        self._starting = asyncio.Lock()
        self._sessions: dict[Key, Session] = {}
        self._opening: dict[Key, asyncio.Task[Session]] = {}
        self._listeners: list[Callable[[str, str, Any], Any]] = []
        self._closing: set[asyncio.Task[bool]] = set()
        self._leaving: dict[str, asyncio.Future[None]] = {}  # sessions that are being closed
        self._closed = self._ended = False

    # Opening and closing

    async def __aenter__(self) -> Harness:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self) -> Harness:
        """Connect, and take up what was left undone."""
        async with self._starting:
            if self._closed:
                raise HarnessClosed(what="the harness")
            if self._served is None:
                self._served = await self._serve()
                if self.recovery != "leave":
                    await self._served.drivers.start()
        return self

    async def _serve(self) -> Served:
        store = await connect(self.storage) if isinstance(self.storage, str) else self.storage
        self.agent, sources = await gather(self.agent)
        config = Config(
            agent=self.agent,
            store=store,
            log=self.logs.log,
            redactor=self.logs.redactor,
            owner=f"{socket.gethostname()}:{os.getpid()}:{new_id()[-12:]}",
            **self._settings,
        )
        lives = Lives(store, self._happened)
        drivers = Drivers(config, self.tenant, lives, self._kept)
        config.nudge = drivers.nudge
        return Served(config, lives, drivers, sources)

    async def aclose(self, grace: float = GRACE) -> None:
        """Stop taking work, let runs reach a safe point within `grace` seconds, hand over what
        is left, and close. Nothing is written afterwards. Twice is fine."""
        if self._closed:
            return
        self._closed = True
        async with self._starting:  # what is being started is closed as well
            served = self._served
        if served is not None:
            await served.drivers.aclose(grace)
            await self.close_all()
            await asyncio.gather(*self._closing, return_exceptions=True)
            await served.lives.aclose()
            await release(served.sources)
            await served.config.models.aclose()
            if isinstance(self.storage, str):
                await served.config.store.aclose()
        await self.logs.aclose()
        self._ended = True

    def _check_open(self) -> None:
        if self._closed:
            raise HarnessClosed(what="the harness")

    @property
    def served(self) -> Served:
        if self._served is None:
            raise HarnessClosed(what="the harness was not started: use `async with`, or it")
        return self._served

    @property
    def config(self) -> Config:
        return self.served.config

    @property
    def store(self) -> Store:
        return self.served.config.store

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
        All who ask at once get the same object."""
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
        return await self._live(key(id, thread, self.tenant), created)

    async def open(self, id: str, thread: str = "main") -> Session:
        """The live session of a thread that is there; `SessionNotFound` where it is not."""
        return await self._live(key(_named(id), thread, self.tenant), None)

    async def _live(self, where: Key, created: ev.SessionCreated | None) -> Session:
        self._check_open()
        await self.start()
        while (leaving := self._leaving.get(where.session)) is not None:
            await asyncio.wait({leaving})
        known = self._sessions.get(where)
        if known is not None and known.live.failure is None:
            return known
        opening = self._opening.get(where)
        if opening is None:
            opening = self._opening[where] = asyncio.create_task(self._open(where, created))
            opening.add_done_callback(lambda _: self._opening.pop(where, None))
        return await asyncio.shield(opening)

    async def _open(self, where: Key, created: ev.SessionCreated | None) -> Session:
        main = key(where.session, "main", self.tenant)
        row = await self.store.row(main)
        if created is None and await self.store.row(where) is None:
            raise SessionNotFound(tenant=self.tenant, session=where.session, thread=where.thread)
        if row is None:
            await self._begin(main, created or ev.SessionCreated(agent=self.agent.key))
            self.tell("session.created", where.session)
        elif row.agent not in (None, self.agent.key):
            raise InvalidValue(
                field="id",
                problem=f"session {where.session!r} is agent {row.agent!r}'s",
                remedy=f"serve it with that agent, or take another id for {self.agent.key!r}",
            )
        if where != main and await self.store.row(where) is None:
            await self._begin(where, ev.ThreadCreated(agent=self.agent.key, parent="main"))
        shared = await self.served.lives.open(main)
        session = Session(self, await self.served.lives.open(where), shared)
        self._sessions[where] = session
        self.tell("session.opened", where.session)
        if session.live.state.queue or session.live.state.active is not None:
            self.wake(session.live)
        return session

    async def _begin(self, where: Key, created: ev.Payload) -> None:
        kind = "session.created" if isinstance(created, ev.SessionCreated) else "thread.created"
        events = [NewEvent.of(kind, created)]
        if kind == "session.created" and (start := self.agent.initial_state()):
            events.append(NewEvent.of("state.changed", ev.StateChanged(set=start)))
        with contextlib.suppress(HeadMoved):  # another process was first
            await self.store.append(where, events, expected=0, create=True)

    def get(self, id: str, thread: str = "main") -> Session | None:
        """The session if it is live here; no I/O."""
        return self._sessions.get(key(_named(id), thread, self.tenant))

    async def list(
        self, *, active: bool = False, cursor: str | None = None, limit: int = 50, **filters: Any
    ) -> Page[Row]:
        """Sessions of this agent, the most recently active first; `active`: those live here."""
        self._check_open()
        if active:
            rows = [await self.store.row(k) for k in self._sessions if k.thread == "main"]
            return Page(items=[row for row in rows if row is not None], cursor=None)
        filters.setdefault("agent", self.agent.key)
        query = Query(tenant=self.tenant, **filters)
        limit = max(1, min(limit, 100))
        return await self.store.find(query, cursor=cursor, limit=limit)

    async def delete(self, id: str) -> Receipt:
        """Stop what is going on in a session, and remove all of it, its sandbox too."""
        self._check_open()
        id = _named(id)
        scope = Scope(self.tenant, id)
        await self.close(id, grace=0.0, reason="delete")
        receipt = await self.store.delete(scope)
        await self.config.sandbox.destroy(scope)
        if receipt.removed.get("logs"):
            self.tell("session.deleted", id)
        return receipt

    async def delete_thread(self, id: str, thread: str, *, grace: float = GRACE) -> Receipt:
        """Remove one thread; its forks stay whole. A run that is going there, whichever process
        drives it, is aborted first, and waited for `grace` seconds at most."""
        self._check_open()
        id = _named(id)
        where = key(id, thread, self.tenant)
        await check_deletable(self.store, where, family(self.agent))
        live = await self.served.lives.open(where)
        await end_run(live, self.wake, grace)
        await self.served.drivers.stop([where], 0.0)
        receipt = await self.store.delete(where)
        if (session := self._sessions.pop(where, None)) is not None:
            session.closed = True
        await self.served.lives.close(where)
        if not receipt.removed.get("logs"):
            raise SessionNotFound(tenant=self.tenant, session=id, thread=thread)
        self.tell("thread.deleted", id, thread)
        return receipt

    async def close(self, id: str, *, grace: float = GRACE, reason: Reason = "close") -> bool:
        """Forget a live session; its run is handed over at a safe point, at the latest after
        `grace` seconds. False if it was not live."""
        if self._ended:
            raise HarnessClosed(what="the harness")
        id = _named(id)
        while (leaving := self._leaving.get(id)) is not None:
            await asyncio.wait({leaving})
        leaving = self._leaving[id] = asyncio.get_running_loop().create_future()
        try:
            return await self._close(id, grace, reason)
        finally:
            del self._leaving[id]
            leaving.set_result(None)

    async def _close(self, id: str, grace: float, reason: Reason) -> bool:
        if opening := [task for where, task in self._opening.items() if where.session == id]:
            await asyncio.wait(opening)
        lives, drivers = self.served.lives, self.served.drivers
        mine = [where for where in lives if where.session == id]
        await drivers.stop(mine, grace)
        found = False
        for where in mine:
            session = self._sessions.pop(where, None)
            if session is not None:
                session.closed = found = True
            await lives.close(where)
        place = self.config.places.pop(key(id, "main", self.tenant), None)
        if place is not None:
            await place.close(reason)
        return found

    async def close_all(self) -> None:
        """Forget all live sessions; the harness stays usable."""
        if self._ended:
            raise HarnessClosed(what="the harness")
        for id in {where.session for where in self.served.lives}:
            await self.close(id)
        self.tell("sessions.closed", None)

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
        made = await settle(self.store, where, item, outcome, answer=answer, **options)
        live = self.served.lives.get(where)
        if live is not None:
            await live.reach(made.seq)
            self.wake(live)
        else:
            await self.served.drivers.look()
        return made

    async def pending(
        self, *, cursor: str | None = None, limit: int = 50, **filters: Any
    ) -> Page[Pending]:
        """What waits for a person, in all sessions, oldest first."""
        self._check_open()
        query = PendingQuery(tenant=self.tenant, **filters)
        return await self.store.pending(query, cursor=cursor, limit=limit)

    def subscribe(self, listener: Callable[[str, str, Any], Any]) -> Callable[[], None]:
        """Call `listener(event, session id, value)` for what happens to sessions here:
        `session.created`, `session.opened`, `session.deleted`, `thread.deleted`,
        `sessions.closed`, and
        `session.event` with each event of those that are open. What it raises is logged.
        Returns what ends it."""
        self._check_open()
        function: Any = listener
        waits = inspect.iscoroutinefunction
        if not callable(function) or waits(function) or waits(type(function).__call__):
            problem = "is async" if callable(function) else f"is {type(function).__name__}"
            remedy = "give a plain function; it may start a task"
            raise InvalidValue(field="listener", problem=problem, remedy=remedy)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: str, id: str | None, value: Any = None) -> None:
        for listener in [*self._listeners]:
            try:
                listener(event, id or "", value)
            except Exception as error:
                self.logs.log.error("listener_failed", category="session", error=error)

    @property
    def manifest(self) -> dict[str, Any]:
        """The agent, described."""
        return self.agent.manifest

    # Driving

    def wake(self, live: Live) -> None:
        """See to it that somebody looks at this log."""
        self.served.drivers.wake(live)

    def _kept(self, where: Key) -> bool:
        """Whether a log stays open once it is driven: as long as its session is open here."""
        return any(known.session == where.session for known in (*self._sessions, *self._opening))

    def _happened(self, where: Key, event: Event) -> None:
        if self._listeners:
            self.tell("session.event", where.session, event)
        live = self.served.lives.get(where)
        if live is not None and not live.driven and handed_over(event):
            self.wake(live)
        if self.config.policy.close_session_on_fatal and _fatal(event):
            task = asyncio.create_task(self.close(where.session))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _summariser(summarise: Any) -> list[str]:
    """The model that summarises, if one is named."""
    return [summarise] if isinstance(summarise, str) and "/" in summarise else []


def _check(
    agent: Any, sources: Sequence[Any], refs: Sequence[str | None], wrong: Sequence[str] = ()
) -> None:
    """Refuse an agent, models or settings that cannot work; every fault is listed."""
    if not isinstance(agent, Agent):
        problem = f"is {type(agent).__name__}"
        raise InvalidValue(field="agent", problem=problem, remedy="pass an Agent")
    found = [*faults(agent)]
    for each in _family(agent, found):
        found.extend(_types(each))
    found.extend(registry.faults(sources))
    found.extend(wrong)
    wanted = [*refs, *(ref for each in _family(agent, found) for ref in _models(each))]
    if not found:
        models = registry.Models(sources)
        for ref in dict.fromkeys(filter(None, wanted)):
            try:
                models.check(ref)
            except HoldfastError as error:
                found.append(str(error))
        if not any((refs[0], agent.model)) and not all(mode.model for mode in agent.modes):
            found.append("there is no model: give the harness a default_model")
    if found:
        raise InvalidAgent(agent=agent.key, faults=found)


def _family(agent: Agent, found: Sequence[str]) -> list[Agent]:
    """The agent, and if nothing is wrong with them, those that work for it."""
    return [agent] if found else [*family(agent).values()]


def _models(agent: Agent) -> Iterable[str | None]:
    yield agent.model
    yield from (mode.model for mode in agent.modes)


def _types(agent: Agent) -> Iterable[str]:
    """What is wrong with the types that an agent declares."""
    answer = {} if agent.output_type is None else {"the output type": agent.output_type}
    for what, kind in {**answer, **{f"event {k!r}": t for k, t in agent.events.items()}}.items():
        try:
            output_tool(kind)
        except HoldfastError as error:
            yield f"{what}: {error}"


def _named(id: Any) -> str:
    """The id of a session without the blanks around it."""
    if not isinstance(id, str):
        problem, remedy = f"is {type(id).__name__}", "pass a str, or None for a new session"
        raise InvalidValue(field="id", problem=problem, remedy=remedy)
    return id.strip()


def _fatal(event: Event) -> bool:
    """Whether a run ended with something that will not pass."""
    ended = typed(event) if event.kind == "run.finished" else None
    if not isinstance(ended, ev.RunFinished) or ended.status != "failed":
        return False
    kind = CODES.get(ended.code or "run_failed")
    return kind is not None and kind.severity in ("error", "fatal")

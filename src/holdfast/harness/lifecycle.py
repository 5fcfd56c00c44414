"""What a harness is set to, and its life: it starts, it serves, it ends."""

from __future__ import annotations

import asyncio
import os
import socket
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal, Self

from ..errors import HarnessClosed, HoldfastError
from ..log.events import Scope, key, new_id
from ..models.port import Model, Provider
from ..stores import connect
from ..stores.event_loop import OwnLoop
from ..stores.port import Store
from ..values.options import RunLimits
from .agents.agent import Agent
from .agents.config import PARALLEL, RECOVERING, Config, Price
from .agents.sources import ToolSource, gather, release
from .agents.subagents import models_of
from .faults import ErrorPolicy
from .listeners import Listener, Notices
from .live.log import Live
from .open_sessions import GRACE, Opened
from .prices import price
from .sandbox.port import Sandbox
from .sandbox.removal import Swept
from .setup import prepare
from .telemetry.logs import LogConfig, Logs
from .workers.signals import ending, told

TTL = 15.0  # seconds that a lease lasts


class Serving:
    """An agent on a store, between its start and its end."""

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
        trace: bool | None = None,
        storage: str | Store | None = None,
    ) -> None:
        if storage is not None:  # the name of `store` before 0.2
            warnings.warn(
                "Harness(storage=…) is now Harness(store=…)", DeprecationWarning, stacklevel=2
            )
            store = storage
        self._settings = prepare(locals())
        self.agent, self.tenant, self._source = agent, tenant, store
        self.recovery = recovery
        self.logs: Logs = (logging or LogConfig()).open()
        self._notices = Notices(self.logs.log)
        self._opened: Opened | None = None
        self._sources: list[ToolSource] = []
        self._starting = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._closed = False
        self._own: OwnLoop | None = None
        self._signals = ExitStack()

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
        """Connect, and take up what was left undone."""
        if self._opened is None and not self._starting.locked():
            self._own = OwnLoop("the harness")
        self._check_loop()
        if self._opened is not None and not (self._closed or self._starting.locked()):
            return self
        async with self._starting:
            self._check_open()
            if self._opened is None:
                self._opened = await self._open()
                self._sweeping = asyncio.create_task(self._sweep(), name="sweep folders")
                self._signals.enter_context(told(self.end_subscriptions, ending()))
                if self.recovery != "leave":
                    await self._opened.drivers.start()
        return self

    async def _open(self) -> Opened:
        store = await connect(self._source) if isinstance(self._source, str) else self._source
        try:
            self.agent, self._sources = await gather(self.agent)
        except BaseException:
            if isinstance(self._source, str):
                await store.aclose()
            raise
        config = Config(
            agent=self.agent,
            store=store,
            log=self.logs.log,
            redactor=self.logs.redactor,
            owner=f"{socket.gethostname()}:{os.getpid()}:{new_id()[-12:]}",
            **self._settings,
        )
        return Opened(config, self.tenant, self._notices)

    async def aclose(self, grace: float = GRACE) -> None:
        """Stop taking work, let runs reach a safe point within `grace` seconds, hand over what
        is left, and close. Nothing is written afterwards. Twice is fine; whoever stops waiting
        for it does not stop it."""
        self._check_loop()
        self._closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace), name="close")
        await asyncio.shield(self._closing)

    async def _close(self, grace: float) -> None:
        async with self._starting:  # what is being started is closed as well
            opened = self._opened
        self._signals.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        if opened is not None:
            await opened.aclose(grace)
            await release(self._sources)
            await opened.config.models.aclose()
            if isinstance(self._source, str):
                await opened.store.aclose()
        await self.logs.aclose()

    def end_subscriptions(self) -> None:
        """End `session.subscribe` and `session.display.changes` for all who read them, and for
        whoever asks later; runs go on, and so do `send` and `stream`. Done when a process that
        handles SIGTERM is told to end: a web server waits for its requests before it closes the
        harness."""
        if self._opened is not None:
            self._opened.end_subscriptions()

    def _check_open(self) -> None:
        if self._closed:
            raise HarnessClosed(what="the harness")
        self._check_loop()

    def _check_loop(self) -> None:
        """Refuse the use on another event loop than the one that the harness was started on."""
        if self._own is not None:
            self._own.check()

    @property
    def limits(self) -> RunLimits:
        """What a run may use, unless its message or its mode says otherwise."""
        limits: RunLimits = self._settings["bounds"].limits
        return limits

    @property
    def named_models(self) -> frozenset[str]:
        """The models that the agent, its modes, its sub-agents and this harness name."""
        given = self._settings
        refs = (given["default_model"], *given["fallbacks"], *models_of(self.agent))
        return frozenset(filter(None, refs))

    def offer_models(self, refs: Collection[str]) -> None:
        """Let a model choose only among these for its sub-agents, and clients of a server for
        their messages: references, `provider/*` or `*`. To be called before the start. What the
        program itself chooses is not limited."""
        self._settings["offered"] = frozenset(refs)

    async def sweep_folders(self) -> Swept:
        """Remove the work folders that deleted sessions have left, as a process that was killed
        or a file that could not be removed leaves them; done at each start too. Nothing for a
        sandbox that has no `sweep`."""
        sweep = getattr(self.config.sandbox, "sweep", None)
        return Swept() if sweep is None else await sweep(self._is_gone)

    async def _is_gone(self, scope: Scope, store: str) -> bool | None:
        """Whether a session is gone that was being deleted; None for one of another store."""
        if (scope.tenant, store) != (self.tenant, self.store.info().location):
            return None
        return await self.store.row(key(scope.session, "main", scope.tenant)) is None

    async def _sweep(self) -> None:
        try:
            swept = await self.sweep_folders()
        except (HoldfastError, OSError) as error:  # the next start tries again
            self.logs.log.warning("folders_not_swept", category="sandbox", problem=str(error))
            return
        for left in swept.remains:
            self.logs.log.warning("folder_remains", category="sandbox", problem=left.what)

    @property
    def opened(self) -> Opened:
        """The live sessions, once the harness is started."""
        if self._opened is None:
            raise HarnessClosed(what="the harness was not started: use `async with`, or it")
        self._check_loop()
        return self._opened

    @property
    def config(self) -> Config:
        return self.opened.config

    @property
    def store(self) -> Store:
        return self.opened.store

    @property
    def manifest(self) -> dict[str, Any]:
        """The agent, described."""
        return self.agent.manifest

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(event, session id, value)` for what happens to sessions here:
        `session.created`, `session.opened`, `session.deleted`, `thread.deleted`,
        `sessions.closed`, and
        `session.event` with each event of those that are open. What it raises is logged.
        Returns what ends it."""
        self._check_open()
        return self._notices.subscribe(listener)

    def wake(self, live: Live) -> None:
        """See to it that somebody looks at this log."""
        self.opened.wake(live)


# Python names this function where a setting is unknown, and programs know the class as Harness.
Serving.__init__.__qualname__ = "Harness.__init__"

"""Runs the app under uvicorn, in one or several processes, until a signal ends it. A process hands
over its runs before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import functools
import gc
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar
from msgspec import Struct
from msgspec.structs import replace
from uvicorn.config import LOGGING_CONFIG
from uvicorn.supervisors import Multiprocess

from ..errors import HoldfastError, InvalidSettings
from ..harness import logging_configured
from ..local_token import LocalToken, is_loopback, keep
from ..stores.creation import StoreCreation
from .app import create_app
from .auth.callers import LocalTokenAuth, NoAuth
from .console.no_agents import NoAgents
from .engines import Chosen
from .http.protocol import Protocol
from .preflight import ServerStarted, known_callers, tls_faults
from .settings import KEYS, Settings, read

LOGGER = logging.getLogger("holdfast.server")
FACTORY = "holdfast.server.processes:app"
VARIABLE = "HOLDFAST_SERVE"  # passes the plan to the workers
SECRET = "env:HOLDFAST_SECRET"  # noqa: S105 - the variable, not the secret
COLLECTED = (20_000, 20, 10)  # thresholds of the garbage collector
FAILED = 3  # uvicorn's exit code of a worker that is not restarted
INTERRUPTED = 130  # the exit code after SIGINT
MORE = 5  # seconds after the grace period until connections are closed


class ServePlan(Struct, frozen=True, kw_only=True):
    """What to serve (a settings file, or agents and a store), and the address to listen on. `model`
    applies to all agents, or if it was `chosen` by default, only to agents without a model. With
    `tenant`, only the console is served, without agents."""

    config: str | None = None
    agents: dict[str, str] = {}
    store: str | None = None
    auth: str | None = None
    model: str | None = None
    chosen: bool = False
    host: str = "127.0.0.1"
    port: int = 7700
    workers: int = 1
    cert: str | None = None
    key: str | None = None
    grace: float | None = None
    origins: list[str] = []
    sandbox: str | None = None
    tenant: str | None = None

    def settings(self) -> Settings:
        """Return the settings of this plan. Raises `InvalidSettings`, which lists every invalid
        setting. If a local token is used, no caller is accepted before `admit` is called, because
        the port may not be known yet."""
        if self.config is not None:
            settings = Settings.load(Path(self.config))
        elif self.tenant is not None:
            settings = self._console(self.tenant)
        else:
            tables: dict[str, Any] = {"agents": self.agents, "harness": {}}
            if self.model is not None:
                model = Chosen(self.model) if self.chosen else self.model
                tables["harness"]["default_model"] = model
            if self.auth is not None:
                tables["auth"] = {"kind": self.auth}
            if self.auth == "secret":
                tables["auth"]["secret"] = SECRET
            if self.sandbox is not None:
                tables["sandbox"] = {"dir": self.sandbox}
            settings = read(tables)
            settings.stores = self.store or "memory:"
        if self.grace is not None:
            settings.grace = self.grace
        if self.origins:
            settings.origins = self.origins
        if isinstance(settings.auth, LocalTokenAuth):
            settings.auth = settings.auth.taking(secrets.token_urlsafe())
        settings.check()
        self._check(settings)
        return settings

    def _console(self, tenant: str) -> Settings:
        """Return the settings of a console without agents."""
        auth = LocalTokenAuth(tenant=tenant) if self.auth == "local" else KEYS
        return Settings(
            engines={"console": NoAgents()},
            store=self.store,
            auth=auth,
            tenants=[tenant],
            webhooks=False,
        )

    def admit(self, settings: Settings) -> LocalToken | None:
        """Accept callers with the local token, if the settings use one; the token is created if it
        does not exist. Raises `InvalidValue`. Each worker reads the token from its file, so it
        never appears in arguments or environment variables."""
        if not isinstance(settings.auth, LocalTokenAuth):
            return None
        token = keep(self.port, settings.registry().address(settings.default))
        settings.auth = settings.auth.taking(token.token)
        return token

    def _check(self, settings: Settings) -> None:
        faults = []
        if isinstance(settings.auth, (NoAuth, LocalTokenAuth)) and not is_loopback(self.host):
            how = "none" if isinstance(settings.auth, NoAuth) else "local"
            faults.append(
                f"auth '{how}' allows only loopback addresses, got host {self.host!r}: "
                f"use --auth keys"
            )
        faults += tls_faults(self.cert, self.key)
        if self.workers > 1 and settings.default == "memory":
            faults.append(
                "--workers needs a store that processes can share, not memory: pass another --store"
            )
        if self.workers > 1 and settings.envs:
            faults.append(
                "envs cannot be used with several workers, because they are kept in the memory of "
                "one process: serve with --workers 1, or remove `envs`"
            )
        if faults:
            raise InvalidSettings(faults=faults)


def app() -> Litestar:
    """Create the app in a worker process."""
    plan = msgspec.json.decode(os.environ[VARIABLE], type=ServePlan)
    try:
        settings = plan.settings()
        plan.admit(settings)
        made = create_app(settings)
    except HoldfastError as error:  # the parent process has just checked the same
        LOGGER.error("%s", error)
        sys.exit(FAILED)
    end_at_second()
    if plan.workers > 1:
        end_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    collect_rarely()
    return made


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Context manager for starting worker processes. The workers receive Ctrl-C only after `app`
    has set up their signal handling."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """End a worker, as SIGTERM does, when its parent process has ended. Otherwise it would keep
    using the port."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()  # waits on a pipe, without polling
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, name="parent", daemon=True).start()


def end_at_second() -> None:
    """End this process immediately on the second Ctrl-C, as SIGKILL would; other processes resume
    its runs. The first Ctrl-C is handled as before."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        return
    heard = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if heard:
            os._exit(INTERRUPTED)
        heard = True
        before(number, frame)

    signal.signal(signal.SIGINT, hear)


def collect_rarely() -> None:
    """Make garbage collection rare, and exclude all existing objects from it. Use it only in a
    process that does nothing but serve; it saves a third of the time per message."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)


def logs() -> dict[str, Any]:
    """Return the logging configuration: warnings and audit records go to stderr. A program that has
    configured logging itself keeps its configuration."""
    config: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    if not logging_configured(logging.getLogger("holdfast")):
        config["formatters"]["bare"] = {"format": "%(message)s"}
        stderr = {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
        config["handlers"]["bare"] = {**stderr, "formatter": "bare"}
        config["loggers"]["holdfast"] = {"handlers": ["default"], "level": "WARNING"}
        audit = {"handlers": ["bare"], "level": "INFO", "propagate": False}
        config["loggers"]["holdfast.audit"] = audit
    return config


class Server(uvicorn.Server):
    """uvicorn's server, with callbacks that are called when it starts and when it ends."""

    def __init__(
        self, config: uvicorn.Config, begun: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._begun, self._ending = begun, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._begun()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


async def serves(first: Event) -> None:
    """Notify the parent process that this worker accepts requests."""
    first.set()


class WorkerProcesses(Multiprocess):
    """uvicorn's worker processes, with callbacks that run when the first worker serves requests and
    when all workers are about to end. The second Ctrl-C kills them."""

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket.socket],
        begun: Callable[[], None],
        ending: Callable[[], None],
    ) -> None:
        super().__init__(config, sockets)
        # A worker calls `callback_notify` as soon as it serves, and repeatedly after that.
        self._first = multiprocessing.get_context("spawn").Event()
        config.callback_notify = functools.partial(serves, self._first)
        self._begun, self._ending = begun, ending
        self.served = self.interrupted = self.told = False

    def init_processes(self) -> None:
        with starting_workers():
            super().init_processes()

    def keep_subprocess_alive(self) -> None:
        with starting_workers():
            super().keep_subprocess_alive()
        if not self.served and self._first.is_set():
            self.served = True
            self._begun()

    def handle_int(self) -> None:
        self.interrupted = True
        self.handle_term()

    def handle_term(self) -> None:
        self.told = True
        self._ending()
        super().handle_term()

    def join_all(self) -> None:
        while any(process.process.is_alive() for process in self.processes):
            for process in self.processes:
                process.process.join(0.05)
            if signal.SIGINT in self.signal_queue:
                for process in self.processes:
                    process.process.kill()


def bound(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all local addresses of a host, at one port; 0 means any free
    port. Raises `InvalidSettings` if that fails."""
    found: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, *_, at in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            where = (str(at[0]), port or (found[0].getsockname()[1] if found else 0))
            try:
                found.append(socket.create_server(where, family=family))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                absent = error  # such as ::1 without IPv6
        if absent is not None and not found:
            raise absent
    except OSError as error:
        for one in found:
            one.close()
        raise _unbound(error, f"{host}:{port}") from error
    for one in found:
        one.set_inheritable(True)
    return found


def _unbound(error: OSError, where: str) -> InvalidSettings:
    known = error.errno is not None and not isinstance(error, socket.gaierror)
    why = os.strerror(error.errno or 0) if known else error.strerror or str(error)
    remedy = "pass another --host or --port"
    if error.errno == errno.EADDRINUSE:
        remedy = "stop the program that uses the port, or pass another --port"
    return InvalidSettings(faults=[f"cannot listen on {where} ({why}): {remedy}"])


def run(
    plan: ServePlan,
    begun: Callable[[ServerStarted], None] = lambda began: None,
    ending: Callable[[float], None] = lambda grace: None,
    waiting: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal arrives. `begun` is called when the server has started, `ending` with
    the grace period of the runs when a signal has arrived, and `waiting` if the store does not
    respond immediately. Raises `InvalidSettings`, `StoreError` or `MissingExtra` before any port is
    bound."""
    settings = plan.settings()
    with StoreCreation(settings.registry().address(settings.default)):
        known = asyncio.run(known_callers(settings, waiting))
        sockets = bound(plan.host, plan.port)
    passing = plan.port == 0  # the port is not used again by its number
    plan = replace(plan, port=int(sockets[0].getsockname()[1]))
    os.environ[VARIABLE] = msgspec.json.encode(plan).decode()
    token = plan.admit(settings)
    began = ServerStarted(
        port=plan.port,
        kept=settings.default != "memory",
        known=known,
        token=token.token if token is not None else None,
        open=isinstance(settings.auth, NoAuth),
        console=settings.console,
    )
    config = _config(plan, settings)
    calls = (lambda: begun(began), lambda: ending(settings.grace))
    # uvicorn raises the signal again after a clean shutdown, which is a success.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    with contextlib.nullcontext() if token is None else token.serving(plan.host, passing=passing):
        if plan.workers == 1:
            Server(config, *calls).run(sockets)
            return
        workers = WorkerProcesses(config, sockets, *calls)
        workers.run()
    if workers.interrupted:
        raise KeyboardInterrupt
    if not workers.told:
        raise InvalidSettings(faults=["a worker could not start: see its messages above"])


def _config(plan: ServePlan, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        FACTORY,
        factory=True,
        host=plan.host,
        port=plan.port,
        workers=plan.workers,
        ssl_certfile=plan.cert,
        ssl_keyfile=plan.key,
        lifespan="on",
        http=Protocol,
        ws="none",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.grace) + MORE,
        log_level="warning",
        log_config=logs(),
    )

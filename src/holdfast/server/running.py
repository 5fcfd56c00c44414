"""Running the app under uvicorn: in this process, or in several, until a signal ends it. Runs are
handed over before a process goes."""

from __future__ import annotations

import copy
import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar
from msgspec import Struct
from uvicorn.config import LOGGING_CONFIG
from uvicorn.supervisors import Multiprocess

from ..errors import InvalidSettings
from .app import create_app
from .auth import NoAuth, is_loopback
from .refusing import Protocol
from .settings import Settings, read

FACTORY = "holdfast.server.running:app"
VARIABLE = "HOLDFAST_SERVE"  # how a worker is told what to serve
SECRET = "env:HOLDFAST_SECRET"  # noqa: S105 - where it is, not what it is
COLLECTED = (20_000, 20, 10)  # objects, and rounds, between two collections
MORE = 5  # seconds beyond the grace after which connections are cut


class Plan(Struct, frozen=True, kw_only=True):
    """What is served, and where: a file of settings, or agents and a store."""

    config: str | None = None
    agents: dict[str, str] = {}
    store: str | None = None
    auth: str | None = None
    model: str | None = None
    host: str = "127.0.0.1"
    port: int = 7700
    workers: int = 1
    cert: str | None = None
    key: str | None = None
    grace: float | None = None
    origins: list[str] = []
    sandbox: str | None = None

    def settings(self) -> Settings:
        """The settings that this comes to (`InvalidSettings` with every fault)."""
        if self.config is not None:
            settings = Settings.load(Path(self.config))
        else:
            tables: dict[str, Any] = {"agents": self.agents, "harness": {}}
            if self.model is not None:
                tables["harness"]["default_model"] = self.model
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
        settings.check()
        self._check(settings)
        return settings

    def _check(self, settings: Settings) -> None:
        faults = []
        if isinstance(settings.auth, NoAuth) and not is_loopback(self.host):
            faults.append(f"without auth only this machine is served, not {self.host!r}: use keys")
        if (self.cert is None) != (self.key is None):
            faults.append("TLS needs a certificate and its key")
        if self.workers > 1 and settings.default == "memory":
            faults.append("several workers need a store that they share, not memory")
        if faults:
            raise InvalidSettings(faults=faults)


def app() -> Litestar:
    """The app of a worker."""
    plan = msgspec.json.decode(os.environ[VARIABLE], type=Plan)
    made = create_app(plan.settings())
    collect_rarely()
    return made


def collect_rarely() -> None:
    """Have what is there now left alone by the garbage collector, and the rest looked at less
    often: what a process of its own that serves may do. It is a third of the work of a message."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)


def logs() -> dict[str, Any]:
    """How this process writes its log: what went wrong, and audit records if they go there, to
    stderr. A program that has set its own logging up keeps it."""
    config: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    own = [*logging.getLogger().handlers, *logging.getLogger("holdfast").handlers]
    if all(isinstance(handler, logging.NullHandler) for handler in own):
        config["formatters"]["bare"] = {"format": "%(message)s"}
        stderr = {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
        config["handlers"]["bare"] = {**stderr, "formatter": "bare"}
        config["loggers"]["holdfast"] = {"handlers": ["default"], "level": "WARNING"}
        audit = {"handlers": ["bare"], "level": "INFO", "propagate": False}
        config["loggers"]["holdfast.audit"] = audit
    return config


class Server(uvicorn.Server):
    """uvicorn that tells when it has begun to serve."""

    def __init__(self, config: uvicorn.Config, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self._begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._begun()


def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host that this machine has, at one port; 0 is any
    that is free (`InvalidSettings` where that cannot be)."""
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
                absent = error  # such as ::1 where there is no IPv6
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
    remedy = "give a --host and --port of this machine"
    if error.errno == errno.EADDRINUSE:
        remedy = "another server may run there: end it, or give another --port"
    return InvalidSettings(faults=[f"{where} cannot be listened at ({why}): {remedy}"])


def run(plan: Plan, begun: Callable[[int], None] = lambda port: None) -> None:
    """Serve until a signal comes. `begun` is given the port once it is served."""
    settings = plan.settings()  # whatever is wrong is told before anything is bound
    sockets = bound(plan.host, plan.port)
    port = int(sockets[0].getsockname()[1])
    os.environ[VARIABLE] = msgspec.json.encode(plan).decode()
    config = uvicorn.Config(
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
    # uvicorn hands the signal on when all is done: it was heeded, and nothing has failed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    if plan.workers == 1:
        Server(config, lambda: begun(port)).run(sockets)
    else:
        begun(port)  # by the workers, as soon as they are there
        Multiprocess(config, sockets=sockets).run()

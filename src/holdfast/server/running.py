"""Running the app under uvicorn: in this process, or in several, until a signal ends it. Runs are
handed over before a process goes."""

from __future__ import annotations

import copy
import logging
import os
import signal
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
from ..models.scripted import offline
from .app import create_app
from .auth import NoAuth, is_loopback
from .settings import Settings, read

FACTORY = "holdfast.server.running:app"
VARIABLE = "HOLDFAST_SERVE"  # how a worker is told what to serve
SECRET = "env:HOLDFAST_SECRET"  # noqa: S105 - where it is, not what it is
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
            tables: dict[str, Any] = {"agents": self.agents, "harness": {"providers": [offline()]}}
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
    return create_app(plan.settings())


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


def run(plan: Plan, begun: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal comes. `begun` is called once the settings have proved right."""
    settings = plan.settings()  # whatever is wrong is told before anything is bound
    begun()
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
        uvicorn.Server(config).run()
    else:
        Multiprocess(config, sockets=[config.bind_socket()]).run()

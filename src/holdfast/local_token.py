"""The local token: what `holdfast serve` asks for when it is served without keys.

To come from this machine proves nothing: a reverse proxy on it forwards everybody's requests. To
read this user's files does. So the token is a file that only this user can read, one for each
port and store, made by the first server and kept over restarts. A server holds a lock beside it
while it runs, one for each address; a client sends the token only then and there, so that a program
that took the port while no server runs, or has it at another address, is shown nothing.
"""

from __future__ import annotations

import contextlib
import errno
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
except ImportError:  # Windows: whether a server runs cannot be told, and is assumed
    fcntl = None  # type: ignore[assignment]  # the name is tested before each use

HOST = "127.0.0.1"  # where `holdfast serve` listens unless it is told otherwise
TRIED = 0.5  # seconds to connect to an address of this machine
PREFIX = "hl_"
LENGTH = 43  # characters behind the prefix: 256 bits
LETTERS = string.ascii_letters + string.digits
LARGEST = 16_384  # bytes of a token file; more is none of ours
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9]{{{LENGTH}}}")
_FILE = re.compile(r"\d{1,5}-[0-9a-f]{16}\.json")


class LocalToken(Struct, frozen=True, kw_only=True):
    """The token of one port and store. `store` is the store's address, without credentials."""

    token: str
    port: int
    store: str

    def __repr__(self) -> str:
        return f"LocalToken(port={self.port}, store={self.store!r})"

    @property
    def path(self) -> Path:
        """Where it is kept."""
        digest = hashlib.sha256(self.store.encode()).hexdigest()[:16]
        return folder() / f"{self.port}-{digest}.json"

    def served(self, host: str | None = None) -> bool:
        """Whether a server that takes it runs now, at this loopback address or at any; True where
        the platform cannot tell."""
        marks = self.path.parent.glob(self._mark("*").name) if host is None else [self._mark(host)]
        return not fcntl or any(held(str(mark)) for mark in marks)

    @contextlib.contextmanager
    def serving(self, host: str = HOST, *, passing: bool = False) -> Iterator[None]:
        """Serve with it at a loopback address: `served` is true within, and false after it, also
        if this process is killed. What was made for a `passing` port is removed at the end."""
        mark = self._mark(address_of(host))
        with _opened(mark, os.O_RDWR | os.O_CREAT) as file:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_SH)  # waits only for one who asks if it is served
            try:
                yield
            finally:
                if passing:
                    self.path.unlink(missing_ok=True)
                    mark.unlink(missing_ok=True)

    def _mark(self, host: str) -> Path:
        """The file that a server at this address locks: another program may listen at the same
        port of another address."""
        return self.path.with_name(f"{self.path.stem}.{host.replace(':', '_')}.lock")


def state_folder(
    platform: str = sys.platform,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
) -> Path:
    """Where this user's programs keep their state, by the custom of the platform."""
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
    """Where the tokens of this user are."""
    return state_folder() / "tokens"


def address_of(host: str, port: int | None = None) -> str:
    """The loopback address that a host means: of several, with a port, the first that something
    listens on, which is where a client would connect to."""
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


def keep(port: int, store: str) -> LocalToken:
    """The token of a port and store, made if there is none (`InvalidValue` if it cannot be kept,
    or others could have read it). Processes that ask at the same time get the same one."""
    made = LocalToken(token=_random(), port=port, store=store)
    try:
        _make_folder(folder())
        if not made.path.exists():
            _write_once(made)
        return _read(made.path)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidValue(
            field="local token",
            problem=f"it cannot be kept ({why})",
            remedy="set XDG_STATE_HOME to a folder of yours, or use keys (--auth keys)",
        ) from error


def find(port: int | None = None, store: str | None = None) -> list[LocalToken]:
    """The tokens of this user, of this port and store if they are given (`InvalidValue` for a
    file that others could have read or written)."""
    found: list[LocalToken] = []
    for path in _files():
        if port is None or path.name.startswith(f"{port}-"):
            with contextlib.suppress(FileNotFoundError):
                found.append(_read(path))
    there = [one for one in found if store is None or one.store == store]
    return sorted(there, key=lambda one: (one.port, one.store))


def faults() -> list[str]:
    """What is wrong with the token files of this user."""
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
    except (OSError, RuntimeError):  # there is no folder, or no home
        return []


def _random() -> str:
    return PREFIX + "".join(secrets.choice(LETTERS) for _ in range(LENGTH))


def _make_folder(place: Path) -> None:
    """A folder that is its owner's alone."""
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_mode & 0o077 and os.name == "posix":
        place.chmod(0o700)


def _write_once(made: LocalToken) -> None:
    """Put a token in place whole, unless another process was faster."""
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
    """The token in a file, if nobody else could have read or written it."""
    try:
        with _opened(path) as file:
            about = os.fstat(file)
            data = os.read(file, LARGEST)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR):
            raise
        raise _unfit(path, f"cannot be read ({error.strerror})") from error
    if os.name == "posix" and (about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode)):
        raise _unfit(path, "is not a file of this user")
    if os.name == "posix" and about.st_mode & 0o077:
        raise _unfit(path, f"may be read by others (mode {stat.S_IMODE(about.st_mode):04o})")
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
        remedy="delete it, and start the server again: it makes a new one",
    )

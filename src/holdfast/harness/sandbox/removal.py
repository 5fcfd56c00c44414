"""Removes the work folders of sessions. The intent to delete is recorded first, no function is
recursive, and failures are reported and retried later. A folder is renamed before it is removed, so
that a new session with the same id starts with an empty folder. Blocking calls run in a thread."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import SandboxError
from ...log.events import Scope
from ...values.records import Remains
from .port import digest

GONE = ".gone-"  # in the name of a folder that is being removed
INTENT = ".deleting"  # suffix of the file that records that a session is being deleted
WORK_FOLDER = "the work folder"  # the location of remaining data, in receipts
REMEDY = (
    "fix the permissions of these files; the next start of the harness tries again, "
    "and so does holdfast purge --sandbox FOLDER"
)
TRIES = 5  # attempts to remove a folder that other processes write to
PATH = 200  # characters of a path in a message
_GONE = re.compile(r"[0-9a-f]{32}\.gone-\w+")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

IsGone: TypeAlias = Callable[[Scope, str], Awaitable[bool | None]]


class Intent(Struct, frozen=True):
    """The record that a session is being deleted, with the location of its store."""

    tenant: str
    session: str
    store: str
    folder: tuple[int, int] | None = None  # the device and inode of its work folder

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.session)


class SweptFolders(Struct, frozen=True):
    """The result of a sweep: the number of folders removed, and what could not be removed."""

    folders: int = 0
    remains: tuple[Remains, ...] = ()


class Left:
    """Collects the entries of a folder that could not be removed: their number, and the path and
    error of the first."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, path: str, error: OSError) -> None:
        self.count += 1
        name = os.fsencode(path).decode("utf-8", "replace")
        self.first = self.first or f"{name!r}: {error.strerror}"

    def check(self) -> None:
        """Raise `SandboxError` if anything could not be removed."""
        if self.count:
            entries = "entry" if self.count == 1 else "entries"
            raise SandboxError(
                problem=f"cannot remove {self.count} {entries} of a folder ({self.first})"
            )


# Removal of one folder and its contents


def clear(opened: int, left: Left) -> None:
    """Remove everything in an open folder. Subfolders are moved to the top level before they are
    emptied, so that neither the stack nor the number of open files grows with depth, and mounted
    file systems are not entered."""
    names: dict[str, str] = {}  # the original path of each folder that was moved to the top
    while _pass(opened, names, left):
        left.count, left.first = 0, ""  # the next pass may remove more


def _pass(top: int, names: dict[str, str], left: Left) -> int:
    """Go once over the folder and its subfolders, and remove what can be removed. Returns the
    number of removed entries."""
    went = 0
    for name, is_folder in _entries(top):
        path = names.get(name, name)
        try:
            if is_folder and not _is_removed(name, top):
                went += _empty(top, name, path, names, left)
                went += _is_removed(name, top)
                continue
            if not is_folder:
                os.unlink(name, dir_fd=top)
            went += 1
        except FileNotFoundError:
            pass  # another process removes it too
        except OSError as error:
            left.add(path, error)
    return went


def _is_removed(name: str, above: int) -> bool:
    """Remove a folder if it is empty. Returns whether the folder no longer exists."""
    try:
        os.rmdir(name, dir_fd=above)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(top: int, name: str, path: str, names: dict[str, str], left: Left) -> int:
    """Remove the files of a folder at the top level, and move its subfolders to the top level.
    Returns the number of entries that were removed or moved."""
    went = 0
    _allow(name, top)
    opened = os.open(name, _FOLDER, dir_fd=top)
    try:
        for inner, is_folder in _entries(opened):
            below = f"{path}/{inner}" if len(path) < PATH else path
            try:
                if is_folder and not _is_removed(inner, opened):
                    _allow(inner, opened)
                    moved = f".{secrets.token_hex(8)}"
                    os.rename(inner, moved, src_dir_fd=opened, dst_dir_fd=top)
                    names[moved] = below
                elif not is_folder:
                    os.unlink(inner, dir_fd=opened)
                went += 1
            except FileNotFoundError:
                pass
            except OSError as error:
                left.add(below, error)
    finally:
        os.close(opened)
    return went


def _entries(opened: int) -> list[tuple[str, bool]]:
    with os.scandir(opened) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]


def _allow(name: str, opened: int) -> None:
    """Give the owner full access to a folder. A folder of another user is not changed."""
    with suppress(OSError):
        found = os.stat(name, dir_fd=opened, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o700 != 0o700:
            _open_to_owner(name, opened)


def _open_to_owner(name: str, above: int) -> None:
    """Give the owner full access to the folder itself. Does not follow a link that may have
    replaced it."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, 0o700, dir_fd=above, follow_symlinks=False)
        return
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{folder}", 0o700)
    finally:
        os.close(folder)


def remove_tree(name: str, above: int) -> None:
    """Remove a folder and its contents. Raises `SandboxError` if something could not be removed."""
    _allow(name, above)
    opened = os.open(name, _FOLDER, dir_fd=above)
    try:
        for n in range(TRIES):
            left = Left()
            clear(opened, left)
            left.check()
            try:
                os.rmdir(name, dir_fd=above)
                return
            except OSError as error:  # another process added an entry meanwhile
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or n + 1 == TRIES:
                    raise
    finally:
        os.close(opened)


# The folders of sessions


class WorkFolders:
    """The folders of sessions in `dir`, each named by a hash. All methods block."""

    def __init__(self, dir: Path) -> None:
        self._dir = dir

    def of(self, scope: Scope) -> Path:
        return self._dir / digest(scope)[:32]

    def condemn(self, scope: Scope, store: str) -> None:
        """Record that a session is about to be deleted. Has no effect if the session has no
        folder."""
        folder = self.of(scope)
        if (found := _identity(folder)) is None:
            return
        data = msgspec.json.encode(Intent(scope.tenant, scope.session, store, found))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(f"{folder}{INTENT}", flags, 0o600)
        try:
            os.write(file, data)
            os.fsync(file)
        finally:
            os.close(file)

    def spare(self, scope: Scope) -> None:
        """Remove the record that a session is being deleted."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.of(scope)}{INTENT}")

    def remove(self, scope: Scope) -> None:
        """Remove a session's folder, and folders that remain from earlier removals. Raises
        `SandboxError` if something could not be removed. If the deletion was recorded for another
        folder than the current one, the current folder belongs to a new session and stays."""
        folder = self.of(scope)
        intended = _intent(f"{folder}{INTENT}")
        failures: list[SandboxError] = []
        with suppress(FileNotFoundError):
            if intended is None or intended.folder in (None, _identity(folder)):
                failures += self._rename_away(folder)
        for name in self._gone(f"{folder.name}{GONE}"):
            failures += self._remove(name)
        if failures:
            raise failures[0]
        self.spare(scope)

    def _rename_away(self, folder: Path) -> list[SandboxError]:
        """Rename a folder for removal; if it cannot be renamed, remove it in place."""
        try:
            folder.rename(folder.with_name(f"{folder.name}{GONE}{secrets.token_hex(8)}"))
        except FileNotFoundError:
            raise
        except OSError:
            return self._remove(folder.name)
        return []

    def _remove(self, name: str) -> list[SandboxError]:
        """Remove a folder. Returns the error in a list, or an empty list."""
        above = os.open(self._dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_tree(name, above)
        except FileNotFoundError:
            pass  # another process removes it too
        except SandboxError as error:
            return [error]
        except OSError as error:
            return [
                SandboxError(
                    problem=f"cannot remove a sandbox folder of the session: {error.strerror}"
                )
            ]
        finally:
            os.close(above)
        return []

    def _gone(self, prefix: str = "") -> list[str]:
        """Return the names of the folders whose removal was started."""
        return [name for name in self._names() if name.startswith(prefix) and GONE in name]

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._dir))
        except FileNotFoundError:
            return []

    def intents(self) -> list[Intent]:
        """Return the sessions whose deletion was started but not finished."""
        found = []
        for name in self._names():
            if name.endswith(INTENT) and (intent := _intent(self._dir / name)) is not None:
                found.append(intent)
        return found

    def remove_gone(self) -> SweptFolders:
        """Remove all folders whose removal was started, and the records of deletions whose folders
        no longer exist."""
        names = [name for name in self._gone() if _GONE.fullmatch(name)]
        failures = [error for name in names for error in self._remove(name)]
        remains = tuple(dict.fromkeys(remaining(error.problem) for error in failures))
        there = {name[:32] for name in self._names() if not name.endswith(INTENT)}
        for intent in self.intents():
            if self.of(intent.scope).name not in there:
                self.spare(intent.scope)
        return SweptFolders(folders=len(names) - len(failures), remains=remains)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return the device and inode of a folder, or None if it does not exist."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _intent(path: Path | str) -> Intent | None:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Intent)
    except (OSError, msgspec.MsgspecError):
        return None


# Called by the harness. A custom sandbox may have `destroy` only.


async def mark_for_removal(sandbox: Any, scope: Scope, store: str) -> None:
    """Record in a sandbox that a session is about to be deleted, if the sandbox supports that. If
    the record cannot be written, for example to a full disk, the deletion continues."""
    if (write := getattr(sandbox, "condemn", None)) is not None:
        with suppress(OSError):
            await write(scope, store)


async def clear_sandbox(sandbox: Any, scope: Scope) -> tuple[Remains, ...]:
    """Remove the files of a deleted session from a sandbox; return what could not be removed."""
    try:
        await sandbox.destroy(scope)
    except SandboxError as error:
        return (remaining(error.problem),)
    return ()


async def sweep(folders: WorkFolders, destroy: Any, is_gone: IsGone) -> SweptFolders:
    """Finish deletions that were started. `is_gone` returns True for a deleted session, False for
    an existing session, and None if that is unknown. Then remove the folders that remain from
    earlier removals."""
    done = 0
    for intent in await asyncio.to_thread(folders.intents):
        gone = await is_gone(intent.scope, intent.store)
        if gone:
            with suppress(SandboxError):  # reported below if a folder is left
                await destroy(intent.scope)
                done += 1
        elif gone is False:
            await asyncio.to_thread(folders.spare, intent.scope)
    swept = await asyncio.to_thread(folders.remove_gone)
    return SweptFolders(folders=done + swept.folders, remains=swept.remains)


def remaining(problem: str) -> Remains:
    """Return the receipt entry for data in a work folder that could not be removed."""
    return Remains(where=WORK_FOLDER, what=problem, remedy=REMEDY)

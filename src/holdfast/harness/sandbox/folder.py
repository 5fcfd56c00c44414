"""File access inside one folder, with untrusted paths.

A path is resolved one name at a time, starting from the folder; each name is opened relative to the
previously opened folder. The kernel never follows a link: this module reads the link and resolves
its target. So a folder that is replaced by a link in the meantime cannot lead outside. A hard link
to a file outside cannot be detected. All functions block: call them in a thread.
"""

from __future__ import annotations

import builtins
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

from ...errors import NoSuchFile, OutsideSandbox, SandboxError
from .patterns import Pattern
from .port import DirectoryEntry
from .removal import remove_tree

LINKS = 40  # links followed in one path, as on Linux
MAX_DEPTH = 100  # names of a path, and levels of folders in a listing
SKIPPED = frozenset({".git", "node_modules"})
NOT_EMPTY = "Directory not empty: remove its contents first, or remove it with all=true"


class SandboxFolder:
    """File operations inside the folder `path`. `seen_as` is the path of this folder as commands
    see it; absolute paths and absolute links must begin with it."""

    def __init__(self, path: str, *, seen_as: str | None = None) -> None:
        self.path = path
        self.seen_as = (seen_as or path).rstrip("/")

    def read(self, path: str, limit: int | None = None) -> bytes:
        """Return the first `limit` bytes of a file, or all bytes if `limit` is None."""
        with self._walk(path) as walk:
            name = walk.go(path)
            with open(walk.open(name, os.O_RDONLY), "rb") as file:
                return file.read(limit)

    def write(
        self, path: str, data: bytes, *, append: bool = False, executable: bool = False
    ) -> None:
        """Write a file atomically, or append to it."""
        with self._walk(path) as walk:
            name = walk.go(path, make=True)
            if append:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                with open(walk.open(name, flags), "ab") as file:
                    file.write(data)
                    if executable:
                        _allow_running(file.fileno())
            else:
                walk.replace(name, data, executable=executable)

    def list(self, pattern: str, limit: int) -> list[str]:
        """Return the paths of the files that match a pattern, at most `limit`."""
        found: list[str] = []
        with self._walk(pattern) as walk:
            wanted = Pattern("/".join(walk.names_of(pattern)))
            if ".." in wanted.names:
                raise OutsideSandbox(path=pattern)
            skipped = SKIPPED - wanted.names
            for folder, folders, files, _ in os.fwalk(".", dir_fd=walk.at):
                above = folder.split("/")[1:]
                folders[:] = [
                    name
                    for name in sorted(folders)
                    if name not in skipped
                    and len(above) < MAX_DEPTH
                    and wanted.leads_into([*above, name])
                ]
                for name in sorted(files):
                    if len(found) >= limit:
                        return found
                    if wanted.matches([*above, name]):
                        found.append(_text("/".join([*above, name])))
        return found

    def tree(self, path: str, depth: int, limit: int) -> builtins.list[DirectoryEntry]:
        """Return the entries of a folder and its subfolders down to `depth`, sorted by path, at
        most `limit`."""
        found: builtins.list[DirectoryEntry] = []
        with self._walk(path) as walk:
            walk.go(path, into=True)
            for folder, folders, files, opened in os.fwalk(".", dir_fd=walk.at):
                above = [*walk.names, *folder.split("/")[1:]]
                level = len(above) - len(walk.names)
                for name in sorted([*folders, *files])[:limit]:
                    with suppress(FileNotFoundError):  # it was removed meanwhile
                        found.append(_entry("/".join([*above, name]), name, opened))
                folders[:] = sorted(folders) if level + 1 < min(depth, MAX_DEPTH) else []
                if len(found) >= limit:
                    break
        return sorted(found, key=lambda entry: entry.path)[:limit]

    def make(self, path: str) -> None:
        """Create a folder and its parents."""
        with self.enter(path):
            pass

    def move(self, path: str, to: str) -> None:
        """Move a file, a link or a folder. Fails if the target exists."""
        with self._walk(path) as source:
            name = source.go(path, last=True)
            found = os.stat(name, dir_fd=source.at, follow_symlinks=False)
            with self._walk(to) as target:
                new = target.go(to, make=True, last=True)
                if stat.S_ISDIR(found.st_mode):
                    _check_depth(len(target.names) + _levels(name, source.at))
                if "." in (name, new) or _is_there(new, target.at):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                os.rename(name, new, src_dir_fd=source.at, dst_dir_fd=target.at)

    def remove(self, path: str, *, all: bool = False) -> None:
        """Remove a file, a link or a folder. A folder must be empty, unless `all` is set."""
        with self._walk(path) as walk:
            name = walk.go(path, last=True)
            if name == ".":
                raise ValueError("the workspace itself cannot be removed")
            found = os.stat(name, dir_fd=walk.at, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                os.unlink(name, dir_fd=walk.at)
            elif all:
                _remove_all(path, name, walk.at)
            else:
                _remove_empty(name, walk.at)

    @contextmanager
    def enter(self, path: str, *, make: bool = True) -> Iterator[tuple[int, str]]:
        """Open a folder; with `make`, create it if needed. Yields its file descriptor, and its path
        relative to the root folder, without links."""
        with ExitStack() as stack:
            with _sandbox_errors(path):
                walk = stack.enter_context(closing(_Walk(self)))
                walk.go(path, make=make, into=True)
            yield walk.at, "/".join(walk.names)

    @contextmanager
    def _walk(self, path: str) -> Iterator[_Walk]:
        with _sandbox_errors(path), closing(_Walk(self)) as walk:
            yield walk


@contextmanager
def _sandbox_errors(path: str) -> Iterator[None]:
    """Convert errors of the operating system to Holdfast's errors."""
    try:
        yield
    except FileNotFoundError as error:
        raise NoSuchFile(path=path) from error
    except (OSError, ValueError) as error:
        said = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SandboxError(problem=f"{path!r}: {said}", path=path) from error


class _Walk:
    """Resolves a path from the root folder. Keeps every folder on the way open."""

    def __init__(self, folder: SandboxFolder) -> None:
        self._folder = folder
        self._open = [os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        self.names: list[str] = []

    @property
    def at(self) -> int:
        return self._open[-1]

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def names_of(self, path: str) -> list[str]:
        """Return the names of a path below the root. An absolute path must begin with the root."""
        root = self._folder.seen_as
        if path.startswith("/"):
            if path != root and not path.startswith(f"{root}/"):
                raise OutsideSandbox(path=path)
            path = path[len(root) :]
        return [name for name in path.split("/") if name not in ("", ".")]

    def go(self, path: str, *, make: bool = False, into: bool = False, last: bool = False) -> str:
        """Open the folders of a path and return the last name: the name of a file that is not a
        link, or "." if the path is the current folder. `make` creates missing folders. `into` opens
        the last name as a folder too; `last` returns the last name even if it is a link."""
        left = self.names_of(path)[::-1]
        _check_depth(len(left) - 1)
        tries = 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                self._up(path)
            elif last and not left:
                return name
            elif (target := self._link(name)) is not None:
                tries += 1
                if target.startswith("/"):
                    left += self._names_of_link(path, target)[::-1]
                    self._to_root()
                else:
                    left += target.split("/")[::-1]
            elif not left and not into:
                return name
            elif not self._down(name, make=make):
                tries += 1  # it became a link, or was removed
                left.append(name)
            if tries > LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return "."

    def _names_of_link(self, path: str, target: str) -> list[str]:
        try:
            return self.names_of(target)
        except OutsideSandbox:
            raise OutsideSandbox(path=path) from None

    def _up(self, path: str) -> None:
        if not self.names:
            raise OutsideSandbox(path=path)
        self.names.pop()
        os.close(self._open.pop())

    def _to_root(self) -> None:
        while self.names:
            self._up("")

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.at)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _down(self, name: str, *, make: bool) -> bool:
        _check_depth(len(self.names) + 1)
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.at)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._open.append(os.open(name, flags, dir_fd=self.at))
        except OSError:
            if self._link(name) is None:
                raise
            return False
        self.names.append(name)
        return True

    def open(self, name: str, flags: int) -> int:
        """Open a regular file, without following links and without blocking. Rejects any other kind
        of file."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, 0o666, dir_fd=self.at)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ValueError("is not a regular file")
        return file

    def replace(self, name: str, data: bytes, *, executable: bool = False) -> None:
        """Write a temporary file, then rename it to `name`. The mode of an existing file is
        kept."""
        mode = None
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=self.at, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("is not a regular file")
            mode = stat.S_IMODE(found.st_mode)
        new = f".{secrets.token_hex(8)}.new"
        opened = self.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with open(opened, "wb") as file:
                if mode is not None:
                    os.fchmod(opened, mode)
                if executable:
                    _allow_running(opened)
                file.write(data)
            os.replace(new, name, src_dir_fd=self.at, dst_dir_fd=self.at)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=self.at)
            raise


def _allow_running(file: int) -> None:
    """Make a file executable for everyone who may read it."""
    mode = stat.S_IMODE(os.fstat(file).st_mode)
    os.fchmod(file, mode | (mode & 0o444) >> 2)


def _entry(path: str, name: str, opened: int) -> DirectoryEntry:
    found = os.stat(name, dir_fd=opened, follow_symlinks=False)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return DirectoryEntry(
        path=_text(path),
        type=kinds.get(stat.S_IFMT(found.st_mode), "other"),  # type: ignore[arg-type]
        size=found.st_size,
        changed=found.st_mtime_ns // 1_000_000,
        mode=stat.S_IMODE(found.st_mode),
    )


def _remove_empty(name: str, opened: int) -> None:
    try:
        os.rmdir(name, dir_fd=opened)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise ValueError(NOT_EMPTY) from error


def _remove_all(path: str, name: str, opened: int) -> None:
    try:
        remove_tree(name, opened)
    except SandboxError as error:
        raise SandboxError(problem=f"{path!r}: {error.problem}", path=path) from error


def _check_depth(folders: int) -> None:
    """Reject a path that is too deep, because each folder of the path stays open, and a tree that
    is too deep cannot be listed."""
    if folders > MAX_DEPTH:
        raise ValueError(f"is more than {MAX_DEPTH} folders deep: move it to a higher folder")


def _levels(name: str, opened: int) -> int:
    """Return the greatest depth of nested folders, starting with this folder."""
    most = 0
    for folder, folders, _, _ in os.fwalk(name, dir_fd=opened):
        most = max(most, folder.count("/") + 1)
        folders[:] = folders if most <= MAX_DEPTH else []
    return most


def _is_there(name: str, opened: int) -> bool:
    try:
        os.stat(name, dir_fd=opened, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _text(path: str) -> str:
    """Return a path as valid UTF-8 text; invalid bytes are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")

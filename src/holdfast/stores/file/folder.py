"""`StoreFolder`: the files of a file store, their paths, and durable changes to them.

File names are ids and hashes that Holdfast generates, never text from a caller. Every change can be
rolled back until the index is committed: appended bytes are truncated, and a file is removed only
after the commit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from pathlib import Path

import msgspec

from ...log.events import Scope

OPEN_FILES = 128
GONE = ".gone-"  # part of the name of a blob folder that a delete has renamed


class StorePaths:
    """Computes the paths of a store's log files, large payloads and folders of blobs."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def log(self, log: str, *, restoring: bool = False) -> Path:
        name = f"{log}.jsonl.part" if restoring else f"{log}.jsonl"
        return self._root / "logs" / log[-2:] / name

    def apart(self, log: str, seq: int) -> Path:
        return self._root / "logs" / log[-2:] / f"{log}.apart" / f"{seq}.json"

    def blobs(self, scope: Scope) -> Path:
        text = msgspec.json.encode((scope.tenant, scope.session))
        return self._root / "blobs" / hashlib.sha256(text).hexdigest()


class StoreFolder:
    """The folder of one store. Only the writer's thread uses it; readers only use the paths."""

    def __init__(self, root: Path, *, sync: bool) -> None:
        self.root, self.paths = root, StorePaths(root)
        self.journal = root / "journal.jsonl"
        self._sync = sync
        self._files: OrderedDict[Path, int] = OrderedDict()
        self._grown: dict[Path, int] = {}
        self._new_names: set[Path] = set()
        self._made: list[Path] = []
        self._replaced: list[tuple[Path, Path]] = []
        self._renamed: list[tuple[Path, Path]] = []
        self._removing: list[Path] = []

    # Changes. `roll_back` undoes each of them, except `cut`

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes; 0 if it does not exist."""
        if (file := self._files.get(path)) is not None:
            found = os.fstat(file)
            if _is_at(found, path):
                return found.st_size
        try:
            return os.fstat(self._file(path, make=False)).st_size
        except FileNotFoundError:
            return 0

    def append(self, path: Path, data: bytes) -> int:
        """Append bytes to a file. Returns the offset at which they begin."""
        file = self._file(path, make=True)
        start = os.fstat(file).st_size
        self._grown.setdefault(path, start)
        view = memoryview(data)
        at = start
        while view:
            written = os.pwrite(file, view, at)
            at += written
            view = view[written:]
        return start

    def cut(self, path: Path, size: int) -> None:
        """Truncate a file to `size`, the end of its last intact line. This is not rolled back,
        because the removed bytes are not an event."""
        os.ftruncate(self._file(path, make=False), size)
        self._grown.setdefault(path, size)

    def write(self, path: Path, data: bytes) -> None:
        """Create a file under a temporary name, and rename it when it is complete."""
        self._make_folder(path.parent)
        new = path.with_name(f"{path.name}.new")
        self._made += [new, path]
        self._write(new, data)
        os.replace(new, path)
        self._new_names.add(path.parent)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a file atomically."""
        new, old = (path.with_name(f"{path.name}{end}") for end in (".new", ".old"))
        self._made.append(new)
        self._write(new, data)
        if path.exists() and path not in dict(self._replaced):
            old.unlink(missing_ok=True)
            os.link(path, old)
            self._replaced.append((path, old))
        os.replace(new, path)
        self._close(path)
        self._new_names.add(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file to its final name."""
        self._close(old)
        os.replace(old, new)
        self._renamed.append((old, new))
        self._new_names.add(new.parent)

    def set_aside(self, path: Path, name: str) -> bool:
        """Hide a folder by renaming it, and remove it after the commit. Returns whether it
        existed."""
        if not path.exists():
            return False
        aside = path.with_name(f"{path.name}{GONE}{name}")
        self.rename(path, aside)
        self.remove(aside)
        return True

    def bring_back(self, aside: Path) -> Path:
        """Undo `set_aside`: give the folder `aside` its earlier name again. Returns the path with
        this name."""
        path = aside.with_name(aside.name.partition(GONE)[0])
        self._make_folder(path)
        for child in aside.iterdir():
            os.replace(child, path / child.name)
        aside.rmdir()
        self._new_names.update((path, path.parent))
        return path

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with its content, after the commit."""
        self._removing.append(path)

    # The end of a transaction

    def make_durable(self) -> None:
        """Fsync everything that was appended, written or renamed, and the names of the files."""
        if self._sync:
            for path in self._grown:
                os.fsync(self._file(path, make=False))
        self.make_names_durable()

    def make_removals_durable(self) -> None:
        """Ensure that removed files and index entries do not come back after a power loss."""
        wal = self.root / "index.db-wal"
        if self._sync and wal.exists():
            _sync_path(wal)
        blobs, logs = self.root / "blobs", self.root / "logs"
        self._new_names.update((self.root, blobs, logs, *logs.iterdir()))
        self.make_names_durable()

    def make_names_durable(self) -> None:
        """Fsync the folders that have new files. Call this before writing lines that refer to these
        files, so that no line refers to a file that a power loss removed."""
        if self._sync:
            for folder in self._new_names:
                _sync_path(folder)
        self._new_names.clear()

    def done(self) -> None:
        """Remove the replaced files, and the files marked for removal, after the commit."""
        for path in [*self._removing, *(old for _, old in self._replaced)]:
            self._close(path)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        self._forget()

    def roll_back(self) -> None:
        """Undo everything that was appended, written or renamed."""
        for path, old in self._replaced:
            self._close(path)
            os.replace(old, path)
        for path, size in self._grown.items():
            try:
                os.ftruncate(self._file(path, make=False), size)
            except OSError:
                continue  # `Index.catch_up` truncates the incomplete line later
        for path in self._made:
            path.unlink(missing_ok=True)
        for old, new in self._renamed:
            self._close(new)
            os.replace(new, old)
        self._forget()

    def _forget(self) -> None:
        self._grown.clear()
        self._made.clear()
        self._replaced.clear()
        self._renamed.clear()
        self._removing.clear()
        self._new_names.clear()

    def close(self) -> None:
        while self._files:
            self._close(next(iter(self._files)))

    # Open files

    def _file(self, path: Path, *, make: bool) -> int:
        file = self._files.get(path)
        if file is not None:
            if _is_at(os.fstat(file), path):
                self._files.move_to_end(path)
                return file
            self._close(path)  # another process replaced it
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            file = os.open(path, flags)
        except FileNotFoundError:
            if not make:
                raise
            self._make_folder(path.parent)
            file = os.open(path, flags | os.O_CREAT, 0o600)
            self._new_names.add(path.parent)
        self._files[path] = file
        if len(self._files) > OPEN_FILES:
            idle = (open for open in self._files if open not in self._grown and open != path)
            self._close(next(idle, Path()))
        return file

    def _close(self, path: Path) -> None:
        if (file := self._files.pop(path, None)) is not None:
            os.close(file)

    def _write(self, path: Path, data: bytes) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            if self._sync:
                os.fsync(file)
        finally:
            os.close(file)

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True, mode=0o700)
            self._new_names.add(folder.parent)


def _is_at(file: os.stat_result, path: Path) -> bool:
    """Return whether an open file is still the file at its path. The link count cannot tell this,
    because a crashed process may have left a second name for a replaced file."""
    try:
        return os.path.samestat(file, os.stat(path))
    except FileNotFoundError:
        return False


def _sync_path(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)

"""What a process did to its files, read from strace, and the disk as a power cut would leave it.

The disk forgets all that was not fsynced: the bytes of a file since its last fsync, and the names
in a folder since the folder's own. Real ones keep more, in an order of their choice, so a cut may
also keep some of the unsynced pages.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

STRACE = shutil.which("strace")
CALLS = (
    "open,openat,creat,write,pwrite64,writev,pwritev,fsync,fdatasync,ftruncate,truncate,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir"
)
PAGE = 4096
PASSING = ("-shm", ".lock")  # files that hold nothing that lasts

_LINE = re.compile(r"^(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$")
_RESULT = re.compile(r"\) += (-?\d+).*$")
_HEX = re.compile(r'"([\\x0-9a-f]*)"(\.\.\.)?|(\d+)<([\\x0-9a-f]*)>')


def strace(output: Path) -> list[str]:
    """The words to put before a command so that it is traced."""
    assert STRACE is not None
    return [STRACE, "-f", "-qq", "-y", "-xx", "-s", "99999999", "-o", str(output), "-e", CALLS]


class Call(NamedTuple):
    """A finished system call. `began` says that it only begins here and ends later."""

    name: str
    paths: list[str]
    data: list[bytes]
    rest: str
    began: bool = False


def calls(output: Path) -> Iterator[Call]:
    """The calls that succeeded, each where it ended, and each fsync also where it began."""
    open_calls: dict[str, str] = {}
    with output.open() as lines:
        for line in lines:
            found = _LINE.match(line)
            if found is None:
                continue
            pid, resumed, name, rest = found.groups()
            if resumed is not None:
                name, rest = resumed, open_calls.pop(pid, "") + rest
            elif rest.endswith("<unfinished ...>"):
                open_calls[pid] = rest.removesuffix("<unfinished ...>")
                if name in ("fsync", "fdatasync"):
                    yield _call(name, rest, began=True)
                continue
            result = _RESULT.search(rest)
            if result is None or int(result[1]) < 0:
                continue
            if name in ("fsync", "fdatasync") and resumed is None:
                yield _call(name, rest, began=True)
            yield _call(name, rest[: result.start()])


def _call(name: str, rest: str, *, began: bool = False) -> Call:
    paths, data = [], []
    around, end = [], 0
    for found in _HEX.finditer(rest):
        text, more, file, path = found.groups()
        assert not more, "strace cut a string short"
        if file:
            paths.append(_bytes(path).decode(errors="replace"))
        else:
            data.append(_bytes(text))
        around.append(rest[end : found.start()])
        end = found.end()
    return Call(name, paths, data, "".join(around) + rest[end:], began)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


class File:
    """Its bytes now, and those that are safe; `syncing` are those of an fsync under way."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.safe = b""
        self.syncing: bytes | None = None
        self.dirty = False

    def write(self, data: bytes, at: int) -> None:
        if len(self.data) < at:
            self.data.extend(bytes(at - len(self.data)))
        self.data[at : at + len(data)] = data
        self.dirty = True


class Folder:
    """Its names now, and those that are safe."""

    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.safe: dict[str, File | Folder] = {}
        self.syncing: dict[str, File | Folder] | None = None


class Disk:
    """A folder that calls are played on."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.top = Folder()

    def play(self, call: Call) -> None:
        if call.name in ("fsync", "fdatasync"):
            self._sync(call)
        elif call.name in ("write", "pwrite64"):
            self._write(call)
        elif call.name == "ftruncate":
            file = self._at(call.paths[0])
            if isinstance(file, File):
                size = int(call.rest.rpartition(",")[2])
                del file.data[size:]
                file.data.extend(bytes(size - len(file.data)))
                file.dirty = True
        else:
            self._name(call)

    def _write(self, call: Call) -> None:
        file = self._at(call.paths[0])
        if isinstance(file, File):
            at = len(file.data)  # `write` only ever adds to a file here
            if call.name == "pwrite64":
                at = int(call.rest.rpartition(",")[2])
            file.write(call.data[0], at)

    def _sync(self, call: Call) -> None:
        node = self._at(call.paths[0])
        if isinstance(node, File):
            if call.began:
                node.syncing, node.dirty = bytes(node.data), False
            elif node.syncing is not None:
                node.safe, node.syncing = node.syncing, None
        elif isinstance(node, Folder):
            if call.began:
                node.syncing = dict(node.names)
            elif node.syncing is not None:
                node.safe, node.syncing = node.syncing, None

    def _name(self, call: Call) -> None:
        """A call that changes names; paths are absolute or relative to an open folder."""
        folders = [path for path in call.paths if not path.startswith("anon")]
        named = [self._absolute(text.decode(), folders) for text in call.data]
        if call.name in ("open", "openat", "creat"):
            if "O_CREAT" in call.rest or "O_TRUNC" in call.rest:
                self._make(named[0], File(), truncate="O_TRUNC" in call.rest)
        elif call.name in ("mkdir", "mkdirat"):
            self._make(named[0], Folder(), truncate=False)
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            self._take(named[0])
        elif call.name.startswith(("rename", "link")):
            node = self._at(named[0])
            if call.name.startswith("rename"):
                self._take(named[0])
            if node is not None and (place := self._place(named[1])):
                place[0].names[place[1]] = node

    def _absolute(self, path: str, folders: list[str]) -> str:
        return path if path.startswith("/") or not folders else f"{folders[0]}/{path}"

    def _make(self, path: str, node: File | Folder, *, truncate: bool) -> None:
        if place := self._place(path):
            there = place[0].names.setdefault(place[1], node)
            if truncate and isinstance(there, File):
                there.data.clear()
                there.dirty = True

    def _take(self, path: str) -> None:
        if place := self._place(path):
            place[0].names.pop(place[1], None)

    def _place(self, path: str) -> tuple[Folder, str] | None:
        """The folder that a path is in, and its name there; None for a path elsewhere."""
        if not path.startswith(self._root + "/"):
            return None
        *above, name = path[len(self._root) + 1 :].split("/")
        folder: File | Folder | None = self.top
        for part in above:
            folder = folder.names.get(part) if isinstance(folder, Folder) else None
        return (folder, name) if isinstance(folder, Folder) else None

    def _at(self, path: str) -> File | Folder | None:
        if path == self._root:
            return self.top
        place = self._place(path)
        return place[0].names.get(place[1]) if place else None

    # What is safe

    def unsafe(self, suffix: str) -> list[str]:
        """The files of this suffix that hold bytes, or have a name, that a power cut takes."""
        return [
            f"{name} ({why})"
            for name, file, safe in self._files(self.top, "", True)
            if name.endswith(suffix)
            for why in [_why(file, safe)]
            if why
        ]

    def _files(self, folder: Folder, above: str, safe: bool) -> Iterator[tuple[str, File, bool]]:
        for name, node in folder.names.items():
            named = safe and folder.safe.get(name) is node
            if isinstance(node, File):
                yield above + name, node, named
            else:
                yield from self._files(node, f"{above}{name}/", named)

    def cut(self, to: Path, rng: random.Random | None = None) -> None:
        """Write down what is left after a power cut: only what is safe, or with `rng` also
        some of the rest."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        self._cut(self.top, to, rng)

    def _cut(self, folder: Folder, to: Path, rng: random.Random | None) -> None:
        newer = rng is not None and rng.random() < 0.5
        for name, node in (folder.names if newer else folder.safe).items():
            if isinstance(node, Folder):
                (to / name).mkdir()
                self._cut(node, to / name, rng)
            elif not name.endswith(PASSING):
                (to / name).write_bytes(_left(node, rng))


def _why(file: File, safe: bool) -> str:
    if not safe:
        return "its name"
    return "its bytes" if file.dirty or file.syncing is not None else ""


def _left(file: File, rng: random.Random | None) -> bytes:
    if rng is None or rng.random() < 0.3:
        return file.safe
    left = bytearray(file.safe)
    size = rng.choice([len(file.safe), len(file.data)])
    del left[size:]
    left.extend(bytes(size - len(left)))
    for at in range(0, size, PAGE):
        if rng.random() < 0.5:
            left[at : at + PAGE] = file.data[at : min(at + PAGE, size)]
    del left[size:]
    return bytes(left)


def said(call: Call) -> list[dict[str, Any]]:
    """The lines of JSON that a worker said by this call."""
    if call.name != "write" or not call.data or not call.paths[0].startswith("pipe:"):
        return []
    return [json.loads(line) for line in call.data[0].splitlines() if line.startswith(b"{")]

"""A work folder in one file, a `.tar.gz`: packed from a place, and put back into one.

Only regular files and folders travel, and never what is in `.git`. An archive may come from
anybody: its names, kinds and sizes are all checked before anything is written, and each file is
written through the place, which keeps every path inside. Nothing here knows where a place is.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile
import zlib
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Self, cast

from msgspec import Struct

from ...errors import InvalidValue, NoSuchFile, OutsideSandbox, RequestTooLarge, SandboxError
from ...values.records import Restored
from .port import DirectoryEntry, Place

ENTRIES = 10_000  # files and folders of an archive
BYTES = 64 << 20  # in all files together
DEPTH = 32  # names of a path
NAME, PATH = 255, 4_096  # bytes of a name, and of a path
EXTRA, SHORT = PATH + 512, 1_024  # bytes of a header for a long name and such, and of most
EXTRAS, LONGS = SHORT * ENTRIES, 256  # bytes of all such headers, and how many may be longer
SKIPPED = ".git"
_LONG = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_HEADERS = 4 * 512 * (ENTRIES + 8)  # what an archive may have beside the files' own bytes
_PIECE = 1 << 16


async def pack(place: Place, to: Path) -> None:
    """Write what is in a place to the file `to`. The same files give the same bytes. Links and
    whatever else is no file or folder are left out."""
    size = 0
    packing = await asyncio.to_thread(_Packing, to)
    try:
        async for entry in _entries(place):
            if entry.type == "folder":
                await asyncio.to_thread(packing.folder, entry)
            elif (data := await _read(place, entry, BYTES - size)) is not None:
                await asyncio.to_thread(packing.file, entry, data)
                size += len(data)
    finally:
        await asyncio.to_thread(packing.close)


async def unpack(place: Place, data: bytes) -> Restored:
    """Put an archive's files into a place, over those with the same path; all others stay.

    `InvalidValue` for an archive that is damaged, too large, or has a link, a device, or a path
    that leads out: then nothing was written. After that each file is written whole or not at all,
    one after the other; where the place refuses one, those before it stay, and the same archive
    may be sent again."""
    files = size = 0
    await asyncio.to_thread(_check, data)
    with closing(_members(data)) as members:
        while (member := await asyncio.to_thread(next, members, None)) is not None:
            if member.data is None:
                await place.make(member.path)
                continue
            if member.executable:
                await place.write(member.path, member.data, executable=True)
            else:
                await place.write(member.path, member.data)
            files, size = files + 1, size + len(member.data)
    return Restored(files=files, size=size)


# Packing


async def _entries(place: Place) -> AsyncGenerator[DirectoryEntry, None]:
    """Files and folders of a place, each once, each folder before what is in it, in order."""
    seen: set[str] = set()  # by whatever name they go meanwhile
    folders = ["."]
    while folders:
        inner: list[str] = []
        for entry in await _in_folder(place, folders.pop()):
            if entry.type not in ("file", "folder") or _is_skipped(entry.path):
                continue
            if entry.path in seen:
                continue
            seen.add(entry.path)
            _within("files", len(seen), ENTRIES)
            _check_depth(entry.path)
            yield entry
            if entry.type == "folder":
                inner.append(entry.path)
        folders += reversed(inner)


async def _in_folder(place: Place, path: str) -> list[DirectoryEntry]:
    """What is in a folder, or nothing if it went meanwhile."""
    try:
        return await place.tree(path, depth=1, limit=ENTRIES + 2)
    except NoSuchFile:
        _check_legible(path)
        return []


def _check_legible(path: str) -> None:
    """Refuse a name that cannot be written down, and so not be found again."""
    if "\ufffd" in path:
        problem = f"{path!r} has a name that is no UTF-8: rename it"
        raise SandboxError(problem=problem, path=path)


async def _read(place: Place, entry: DirectoryEntry, left: int) -> bytes | None:
    """A file's bytes, or None if it went meanwhile."""
    try:
        data = await place.read(entry.path, limit=left + 1)
    except NoSuchFile:
        _check_legible(entry.path)
        return None
    if len(data) > left:
        raise RequestTooLarge(limit=BYTES)
    return data


class _Packing:
    """An archive that is being written. Every method blocks."""

    def __init__(self, to: Path) -> None:
        self._file = to.open("xb")
        self._zip = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0)
        self._tar = tarfile.open(  # noqa: SIM115 - closed with the packing
            mode="w|", fileobj=self._zip, format=tarfile.PAX_FORMAT
        )

    def close(self) -> None:
        with self._file, self._zip, self._tar:
            pass

    def folder(self, entry: DirectoryEntry) -> None:
        info = tarfile.TarInfo(entry.path)
        info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, entry.changed // 1000
        self._tar.addfile(info)

    def file(self, entry: DirectoryEntry, data: bytes) -> None:
        info = tarfile.TarInfo(entry.path)
        info.mode = 0o755 if entry.mode & 0o100 else 0o644
        info.size, info.mtime = len(data), entry.changed // 1000
        self._tar.addfile(info, io.BytesIO(data))


# Unpacking


class _Member(Struct, frozen=True):
    """A file of an archive, or a folder, which has no data."""

    path: str
    data: bytes | None
    executable: bool


def _strict() -> type[tarfile.TarInfo]:
    """How the headers of one archive are read. One that is wrong is an error: `tarfile` would take
    it for the end of the archive. Those that say more of another are short, and so are all of them
    together: `tarfile` reads them whole, and some at length."""
    left, longs = EXTRAS, LONGS

    class Strict(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, *header: Any) -> Self:
            nonlocal left, longs
            found = super().frombuf(*header)
            if found.type in _LONG:
                left, longs = left - found.size, longs - (found.size > SHORT)
                if not 0 <= found.size <= EXTRA or left < 0 or longs < 0:
                    raise tarfile.ReadError("a header is too long")
            return found

        @classmethod
        def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
            try:
                return super().fromtarfile(archive)
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # its end, as written
                raise
            except tarfile.HeaderError as error:
                raise tarfile.ReadError(str(error)) from None

    return Strict


class _Bounded:
    """Reads so many bytes at most, however small the file was that they come out of."""

    def __init__(self, source: gzip.GzipFile, limit: int) -> None:
        self._source, self._left = source, limit

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise RequestTooLarge(limit=BYTES)
        return data


def _check(data: bytes) -> None:
    """Read an archive to its end, and refuse it if anything in it is wrong."""
    is_file: dict[str, bool] = {}
    for member in _members(data):
        path, file = member.path, member.data is not None
        if path in is_file and (file or is_file[path]):
            raise _refused(f"has {path!r} twice")
        is_file[path] = file
    for path in is_file:
        above = path.rpartition("/")[0]
        while above:
            if is_file.get(above):
                raise _refused(f"has {above!r} as a file and as a folder")
            above = above.rpartition("/")[0]


def _open(plain: gzip.GzipFile) -> tarfile.TarFile:
    bounded = cast(IO[bytes], _Bounded(plain, BYTES + _HEADERS))  # it is only read
    return tarfile.open(mode="r|", fileobj=bounded, tarinfo=_strict())


def _members(data: bytes) -> Generator[_Member, None, None]:
    """What is in an archive, checked; it is read once, from its beginning to its end."""
    count = size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as plain, _open(plain) as tar:
            while (info := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # they are not needed again
                count, size = count + 1, size + max(info.size, 0)
                _within("files", count, ENTRIES)
                if size > BYTES:
                    raise RequestTooLarge(limit=BYTES)
                if (path := _path(info)) is not None:
                    yield _Member(path, _data(tar, info), bool(info.mode & 0o100))
            _check_end(tar)
    except _DAMAGED as error:
        raise _refused(f"cannot be read ({type(error).__name__})") from error


_DAMAGED = (
    *(tarfile.TarError, OSError, EOFError, zlib.error),
    *(ValueError, OverflowError, RecursionError),
)


def _path(info: tarfile.TarInfo) -> str | None:
    """Where a member belongs; None for what is left out. Refuses all others."""
    names = [name for name in info.name.split("/") if name not in ("", ".")]
    if info.name.startswith("/") or ".." in names:
        raise OutsideSandbox(path=info.name[:200])
    if any(_is_skipped(name) for name in names) or (not names and info.isdir()):
        return None
    plain = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.issparse()
    if not (plain or info.isdir()) or info.size < 0:
        raise _refused(f"has {info.name[:200]!r}, which is no plain file or folder")
    path = "/".join(names)
    _check_depth(path)
    if not _is_name(path, PATH) or not all(_is_name(name, NAME) for name in names):
        raise _refused(f"has {info.name[:200]!r}, which is no path")
    return path


def _is_name(text: str, limit: int) -> bool:
    try:
        return "\0" not in text and 0 < len(text.encode()) <= limit
    except UnicodeEncodeError:
        return False


def _data(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes | None:
    if info.isdir():
        return None
    file = tar.extractfile(info)
    data = file.read() if file is not None else b""
    if len(data) != info.size:
        raise EOFError
    return data


def _check_end(tar: tarfile.TarFile) -> None:
    """Read what is behind the last member, which is nothing, so that its checksum is checked."""
    stream = tar.fileobj
    while stream is not None and (piece := stream.read(_PIECE)):
        if piece.strip(b"\0"):
            raise _refused("goes on behind its end")


def _is_skipped(path: str) -> bool:
    return path.rpartition("/")[2].lower() == SKIPPED


def _within(field: str, found: int, limit: int) -> None:
    if found > limit:
        problem, remedy = f"has more than {limit}", "remove some, or take them one by one"
        raise InvalidValue(field=field, problem=problem, remedy=remedy, limit=limit)


def _check_depth(path: str) -> None:
    if path.count("/") + 1 > DEPTH:
        raise InvalidValue(
            field="depth",
            problem=f"{path[:200]!r} has more than {DEPTH} names",
            remedy="move it further up, or remove it",
            limit=DEPTH,
        )


def _refused(problem: str) -> InvalidValue:
    remedy = "give a .tar.gz of plain files, by relative paths"
    return InvalidValue(field="archive", problem=problem, remedy=remedy)

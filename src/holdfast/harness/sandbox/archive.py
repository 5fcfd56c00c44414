"""Packs the files of a sandbox into a `.tar.gz` archive, and unpacks an archive into a sandbox.

An archive contains only regular files and folders, without `.git`. It is not trusted: names, types
and sizes are all checked before anything is written. Files are read and written through a `Place`,
so this works with every kind of sandbox, and a path outside of the sandbox is rejected.
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
BYTES = 64 << 20  # bytes of all files together
DEPTH = 32  # names in a path
NAME, PATH = 255, 4_096  # bytes of a name, and of a path
EXTRA, SHORT = PATH + 512, 1_024  # bytes of an extended header: at most, and usually
EXTRAS, LONGS = SHORT * ENTRIES, 256  # bytes of all extended headers, and how many exceed SHORT
SKIPPED = ".git"
_LONG = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_HEADERS = 4 * 512 * (ENTRIES + 8)  # bytes of an archive in addition to the files' own
_PIECE = 1 << 16


async def pack(place: Place, to: Path) -> None:
    """Pack the files of a sandbox into the new file `to`. The same files yield the same bytes.
    Links and other special files are omitted."""
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
    """Unpack an archive into a sandbox. Files with the same path are replaced; all other files
    stay.

    Raises an error, before anything is written, if the archive is damaged or too large, or contains
    a link, a device, or a path that leads outside. Then the files are written one by one, each
    atomically. If writing a file fails, the files written before it stay, and the same archive can
    be unpacked again.
    """
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
    """Yield the files and folders of a sandbox, each once and in a stable order, each folder before
    its contents."""
    seen: set[str] = set()  # a path may appear twice if files are moved meanwhile
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
    """Return the entries of a folder; empty if the folder was removed in the meantime."""
    try:
        return await place.tree(path, depth=1, limit=ENTRIES + 2)
    except NoSuchFile:
        _check_legible(path)
        return []


def _check_legible(path: str) -> None:
    """Reject a path with a name that is not valid UTF-8. In `path`, its invalid bytes were
    replaced, so it does not open the file."""
    if "\ufffd" in path:
        raise SandboxError(
            problem=f"{path!r} has a name that is not valid UTF-8: rename it", path=path
        )


async def _read(place: Place, entry: DirectoryEntry, left: int) -> bytes | None:
    """Return the bytes of a file, or None if it was removed in the meantime."""
    try:
        data = await place.read(entry.path, limit=left + 1)
    except NoSuchFile:
        _check_legible(entry.path)
        return None
    if len(data) > left:
        raise RequestTooLarge(limit=BYTES)
    return data


class _Packing:
    """Writes an archive. All methods block."""

    def __init__(self, to: Path) -> None:
        self._file = to.open("xb")
        self._zip = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0)
        self._tar = tarfile.open(  # noqa: SIM115 - closed by `close`
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
    """A file or folder in an archive; `data` is None for a folder."""

    path: str
    data: bytes | None
    executable: bool


def _strict() -> type[tarfile.TarInfo]:
    """Create a header class for one archive. An invalid header raises an error, while `tarfile`
    would treat it as the end of the archive. The size of extended headers is limited, for each
    header and in total, because `tarfile` reads them into memory."""
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
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the regular end of the archive
                raise
            except tarfile.HeaderError as error:
                raise tarfile.ReadError(str(error)) from None

    return Strict


class _Bounded:
    """Reads at most `limit` decompressed bytes, to protect against decompression bombs."""

    def __init__(self, source: gzip.GzipFile, limit: int) -> None:
        self._source, self._left = source, limit

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise RequestTooLarge(limit=BYTES)
        return data


def _check(data: bytes) -> None:
    """Read an archive to its end, and reject it if anything in it is invalid."""
    is_file: dict[str, bool] = {}
    for member in _members(data):
        path, file = member.path, member.data is not None
        if path in is_file and (file or is_file[path]):
            raise _refused(f"contains {path!r} twice")
        is_file[path] = file
    for path in is_file:
        above = path.rpartition("/")[0]
        while above:
            if is_file.get(above):
                raise _refused(f"contains {above!r} as a file and as a folder")
            above = above.rpartition("/")[0]


def _open(plain: gzip.GzipFile) -> tarfile.TarFile:
    bounded = cast(IO[bytes], _Bounded(plain, BYTES + _HEADERS))  # only its method `read` is used
    return tarfile.open(mode="r|", fileobj=bounded, tarinfo=_strict())


def _members(data: bytes) -> Generator[_Member, None, None]:
    """Yield the checked members of an archive, read once from beginning to end."""
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
    """Return the path to write a member to, or None to skip it. Rejects invalid members."""
    names = [name for name in info.name.split("/") if name not in ("", ".")]
    if info.name.startswith("/") or ".." in names:
        raise OutsideSandbox(path=info.name[:200])
    if any(_is_skipped(name) for name in names) or (not names and info.isdir()):
        return None
    plain = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.issparse()
    if not (plain or info.isdir()) or info.size < 0:
        raise _refused(f"contains {info.name[:200]!r}, which is not a regular file or folder")
    path = "/".join(names)
    _check_depth(path)
    if not _is_name(path, PATH) or not all(_is_name(name, NAME) for name in names):
        raise _refused(f"contains {info.name[:200]!r}, which is not a valid path")
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
    """Read the rest of the archive after its last member, so that the checksum is verified. Rejects
    data other than zeros there."""
    stream = tar.fileobj
    while stream is not None and (piece := stream.read(_PIECE)):
        if piece.strip(b"\0"):
            raise _refused("has data after its end")


def _is_skipped(path: str) -> bool:
    return path.rpartition("/")[2].lower() == SKIPPED


def _within(field: str, found: int, limit: int) -> None:
    if found > limit:
        raise InvalidValue(
            field=field,
            problem=f"there are more than {limit} {field}",
            remedy="remove some, or transfer files one by one",
            limit=limit,
        )


def _check_depth(path: str) -> None:
    if path.count("/") + 1 > DEPTH:
        raise InvalidValue(
            field="depth",
            problem=f"{path[:200]!r} is nested deeper than {DEPTH} folders",
            remedy="move it to a higher folder, or remove it",
            limit=DEPTH,
        )


def _refused(problem: str) -> InvalidValue:
    return InvalidValue(
        field="archive",
        problem=problem,
        remedy="send a .tar.gz of regular files with relative paths",
    )

"""Parses a bundle from an untrusted path or bytes: checks its format, sizes, names and depth.

Only input within the limits is decoded, and an archive is read in place, never unpacked. The
modules `check` and `contents` validate the content of the parts.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
import stat
import struct
import weakref
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
from msgspec import Raw

from ..log.codec import too_deep, too_many, without_strings
from .archive import HeldParts, Parts
from .faults import Faults
from .format import BUNDLE_LIMITS, DOCUMENT, BundleLimits
from .json_values import NOT_JSON, JsonObject

NAMES = re.compile(
    r"threads/\d{4,9}\.jsonl|transcripts/\d{4,9}\.jsonl|blobs/[0-9a-f]{64}", re.ASCII
)
_MARKS = re.compile(rb"[][{},]")
_LIST, _OTHER = 400_000, 20_000  # entries; an event needs at least 40 bytes of the 16 MiB
_END = struct.Struct("<4s4H2LH")  # the last record of a zip, without a comment
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCAL = struct.Struct("<4s5H3L2H")  # the header before the name of a file
_EXTRA = 64  # bytes allowed between the name of a file and its data
_ENTRY = 160  # maximum bytes of a part in the directory of an archive
_PLAIN = 0x080E  # flags of a file in a zip that do not change its bytes
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(KeyError, ValueError, RuntimeError),  # the last for what zipfile does not support
)


class Zipped:
    """Parts in an archive. Each is read only up to its declared size."""

    def __init__(self, archive: zipfile.ZipFile, file: BinaryIO) -> None:
        self._archive = archive
        weakref.finalize(self, file.close)  # readers of a bundle do not have to close it

    def names(self) -> list[str]:
        return [name for name in self._archive.namelist() if name != DOCUMENT]

    @contextmanager
    def _open(self, name: str) -> Iterator[BinaryIO]:
        with self._archive.open(name) as file:
            yield cast(BinaryIO, io.BufferedReader(cast(Any, file), 1 << 16))

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        return self._open(name)


class RawBundle(msgspec.Struct, frozen=True):
    """The document of a bundle as plain JSON values, and its parts."""

    raw: JsonObject
    parts: Parts
    archive: int | None  # bytes of the archive; None for a single JSON


def open_source(source: str | os.PathLike[str] | bytes, faults: Faults) -> BinaryIO:
    """Open the bytes of a bundle. Raises `InvalidBundle` if they cannot be read."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    path = Path(source)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise faults.stop("unreadable", "$", "is not a file")
        return path.open("rb")
    except OSError as error:
        raise faults.stop(
            "unreadable", "$", f"cannot be opened ({error.strerror or type(error).__name__})"
        ) from error


def opened(file: BinaryIO, faults: Faults, limits: BundleLimits = BUNDLE_LIMITS) -> RawBundle:
    """Read the document and locate the parts. Raises `InvalidBundle` if that is not possible."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if file.read(4) == b"PK\3\4":
        if size > limits.archive_bytes:
            raise faults.stop("too_large", "$", f"has more than {limits.archive_bytes} bytes")
        return _zip(file, size, faults, limits)
    file.seek(0)
    if size > limits.json_bytes:
        raise faults.stop(
            "too_large", "$", f"has more than {limits.json_bytes} bytes and is not an archive"
        )
    return _json(file.read(limits.json_bytes + 1), faults, limits)


# A single JSON


def _json(data: bytes, faults: Faults, limits: BundleLimits) -> RawBundle:
    top = _object(data, faults, limits, values=limits.values * 6)
    inline = _InlineParts(faults, limits)
    inline.take(top, "threads", "$.threads", "events")
    transcript = inline.decoded(top.get("transcript"), dict[str, Raw], "$.transcript") or {}
    inline.take(transcript, "sections", "$.transcript.sections", "messages")
    if "sections" in transcript:
        top["transcript"] = transcript
    inline.take(top, "blobs", "$.blobs", "data")
    raw = _plain(msgspec.json.encode(top), faults, limits)
    if not faults:
        lines = [part for name, part in inline.parts.items() if not name.startswith("blobs/")]
        _check_members(data, raw, len(inline.parts) + sum(map(_members, lines)), faults)
    return RawBundle(raw, HeldParts(inline.parts), None)


class _InlineParts:
    """Separates the parts from the document of a single JSON file."""

    def __init__(self, faults: Faults, limits: BundleLimits) -> None:
        self.parts: dict[str, bytes] = {}
        self._faults, self._limits = faults, limits

    def take(self, document: JsonObject, name: str, path: str, field: str) -> None:
        """Remove the parts from the list `name` of the document: the field `field` of
        each entry.
        """
        entries = self.decoded(document.get(name), list[dict[str, Raw]], path) or []
        most = self._limits.threads
        if name == "threads" and len(entries) > most:
            raise self._faults.stop("too_many_parts", path, f"has more than {most} entries")
        for n, entry in enumerate(entries):
            at = f"{path}[{n}].{field}"
            if field in entry:
                read = self._base64 if name == "blobs" else self._lines
                data = read(entry.pop(field), at)
            elif name == "threads":
                self._faults.add("missing", at, "is missing")
                data = b""
            else:
                continue  # a blob or a transcript that was left out
            self._add(f"{path}[{n}].part", entry.get("part"), data)
        if name in document:
            document[name] = entries

    def decoded(self, raw: Raw | None, type: Any, path: str) -> Any:
        """Decode a JSON value; adds a fault and returns None if it has a wrong type."""
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=type)
        except NOT_JSON:
            self._faults.add("wrong_type", path, "has the wrong type")
            return None

    def _lines(self, raw: Raw, path: str) -> bytes:
        lines = self.decoded(raw, list[Raw], path) or []
        return b"".join(b"%b\n" % bytes(line) for line in lines)

    def _base64(self, raw: Raw, path: str) -> bytes:
        text = self.decoded(raw, str, path)
        try:
            return base64.b64decode(text or "", validate=True)
        except (binascii.Error, ValueError):
            self._faults.add("wrong_type", path, "is not base64")
            return b""

    def _add(self, path: str, raw: Raw | None, data: bytes) -> None:
        name = self.decoded(raw, str, path)
        if name is None:
            self._faults.add("missing", path, "is missing")
        elif name in self.parts:
            self._faults.add("duplicate", path, "is used more than once")
        else:
            self.parts[name] = data


def _object(data: bytes, faults: Faults, limits: BundleLimits, *, values: int) -> JsonObject:
    """Return the fields of a JSON object as undecoded JSON, after checking its depth and size."""
    if too_deep(data, limits.depth):
        raise faults.stop("too_deep", "$", f"is nested deeper than {limits.depth} levels")
    if too_many(data, values):
        raise faults.stop("too_large", "$", f"contains more than {values} values")
    if values > limits.values and too_many(data, limits.values) and _wide(data):
        raise faults.stop("too_large", "$", "has a list or an object that is too long")
    try:
        return msgspec.json.decode(data, type=dict[str, Raw])
    except msgspec.ValidationError as error:
        raise faults.stop("wrong_type", "$", "is not a JSON object") from error
    except NOT_JSON as error:
        # The message of the decoder is not shown: it may contain values.
        cut = "truncated" in str(error)
        problem = "is truncated" if cut else "is neither JSON nor an archive"
        raise faults.stop("truncated" if cut else "not_json", "$", problem) from error


def _wide(text: bytes) -> bool:
    """Return whether a list or an object in a JSON text has too many entries."""
    members: list[int] = []
    most: list[int] = []
    for piece in without_strings(text):
        for mark in _MARKS.findall(piece):
            if mark in b"[{":
                # Events are at the fourth level, messages at the fifth.
                most.append(_LIST if mark == b"[" and len(members) >= 3 else _OTHER)
                members.append(0)
            elif mark != b",":
                if members:
                    members.pop()
                    most.pop()
            elif members:
                members[-1] += 1
                if members[-1] > most[-1]:
                    return True
    return False


def _plain(text: bytes, faults: Faults, limits: BundleLimits) -> JsonObject:
    """Decode a document without its parts to plain values."""
    if too_many(text, limits.values):
        raise faults.stop("too_large", "$", f"contains more than {limits.values} values")
    try:
        return msgspec.json.decode(text, type=JsonObject)
    except NOT_JSON as error:
        raise faults.stop(
            "not_json", "$", "contains a number that is out of range, or text that is not UTF-8"
        ) from error


def _check_members(text: bytes, raw: JsonObject, more: int, faults: Faults) -> None:
    """Check that no object in JSON text has duplicate names, by counting members: `raw` keeps only
    the last member of each name. `more` is the number of members that were removed from `raw`.
    """
    left: list[Any] = [raw]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            more += len(value)
            value = list(value.values())
        left += [item for item in value if isinstance(item, (dict, list))]
    if _members(text) != more:
        faults.add("duplicate", "$", "has an object with a duplicate name")


def _members(text: bytes) -> int:
    """Count the members of all objects in a JSON text."""
    return sum(piece.count(b":") for piece in without_strings(text))


# An archive


def _zip(file: BinaryIO, size: int, faults: Faults, limits: BundleLimits) -> RawBundle:
    _check_directory(file, size, faults, limits)
    try:
        archive = zipfile.ZipFile(file)
    except UNREADABLE as error:
        raise faults.stop("truncated", "$", "is not a complete archive") from error
    members = archive.infolist()
    if len(members) > limits.parts + 1:
        raise faults.stop("too_many_parts", "$", f"has more than {limits.parts} parts")
    _check_files(members, faults)
    _check_gaps(file, members, archive.start_dir, faults)
    total = sum(member.file_size for member in members)
    if total > limits.total_bytes:
        raise faults.stop("too_large", "$", f"contains more than {limits.total_bytes} bytes")
    if total > max(64 << 20, limits.ratio * size):
        raise faults.stop("too_large", "$", f"expands to more than {limits.ratio} times its size")
    if not members or members[0].filename != DOCUMENT or members[0].header_offset != 0:
        raise faults.stop("missing", DOCUMENT, "is not the first file of the archive")
    if members[0].file_size > limits.json_bytes:
        raise faults.stop("too_large", DOCUMENT, f"has more than {limits.json_bytes} bytes")
    if faults:
        raise faults.error()
    try:
        with archive.open(members[0]) as member:
            data = member.read(limits.json_bytes + 1)
    except UNREADABLE as error:
        raise faults.stop("truncated", DOCUMENT, "cannot be read completely") from error
    _object(data, faults, limits, values=limits.values)
    raw = _plain(data, faults, limits)
    _check_members(data, raw, 0, faults)
    return RawBundle(raw, Zipped(archive, file), size)


def _check_directory(file: BinaryIO, size: int, faults: Faults, limits: BundleLimits) -> None:
    """Check that the zip directory is complete and small, before it is read into memory."""
    file.seek(max(0, size - _END.size))
    last = file.read(_END.size).ljust(_END.size)
    mark, _, _, _, count, length, _, comment = _END.unpack(last)
    if mark != b"PK\5\6" or comment:
        raise faults.stop("truncated", "$", "is not a complete archive")
    if length == 0xFFFFFFFF or count == 0xFFFF:
        count, length = _large(file, size) or (count, length)
    if count > limits.parts + 1:
        raise faults.stop("too_many_parts", "$", f"has more than {limits.parts} parts")
    if length > min(size, (limits.parts + 1) * _ENTRY):
        raise faults.stop("too_many_parts", "$", "has a zip directory that is too large")


def _large(file: BinaryIO, size: int) -> tuple[int, int] | None:
    """Return the number of entries and the size of the directory of a zip64 archive; None for other
    archives.
    """
    if size < _END.size + _LOCATOR.size:
        return None
    file.seek(size - _END.size - _LOCATOR.size)
    mark, _, offset, _ = _LOCATOR.unpack(file.read(_LOCATOR.size))
    if mark != b"PK\6\7" or offset > size - _END64.size:
        return None
    file.seek(offset)
    found = _END64.unpack(file.read(_END64.size))
    return (found[7], found[8]) if found[0] == b"PK\6\6" else None


def _check_files(members: list[zipfile.ZipInfo], faults: Faults) -> None:
    for name, times in Counter(member.filename for member in members).items():
        if times > 1:
            faults.add("duplicate", _shown(name), f"occurs {times} times in the archive")
    for member in members:
        name = member.filename
        mode = member.external_attr >> 16
        if name != member.orig_filename or not (name == DOCUMENT or NAMES.fullmatch(name)):
            faults.add("bad_path", _shown(name), "is not a valid part name")
        elif mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
            faults.add("bad_path", name, "is not a regular file")
        elif member.flag_bits & 1:
            faults.add("unreadable", name, "is encrypted")
        elif member.flag_bits & ~_PLAIN:
            faults.add("unreadable", name, "uses a zip feature that bundles do not use")
        elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            faults.add("unreadable", name, "uses a compression that bundles do not use")


def _check_gaps(file: BinaryIO, members: list[zipfile.ZipInfo], end: int, faults: Faults) -> None:
    """Check that all bytes before the directory of an archive belong to exactly one file each."""
    places = {0}
    for member in sorted(members, key=lambda member: member.header_offset):
        at = member.header_offset
        if at not in places or member.comment:
            break
        file.seek(at + _LOCAL.size - 4)
        name, extra = struct.unpack("<2H", file.read(4).ljust(4, b"\0"))
        if extra > _EXTRA:
            break
        behind = at + _LOCAL.size + name + extra + member.compress_size
        # A streaming writer puts the sizes after the data.
        places = {behind + more for more in ((12, 16, 20, 24) if member.flag_bits & 8 else (0,))}
    else:
        if end in places:
            return
    faults.add("mismatch", "$", "has bytes that do not belong to a file of the archive")


def _shown(name: str) -> str:
    """Return an untrusted name, shortened and in ASCII."""
    return ascii(name[:80])[1:-1]

"""The container of a bundle: a document with its parts, as one JSON text or as a zip archive.

Both are deterministic. Parts are streamed into an archive, so that its size does not matter, and
never unpacked into files. Bundles from outside are read by `parse`, which validates them.
"""

from __future__ import annotations

import asyncio
import base64
import io
import zipfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import msgspec
from msgspec import Raw, Struct

from ..errors import BlobNotFound, InvalidValue, SessionNotFound
from ..log.events import Event
from .atomic_file import atomic_file
from .format import BUNDLE_LIMITS, DOCUMENT, Document, Thread, event_of

PIECE = 256 << 10  # bytes that are read or written at a time
DATE = (1980, 1, 1, 0, 0, 0)  # of every file in an archive: the earliest that a zip can say


class Parts(Protocol):
    """The bytes of the parts. Reading may block."""

    def names(self) -> list[str]: ...

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """The bytes of a part; `KeyError` if it does not exist."""
        ...


class Held:
    """Parts in memory."""

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self._parts = parts

    def names(self) -> list[str]:
        return list(self._parts)

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        return closing(io.BytesIO(self._parts[name]))


class Filed:
    """Parts in temporary files during an export."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def names(self) -> list[str]:
        return list(self._files)

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        return self._files[name].open("rb")


class Bundle:
    """A bundle: its document, and its parts.

    `document` has the known fields, `raw` all fields including unknown ones, which are written
    again. A bundle from `validate_bundle` is valid. `events`, `messages` and `blob` may block if
    the parts are in a file.
    """

    def __init__(self, raw: dict[str, Any], parts: Parts) -> None:
        self.raw = raw
        self.parts = parts
        self.document = msgspec.convert(raw, Document)

    def __repr__(self) -> str:
        return f"<Bundle {self.id} of session {self.document.session.session!r}>"

    @property
    def id(self) -> str:
        return self.document.bundle_id

    def thread(self, name: str = "main") -> Thread:
        """A thread in the document; `SessionNotFound` if it does not exist."""
        for thread in self.document.threads:
            if thread.thread == name:
                return thread
        facts = self.document.session
        raise SessionNotFound(tenant=facts.tenant, session=facts.session, thread=name)

    def own(self, thread: str = "main") -> Iterator[Event]:
        """The events of a thread's part."""
        for line in self.lines(self.thread(thread).part):
            yield event_of(line)

    def events(self, thread: str = "main") -> Iterator[Event]:
        """All events of a thread, including those that it shares with its parent."""
        found = self.thread(thread)
        line = [(found, found.head)]
        while found.parent is not None:
            upto = min(line[-1][1], found.parent.at)
            found = self.thread(found.parent.thread)
            line.append((found, upto))
        for each, upto in reversed(line):
            for event in self.own(each.thread):
                if event.seq > upto:
                    break
                yield event

    async def read(self, thread: str = "main") -> AsyncGenerator[Event, None]:
        """As `events`, for an event loop."""
        events = self.events(thread)
        while some := await asyncio.to_thread(_some, events):
            for event in some:
                yield event

    def messages(self, section: str = "main") -> list[dict[str, Any]]:
        """The messages of a section of the transcript; empty if they were too large."""
        for found in self.document.transcript.sections:
            if found.id == section and found.part is not None:
                return [msgspec.json.decode(line) for line in self.lines(found.part)]
        return []

    def blob(self, sha256: str) -> bytes:
        """The bytes of a blob; `BlobNotFound` if it does not exist or was left out."""
        for blob in self.document.blobs:
            if blob.sha256 == sha256 and blob.part is not None:
                with self.parts.open(blob.part) as part:
                    return part.read()
        facts = self.document.session
        raise BlobNotFound(tenant=facts.tenant, session=facts.session, sha256=sha256)

    def lines(self, part: str) -> Iterator[bytes]:
        with self.parts.open(part) as file:
            yield from file

    def to_json(self) -> bytes:
        """The bundle as one JSON text; `InvalidValue` if it is too large."""
        _check_size(sum(part.size for part in self.document.parts))
        raw = dict(self.raw)
        raw["threads"] = [
            {**thread, "events": self._inline(thread["part"])} for thread in raw["threads"]
        ]
        raw["transcript"] = {
            **raw["transcript"],
            "sections": [
                {**section, "messages": self._inline(section["part"])}
                if section.get("part") is not None
                else section
                for section in raw["transcript"]["sections"]
            ],
        }
        raw["blobs"] = [
            {**blob, "data": base64.b64encode(self.blob(blob["sha256"])).decode()}
            if blob.get("part") is not None
            else blob
            for blob in raw["blobs"]
        ]
        text = msgspec.json.encode(raw) + b"\n"
        _check_size(len(text))
        return text

    def _inline(self, part: str) -> list[Raw]:
        return [Raw(line.rstrip(b"\n")) for line in self.lines(part)]

    async def save(self, to: str | Path) -> Written:
        """Write the bundle to a file: a single JSON if the name ends in `.json`, otherwise an
        archive. The file is written completely or not at all."""
        return await asyncio.to_thread(save, self, Path(to))


class Written(Struct, frozen=True, kw_only=True):
    """A bundle that was written to a file."""

    path: str
    bundle_id: str
    form: Literal["json", "archive"]
    size: int
    document: Document


def _check_size(size: int) -> None:
    """`InvalidValue` for a single JSON that would be too large to read."""
    if size > BUNDLE_LIMITS.json_bytes:
        raise InvalidValue(
            field="bundle",
            problem=f"has {size} bytes, too many for a single JSON",
            remedy="write it as an archive (.zip)",
            limit=BUNDLE_LIMITS.json_bytes,
        )


def _some(events: Iterator[Event]) -> list[Event]:
    """The next batch of events."""
    found: list[Event] = []
    size = 0
    for event in events:
        found.append(event)
        size += 200 + len(event.data)
        if size > PIECE:
            break
    return found


def save(bundle: Bundle, path: Path) -> Written:
    """As `Bundle.save`; blocking."""
    form: Literal["json", "archive"] = "json" if path.suffix == ".json" else "archive"
    with atomic_file(path) as file:
        if form == "json":
            file.write(bundle.to_json())
        else:
            write_archive(bundle, file)
        size = file.tell()
    return Written(
        path=str(path), bundle_id=bundle.id, form=form, size=size, document=bundle.document
    )


def write_archive(bundle: Bundle, file: BinaryIO) -> None:
    """Write the archive: the document, then the parts in the order of the document."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        document = msgspec.json.encode(bundle.raw) + b"\n"
        with archive.open(_member(DOCUMENT, len(document)), "w") as member:
            member.write(document)
        for part in bundle.document.parts:
            with (
                bundle.parts.open(part.name) as source,
                archive.open(_member(part.name, part.size), "w") as member,
            ):
                while piece := source.read(PIECE):
                    member.write(piece)


def _member(name: str, size: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = 3
    member.external_attr = 0o100600 << 16
    member.file_size = size
    return member

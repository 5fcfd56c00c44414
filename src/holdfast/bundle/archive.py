"""Bundles in memory and in files. A bundle has a document and parts (events, messages and blobs),
in a single JSON file or in a zip archive.

The same bundle always yields the same bytes. Parts are streamed into an archive, so memory does not
grow with its size; an archive is never unpacked into files. `parse` reads and checks untrusted
bundles.
"""

from __future__ import annotations

import asyncio
import base64
import io
import zipfile
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ..errors import BlobNotFound, InvalidValue, SessionNotFound
from ..log.events import Event
from .atomic_file import atomic_file
from .format import BUNDLE_LIMITS, DOCUMENT, Document, Thread, event_of
from .json_values import JsonObject

PIECE = 256 << 10  # bytes to read or write at a time
DATE = (1980, 1, 1, 0, 0, 0)  # time of every file in an archive: the earliest that zip supports


EventStream: TypeAlias = AsyncGenerator[Event, None]


class Parts(Protocol):
    """Opens the parts of a bundle by name. Reading a part may block."""

    def names(self) -> list[str]: ...

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a part for reading. Raises `KeyError` if it does not exist."""
        ...


class HeldParts:
    """The parts of a bundle that is kept in memory, or in the temporary files of an export."""

    def __init__(self, parts: Mapping[str, bytes | Path]) -> None:
        self._parts = parts

    def names(self) -> list[str]:
        return list(self._parts)

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        part = self._parts[name]
        return part.open("rb") if isinstance(part, Path) else closing(io.BytesIO(part))


class Bundle:
    """A bundle: its document and its parts.

    `document` has the known fields. `raw` has all fields, including unknown fields, so that they
    are kept when the bundle is written. A bundle from `validate_bundle` is valid. `events`,
    `messages` and `blob` may block if the parts are in a file.

    See [bundles](../bundles.md).
    """

    def __init__(self, raw: JsonObject, parts: Parts) -> None:
        self.raw = raw
        self.parts = parts
        self.document = msgspec.convert(raw, Document)

    def __repr__(self) -> str:
        return f"<Bundle {self.id} of session {self.document.session.session!r}>"

    @property
    def id(self) -> str:
        return self.document.bundle_id

    def thread(self, name: str = "main") -> Thread:
        """Return a thread of the document. Raises `SessionNotFound` if it does not exist."""
        for thread in self.document.threads:
            if thread.thread == name:
                return thread
        facts = self.document.session
        raise SessionNotFound(tenant=facts.tenant, session=facts.session, thread=name)

    def own(self, thread: str = "main") -> Iterator[Event]:
        """Yield the events in a thread's own part: all its events, except those it shares with its
        parent.
        """
        for line in self.lines(self.thread(thread).part):
            yield event_of(line)

    def events(self, thread: str = "main") -> Generator[Event, None, None]:
        """Yield all events of a thread, including the events that it shares with its parent."""
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

    def read(self, thread: str = "main") -> EventStream:
        """Async version of `events`."""
        return streamed(self.events(thread))

    def messages(self, section: str = "main") -> list[JsonObject]:
        """Return the messages of a transcript section; empty if they were too large to include."""
        for found in self.document.transcript.sections:
            if found.id == section and found.part is not None:
                return [msgspec.json.decode(line) for line in self.lines(found.part)]
        return []

    def blob(self, sha256: str) -> bytes:
        """Return the bytes of a blob. Raises `BlobNotFound` if it does not exist or was omitted."""
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
        """Return the bundle as a single JSON file. Raises `InvalidValue` if it is too large."""
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

    async def save(self, to: str | Path) -> WrittenBundle:
        """Write the bundle to a file: a single JSON file if the name ends in `.json`, otherwise an
        archive. The file is written completely or not at all.
        """
        return await asyncio.to_thread(save, self, Path(to))


class WrittenBundle(Struct, frozen=True, kw_only=True):
    """A bundle that was written to a file.

    See [bundles](../bundles.md).
    """

    path: str
    bundle_id: str
    form: Literal["json", "archive"]
    size: int
    document: Document


def _check_size(size: int) -> None:
    """Raise `InvalidValue` if a single JSON file would be too large to read back."""
    if size > BUNDLE_LIMITS.json_bytes:
        raise InvalidValue(
            field="bundle",
            problem=f"has {size} bytes, too many for a single JSON file",
            remedy="write it as an archive (.zip)",
            limit=BUNDLE_LIMITS.json_bytes,
        )


async def each(events: Iterable[Event]) -> EventStream:
    """Convert an iterable of events to an async generator."""
    for event in events:
        yield event


async def streamed(events: Generator[Event, None, None]) -> EventStream:
    """Convert a blocking generator of events to an async generator. The blocking code runs in a
    thread.
    """
    try:
        while some := await asyncio.to_thread(_next_batch, events):
            for event in some:
                yield event
    finally:
        await asyncio.to_thread(events.close)


def _next_batch(events: Iterator[Event]) -> list[Event]:
    """Return the next events, up to about `PIECE` bytes; empty at the end."""
    found: list[Event] = []
    size = 0
    for event in events:
        found.append(event)
        size += 200 + len(event.data)
        if size > PIECE:
            break
    return found


def save(bundle: Bundle, path: Path) -> WrittenBundle:
    """Blocking version of `Bundle.save`."""
    form: Literal["json", "archive"] = "json" if path.suffix == ".json" else "archive"
    with atomic_file(path) as file:
        if form == "json":
            file.write(bundle.to_json())
        else:
            write_archive(bundle, file)
        size = file.tell()
    return WrittenBundle(
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

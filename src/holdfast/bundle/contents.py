"""Validates the parts of a bundle in one pass: their sizes, hashes and events, and whether the
document agrees with the events. Blocking: call it in a thread."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, BinaryIO

import msgspec

from ..errors import InvalidValue
from ..log.codec import check_stored, too_many
from ..log.events import Event
from ..log.state import State
from ..redact.redactor import leaves
from . import format as f
from .archive import PIECE, Parts
from .faults import Faults
from .json_values import NOT_JSON, JsonObject
from .liveness import liveness
from .parse import UNREADABLE
from .redaction.sanitizer import LARGEST
from .redaction.scrub import Scrub, ScrubConfig
from .sections import Digest
from .timestamps import rfc3339

REPLACED = "contains text that the sanitizing rules redact"


class Contents:
    """Validates all parts of a valid document in one pass."""

    def __init__(
        self,
        document: f.Document,
        parts: Parts,
        faults: Faults,
        limits: f.BundleLimits,
        *,
        secrets: bool,
    ) -> None:
        self._document = document
        self._parts = parts
        self._faults = faults
        self._limits = limits
        self._listed = {part.name: part for part in document.parts}
        self._gate = Scrub("sanitized", ScrubConfig(paths=False)) if secrets else None

    def check(self, raw: JsonObject) -> dict[str, State]:
        """Check all parts, and the `raw` document for secrets; return the states of the threads."""
        self._document_secrets(raw)
        digests = [self._thread(n, thread) for n, thread in enumerate(self._document.threads)]
        for n, section in enumerate(self._document.transcript.sections):
            if section.part is not None:
                self._section(f"$.transcript.sections[{n}]", section.part, section.count)
        for n, blob in enumerate(self._document.blobs):
            if blob.part is not None:
                self._blob(f"$.blobs[{n}]", blob, blob.part)
        if not self._faults:
            self._agree(digests)
        return {digest.thread.thread: digest.state for digest in digests}

    def _thread(self, n: int, thread: f.Thread) -> Digest:
        path = f"$.threads[{n}]"
        facts = self._document.session
        digest = Digest(thread, facts.tenant, facts.session, transcript=False)
        ids = [array("q") for _ in range(256)]
        after = thread.parent.at if thread.parent is not None else 0
        seq = after
        for line in self._lines(thread.part, path, self._limits.event_bytes + 4096):
            seq += 1
            if (event := self._event(line, f"{path}.events[{seq - after - 1}]", seq)) is None:
                continue
            mark = hash(event.id)
            ids[mark & 255].append(mark)
            try:
                digest.add(event)
            except InvalidValue as error:
                at = f"{path}.events[{seq - after - 1}].data"
                self._faults.add("bad_event", at, f"{error.field} {error.problem}")
        if seq != thread.head:
            self._faults.add("mismatch", f"{path}.head", "is not the number of the last event")
        if any(_twice(some) for some in ids):
            self._faults.add("duplicate", f"{path}.events", "has a duplicate id")
        digest.end()
        return digest

    def _event(self, line: bytes, path: str, seq: int) -> Event | None:
        """Decode and check the event of a line; None if it is invalid."""
        problem = None
        if len(line) > self._limits.event_bytes:
            problem = f"has more than {self._limits.event_bytes} bytes"
        elif too_many(line, self._limits.values):
            problem = f"contains more than {self._limits.values} values"
        if problem is not None:
            self._faults.add("too_large", path, problem)
            return None
        try:
            event = f.event_of(line)
            check_stored(event)
        except InvalidValue as error:
            self._faults.add("bad_event", f"{path}.{error.field}", error.problem)
            return None
        except NOT_JSON:
            self._faults.add("bad_event", path, "is not an event")
            return None
        if event.seq != seq:
            self._faults.add("bad_event", f"{path}.seq", f"is not {seq}")
        self._secrets(event, path)
        return event

    def _secrets(self, event: Event, path: str) -> None:
        if self._gate is None:
            return
        # Compared as values: a redacted event is encoded again and may differ in whitespace.
        if self._gate.event(event, path).json() != event.json():
            self._faults.add("secret", path, REPLACED)

    def _document_secrets(self, raw: JsonObject) -> None:
        """Check the document for secrets. Free-form values are checked as in an event. Other fields
        are checked string by string, since their names say nothing about secrets; so is the id of
        the session, which is not the `session` of a cookie.
        """
        for name, value in raw.items():
            if name == "session" and isinstance(value, dict):
                self._value(value.get("session"), f"$.{name}")
                self._value({**value, "session": None}, f"$.{name}")
                continue
            if name == "metadata":
                self._value(value, f"$.{name}")
                continue
            for text in {leaf for leaf in leaves(value) if isinstance(leaf, str)}:
                self._value(text, f"$.{name}")

    def _value(self, value: Any, path: str) -> None:
        if self._gate is not None and self._gate.value(value, path) != value:
            self._faults.add("secret", path, REPLACED)

    def _section(self, path: str, part: str, count: int) -> None:
        found = 0
        for line in self._lines(part, path, f.SECTION_BYTES * 8):
            found += 1
            if too_many(line, self._limits.values):
                self._faults.add("too_large", path, "has a message with too many values")
                continue
            at = f"{path}.messages[{found - 1}]"
            try:
                msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                if self._gate is not None:
                    self._value(msgspec.json.decode(line), at)
            except NOT_JSON:
                self._faults.add("wrong_type", at, "is not an object")
        if found != count:
            self._faults.add("mismatch", f"{path}.count", "is not the number of messages")

    def _blob(self, path: str, blob: f.Blob, part: str) -> None:
        if blob.size > self._limits.blob_bytes:
            self._faults.add("too_large", path, f"has more than {self._limits.blob_bytes} bytes")
        listed = self._listed[part]
        if part != f"blobs/{blob.sha256}" or (listed.size, listed.sha256) != (
            blob.size,
            blob.sha256,
        ):
            self._faults.add("mismatch", path, "does not match the name, size or hash of its part")
        text = bytearray()
        with self._open(part, path) as file:
            while piece := file.read(PIECE):
                if self._gate is not None and len(text) <= LARGEST:
                    text += piece
        if self._gate is not None and len(text) <= LARGEST:
            data = bytes(text)
            if self._gate.blob(data, path) not in (None, data):  # None: it is not text
                self._faults.add("secret", path, REPLACED)

    def _lines(self, part: str, path: str, longest: int) -> Iterator[bytes]:
        """Yield the lines of a part, up to the first line that is too long or incomplete."""
        with self._open(part, path) as file:
            while line := file.readline(longest + 2):
                if not line.endswith(b"\n"):
                    code = "too_large" if len(line) > longest else "truncated"
                    self._faults.add(code, path, "has a line that is too long or incomplete")
                    while file.read(PIECE):
                        pass
                    return
                yield line

    @contextmanager
    def _open(self, name: str, path: str) -> Iterator[Hashed]:
        """Open a part for reading; afterwards its size and hash are checked."""
        with opened_part(self._parts, self._listed[name]) as part:
            yield part
        if (fault := part.fault()) is not None:
            self._faults.add(fault[0], path, fault[1])

    def _agree(self, digests: list[Digest]) -> None:
        """Check that the document agrees with the events."""
        document = self._document
        closed = {digest.thread.thread: digest.closed for digest in digests}
        if document.liveness != liveness(closed):
            self._faults.add("mismatch", "$.liveness", "differs from the events")
        pending = {(d.thread.thread, id) for d in digests for id in d.state.pending}
        if {(item.thread, item.id) for item in document.pending} != pending:
            self._faults.add("mismatch", "$.pending", "differs from the events")
        queue = [(d.thread.thread, q.seq) for d in digests for q in d.state.queue]
        if [(item.thread, item.seq) for item in document.queue] != queue:
            self._faults.add("mismatch", "$.queue", "differs from the events")
        if document.created_at != rfc3339(max(digest.last for digest in digests)):
            self._faults.add("mismatch", "$.created_at", "is not the time of the last event")


class Hashed:
    """Reads a part up to its declared size, and computes the hash of the bytes it reads."""

    def __init__(self, file: BinaryIO | None, part: f.Part) -> None:
        self._file = file
        self._part = part
        self._broken = file is None
        self._hash = hashlib.sha256()
        self._size = 0

    def read(self, size: int) -> bytes:
        return self._seen(lambda file: file.read(size))

    def readline(self, size: int) -> bytes:
        return self._seen(lambda file: file.readline(size))

    def _seen(self, read: Callable[[BinaryIO], bytes]) -> bytes:
        if self._file is None or self._broken or self._size > self._part.size:
            return b""
        try:
            data = read(self._file)
        except UNREADABLE:
            self._broken = True
            return b""
        self._hash.update(data)
        self._size += len(data)
        return data

    def fault(self) -> tuple[str, str] | None:
        """Return the code and the description of the part's fault, or None. Call it after reading
        the part to its end.
        """
        if self._broken:
            return "truncated", "has a part that cannot be read"
        if self._size != self._part.size:
            code = "truncated" if self._size < self._part.size else "tampered"
            return code, "has a part whose size differs from the document"
        if self._hash.hexdigest() != self._part.sha256:
            return "tampered", "has a part whose hash differs from the document"
        return None


@contextmanager
def opened_part(parts: Parts, part: f.Part) -> Iterator[Hashed]:
    """Open a part for reading. After reading it to its end, call `fault` to check its size and
    hash.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(parts.open(part.name))
        except UNREADABLE:
            yield Hashed(None, part)
            return
        yield Hashed(file, part)


def _twice(marks: array[int]) -> bool:
    ordered = sorted(marks)
    return any(a == b for a, b in pairwise(ordered))

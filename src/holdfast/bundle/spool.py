"""Stores the parts of an export with their sizes and hashes: in memory, or in a temporary folder
next to the target file. Blocking: call it in a thread.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from ..errors import InvalidValue
from .archive import HeldParts, Parts
from .format import BUNDLE_LIMITS, Part


def check_path(path: Path | None) -> None:
    """Raise `InvalidValue` for a path where no file can be written."""
    if path is None:
        return
    problem = None
    if not path.parent.is_dir():
        problem = f"{str(path.parent)!r} is not a folder"
    elif path.is_dir():
        problem = f"{str(path)!r} is a folder"
    if problem is not None:
        raise InvalidValue(
            field="to", problem=problem, remedy="pass the path of a file in an existing folder"
        )


class Spool:
    """Collects the parts of an export. `close` deletes the temporary files."""

    def __init__(self, beside: Path | None) -> None:
        self._folder: Path | None = None
        if beside is not None:
            name = tempfile.mkdtemp(prefix=f".{beside.name}.", dir=beside.parent)
            self._folder = Path(name)
        self._held: dict[str, bytes | Path] = {}
        self.parts: list[Part] = []
        self._size = 0

    def begin(self, name: str) -> PartWriter:
        """Start a new part. The previous parts must be finished."""
        file: BinaryIO | None = None
        if self._folder is not None:
            path = self._held[name] = self._folder / str(len(self._held))
            file = path.open("wb")
        return PartWriter(self, name, file)

    def put(self, name: str, *data: bytes) -> None:
        """Write a whole part."""
        part = self.begin(name)
        try:
            for piece in data:
                part.write(piece)
        finally:
            part.close()
        self.done(part)

    def grown(self, by: int) -> None:
        self._size += by
        if self._folder is None and self._size > BUNDLE_LIMITS.json_bytes:
            raise InvalidValue(
                field="to",
                problem="is missing, and the bundle is too large for memory",
                remedy="pass to= with the path of an archive",
                limit=BUNDLE_LIMITS.json_bytes,
            )

    def done(self, part: PartWriter) -> None:
        """Add a part that was written and closed."""
        if self._folder is None:
            self._held[part.name] = bytes(part.held)
        self.parts.append(Part(name=part.name, size=part.size, sha256=part.hash.hexdigest()))

    def open(self) -> Parts:
        """Return all parts, for reading."""
        return HeldParts(self._held)

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class PartWriter:
    """A file-like object that writes one part, and computes its size and hash."""

    def __init__(self, spool: Spool, name: str, file: BinaryIO | None) -> None:
        self._spool, self._file = spool, file
        self.name = name
        self.held = bytearray()
        self.hash = hashlib.sha256()
        self.size = 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> None:
        self._spool.grown(len(data))
        self.size += len(data)
        self.hash.update(data)
        if self._file is not None:
            self._file.write(data)
        else:
            self.held += data

"""Writes files completely or not at all. Blocking: call it in a thread."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(
    path: Path, *, replace: bool = True, mtime: int | None = None
) -> Iterator[BinaryIO]:
    """Yield a temporary file to write to. When the block ends without an error, the file gets its
    final name, and the modification time `mtime` (ms). Without `replace`, an existing file is kept.
    Raises `FileExistsError` in that case.
    """
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mtime is not None:
            os.utime(part, ns=(mtime * 1_000_000, mtime * 1_000_000))
        (os.replace if replace else os.link)(part, path)
    finally:
        Path(part).unlink(missing_ok=True)


def write_file(
    path: Path, content: bytes, *, replace: bool = True, mtime: int | None = None
) -> None:
    """Write a file with `atomic_file`, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, replace=replace, mtime=mtime) as file:
        file.write(content)

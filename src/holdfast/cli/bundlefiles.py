"""Files of bundles, in any format: which it is, what it is read as, and where one is written.

An id is never a path: what is made of one stays in the folder that was named.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter
from msgspec import Struct

from ..bundle.archive import Bundle
from ..bundle.check import check_bundle
from ..bundle.claude import read_claude
from ..bundle.conversion_loss import LossReport
from ..bundle.harn import read_harn
from ..errors import InvalidValue
from .failure import UsageError
from .output import Output, plain

Format: TypeAlias = Literal["holdfast", "harn", "claude"]
File: TypeAlias = Annotated[Path, Parameter(help="The file of the bundle.")]
NAME = 80  # characters of an id in the name of a file
HEAD = 64 << 10  # bytes that are looked at to tell a format
_OTHER = re.compile(rb'"_type"\s*:\s*"(harn_session_bundle|run_record|worker_snapshot)"')


class Read(Struct, frozen=True):
    """A bundle, the format it was in, and what was not carried over from there."""

    bundle: Bundle
    format: Format
    loss: LossReport | None = None


async def read_file(
    path: Path, format: Format | None = None, *, allow_secrets: bool | None = None
) -> Read:
    """The bundle in a file, checked whole; the format is told by what is in it unless given.
    `allow_secrets` as in `check_bundle`."""
    path, found = await told_format(path, format)
    if found == "holdfast":
        return Read((await check_bundle(path, allow_secrets=allow_secrets)).bundle, found)
    if found == "harn":
        bundle, loss = await read_harn(path, allow_secrets=allow_secrets is not False)
    else:
        bundle, loss = await read_claude(path)
    return Read(bundle, found, loss)


async def told_format(path: Path, format: Format | None) -> tuple[Path, Format]:
    """Where a file is, and which format it is in unless that is given."""
    return await asyncio.to_thread(_told, path, format)


def _told(path: Path, format: Format | None) -> tuple[Path, Format]:
    path = path.expanduser()
    return path, format or _format(path)


def _format(path: Path) -> Format:
    """Which format a file is in; what cannot be told is taken for ours, and refused as such."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise InvalidValue(
            field="file",
            problem=f"{str(path)!r} cannot be read ({error.strerror or type(error).__name__})",
            remedy="name the file of a bundle",
        ) from error
    if head.startswith(b"PK"):
        return "holdfast"
    if _OTHER.search(head):
        return "harn"
    return "claude" if path.suffix == ".jsonl" else "holdfast"


def file_name(id: str, suffix: str) -> str:
    """A name for a file that an id can be known by, and that no other id has."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", id)[:NAME]
    if name != id:
        name = f"{name}-{hashlib.sha256(id.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return name + suffix


@asynccontextmanager
async def placed(target: Path, *, force: bool) -> AsyncGenerator[Path, None]:
    """A path to write to in the place of `target`; it is there, whole, when all went well. What
    was there before is replaced only with `force`."""
    try:
        target = await asyncio.to_thread(_ready, target, force)
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=".holdfast-", dir=target.parent)
        try:
            draft = Path(folder) / target.name
            yield draft
            await asyncio.to_thread(_put, draft, target, force)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    except OSError as error:
        raise InvalidValue(
            field="out",
            problem=f"{str(target)!r} cannot be written ({error.strerror or error})",
            remedy="name another file",
        ) from error


def _ready(target: Path, force: bool) -> Path:
    target = target.expanduser()
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {str(target.parent)!r}")
    if target.is_dir():
        raise UsageError(f"{str(target)!r} is a folder: name a file in it")
    if not force and os.path.lexists(target):
        raise _taken(target)
    return target


def _taken(target: Path) -> InvalidValue:
    return InvalidValue(
        field="out",
        problem=f"there is a file {str(target)!r}",
        remedy="name another, or replace it with --force",
    )


def _put(draft: Path, target: Path, force: bool) -> None:
    if force:
        os.replace(draft, target)
        return
    try:
        os.link(draft, target)  # which never replaces what came to be there meanwhile
    except FileExistsError as error:
        raise _taken(target) from error
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise _taken(target) from None
        os.replace(draft, target)


def write_text(path: Path, data: bytes) -> None:
    """Write a whole file, safe on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def tell_loss(out: Output, loss: LossReport | None) -> None:
    """What was not carried over, beside the result."""
    for one in loss or ():
        out.remark(plain(f"not carried over: {one}"))

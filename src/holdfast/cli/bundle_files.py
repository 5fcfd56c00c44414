"""Reads and writes bundle files in all formats, and detects the format. File names that are made
from ids never lead out of the chosen folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter
from msgspec import Struct

from ..bundle.archive import Bundle
from ..bundle.check import check_bundle
from ..bundle.claude import read_claude, save_claude, write_claude
from ..bundle.conversion_loss import LossReport
from ..bundle.harn import read_harn, write_harn
from ..errors import InvalidValue
from .error_report import UsageError
from .output import Output

Format: TypeAlias = Literal["holdfast", "harn", "claude"]
File: TypeAlias = Annotated[Path, Parameter(help="Bundle file.")]
NAME = 80  # characters of an id in a file name
HEAD = 64 << 10  # bytes that are read to detect a format
_OTHER = re.compile(rb'"_type"\s*:\s*"(harn_session_bundle|run_record|worker_snapshot)"')


class ReadBundle(Struct, frozen=True):
    """A bundle, the format of its file, and the data that the conversion lost."""

    bundle: Bundle
    format: Format
    loss: LossReport | None = None


async def read_file(
    path: Path, format: Format | None = None, *, allow_secrets: bool | None = None
) -> ReadBundle:
    """Read and check a bundle file. The format is detected if it is not passed. `allow_secrets` has
    the same meaning as in `check_bundle`."""
    path, found = await detect_format(path, format)
    if found == "holdfast":
        return ReadBundle((await check_bundle(path, allow_secrets=allow_secrets)).bundle, found)
    if found == "harn":
        bundle, loss = await read_harn(path, allow_secrets=allow_secrets is not False)
    else:
        bundle, loss = await read_claude(path)
    return ReadBundle(bundle, found, loss)


async def detect_format(path: Path, format: Format | None) -> tuple[Path, Format]:
    """Return the expanded path and the format of a file. The format is detected if it is not
    passed."""

    def detect() -> tuple[Path, Format]:
        found = path.expanduser()
        return found, format or _format(found)

    return await asyncio.to_thread(detect)


def _format(path: Path) -> Format:
    """Detect the format of a file. An unknown file counts as a Holdfast bundle, whose check then
    rejects it."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise InvalidValue(
            field="file",
            problem=f"{str(path)!r} cannot be read ({error.strerror or type(error).__name__})",
            remedy="pass a bundle file",
        ) from error
    if head.startswith(b"PK"):
        return "holdfast"
    if _OTHER.search(head):
        return "harn"
    return "claude" if path.suffix == ".jsonl" else "holdfast"


def file_name(id: str, suffix: str) -> str:
    """Make a readable file name from an id; different ids get different names."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", id)[:NAME]
    if name != id:
        name = f"{name}-{hashlib.sha256(id.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return name + suffix


async def save_bundle(
    bundle: Bundle, format: Format, target: Path, *, force: bool
) -> tuple[list[Path], LossReport | None]:
    """Write a bundle in a format. `target` is a file, or a folder for `claude`. Returns the paths
    that were written and the data that the conversion lost."""
    if format == "claude":
        files, loss = await asyncio.to_thread(write_claude, bundle)
        return await save_claude(files, target), loss
    lost = None
    async with placed(target, force=force) as path:
        if format == "holdfast":
            await bundle.save(path)
        else:
            document, lost = await asyncio.to_thread(write_harn, bundle)
            await asyncio.to_thread(write_synced, path, document.encode())
    return [target], lost


@asynccontextmanager
async def placed(target: Path, *, force: bool) -> AsyncGenerator[Path, None]:
    """Yield a temporary path to write to. On success, move the file to `target`, which is
    overwritten only with `force`.
    """
    try:
        target = await asyncio.to_thread(_ready, target, force)
        put = os.replace if force else _put_new
        async with replaced_whole(target, put) as draft:
            yield draft
    except OSError as error:
        raise write_error(target, error) from error


@asynccontextmanager
async def replaced_whole(
    target: Path, put: Callable[[Path, Path], None]
) -> AsyncGenerator[Path, None]:
    """Yield a path in a temporary folder. On success, call `put` to move the file to `target`."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=".holdfast-", dir=target.parent)
    try:
        draft = Path(folder) / target.name
        yield draft
        await asyncio.to_thread(put, draft, target)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def write_error(target: Path, error: OSError) -> InvalidValue:
    """Create the error for a file that cannot be written."""
    return InvalidValue(
        field="out",
        problem=f"{str(target)!r} cannot be written ({error.strerror or error})",
        remedy="choose another file",
    )


def _ready(target: Path, force: bool) -> Path:
    target = target.expanduser()
    if not target.parent.is_dir():
        raise UsageError(f"folder {str(target.parent)!r} does not exist")
    if target.is_dir():
        raise UsageError(f"{str(target)!r} is a folder; choose a file in it")
    if not force and os.path.lexists(target):
        raise _exists(target)
    return target


def _exists(target: Path) -> InvalidValue:
    return InvalidValue(
        field="out",
        problem=f"file {str(target)!r} already exists",
        remedy="choose another file, or replace it with --force",
    )


def _put_new(draft: Path, target: Path) -> None:
    try:
        os.link(draft, target)  # fails if the file was created meanwhile
    except FileExistsError as error:
        raise _exists(target) from error
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise _exists(target) from None
        os.replace(draft, target)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and sync it to disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def show_loss(out: Output, *losses: LossReport | None) -> None:
    """Print the data that conversions lost, to stderr."""
    for loss in losses:
        out.remark(*(f"not converted: {one}" for one in loss or ()))


def loss_json(*losses: LossReport | None) -> list[Any]:
    """Return the data that conversions lost, as a list for JSON."""
    return [one for loss in losses for one in loss or ()]

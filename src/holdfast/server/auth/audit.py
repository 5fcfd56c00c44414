"""Audit records: one for each request, with the caller and the result. Secrets are masked. If a
record cannot be stored, the request is not affected."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from ...redact import Redactor

LOGGER = logging.getLogger("holdfast.audit")
ROOM = 10_000  # records that may be queued for a sink


class AuditRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request, its caller and its result. `action` is the operation id in the OpenAPI document,
    `code` the code of the error, `key` the id of the API key.

    See [the server](../server.md).
    """

    at: int
    request: str
    action: str
    method: str
    path: str
    status: int
    tenant: str | None = None
    principal: str | None = None
    key: str | None = None
    session: str | None = None
    target: dict[str, str] = {}
    code: str | None = None
    address: str | None = None
    channel: str = "http"


class AuditSink(Protocol):
    """Stores audit records. It may be slow or fail: no request waits for it.

    See [the server](../server.md).
    """

    def record(self, record: AuditRecord) -> Any:
        """Store a record; may return an awaitable."""
        ...


Sink: TypeAlias = "AuditSink | Callable[[AuditRecord], Any]"


class MemoryAudit:
    """Stores records in a list, for tests.

    See [the server](../server.md).
    """

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def record(self, record: AuditRecord) -> None:
        self.records.append(record)


class LogAudit:
    """Writes records to the standard logger `holdfast.audit`.

    See [the server](../server.md).
    """

    def record(self, record: AuditRecord) -> None:
        LOGGER.info("%s", msgspec.json.encode(record).decode())


class FileAudit:
    """Appends records to a file, one line of JSON each. A new file can be read only by its owner;
    an existing file keeps its mode.

    See [the server](../server.md).
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def faults(self) -> Iterator[str]:
        """Yield the reasons why records cannot be written to the path. Creates no file."""
        try:
            if self._path.is_file() or self._path.is_dir():
                self._path.open("ab").close()
                return
            if self._path.exists():
                return  # a pipe or a device, where opening may block
            why = unmade(self._path) if self._path.parent.is_dir() else "its folder does not exist"
        except OSError as error:
            why = error.strerror
        if why is not None:
            yield (
                f"audit: {str(self._path)!r} cannot be written ({why}): create its folder, or use "
                "another path"
            )

    async def record(self, record: AuditRecord) -> None:
        await asyncio.to_thread(self._write, msgspec.json.encode(record) + b"\n")

    def _write(self, line: bytes) -> None:
        with open(self._path, "ab", opener=_private) as file:
            file.write(line)


def _private(path: str, flags: int) -> int:
    """Open a file. A new file can be read only by its owner."""
    return os.open(path, flags, 0o600)


def unmade(path: Path) -> str | None:
    """Return why a path and its missing parent folders cannot be created, or None if they exist or
    can be created. New folders are removed again."""
    above = path.absolute()
    try:
        while not above.exists():
            above = above.parent
        if not above.is_dir():
            return f"{str(above)!r} is not a folder"
        Path(tempfile.mkdtemp(dir=above)).rmdir()
    except OSError as error:
        return error.strerror
    return None


class Audit:
    """Passes records to a sink, in order and in the background. Errors of the sink are logged."""

    def __init__(self, sink: Sink | None, redactor: Redactor) -> None:
        self._take: Callable[[AuditRecord], Any] | None = getattr(sink, "record", None) or (
            sink if callable(sink) else None
        )
        self._redactor = redactor
        self._waiting: asyncio.Queue[AuditRecord] = asyncio.Queue(ROOM)
        self._task: asyncio.Task[None] | None = None

    def put(self, record: AuditRecord) -> None:
        """Queue a record for the sink. If the queue is full, the record is dropped and an error is
        logged."""
        if self._take is None:
            return
        try:
            self._waiting.put_nowait(masked(record, self._redactor))
        except asyncio.QueueFull:
            LOGGER.error("audit records are lost: the sink is too slow")
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name="audit")

    async def _drain(self) -> None:
        while not self._waiting.empty():
            record = self._waiting.get_nowait()
            try:
                assert self._take is not None
                done = self._take(record)
                if inspect.isawaitable(done):
                    await done
            except Exception as error:  # a custom sink may raise anything
                LOGGER.error(
                    "an audit record is lost, because the sink failed: %s", type(error).__name__
                )

    async def aclose(self) -> None:
        """Wait until all queued records were passed to the sink."""
        if self._task is not None:
            await self._task


def masked(record: AuditRecord, redactor: Redactor) -> AuditRecord:
    """Return a copy of the record with secrets masked, since its path may contain secrets."""
    hide = redactor.text
    return msgspec.structs.replace(
        record,
        path=hide(record.path),
        session=None if record.session is None else hide(record.session),
        principal=None if record.principal is None else hide(record.principal),
        target={name: hide(value) for name, value in record.target.items()},
    )

"""Log sinks: formatters, the kinds of sink, and the thread that writes to sinks that may block.

A sink receives records that are already redacted. It may be slow or fail: sinks that can block are
called in a separate thread, and no failure reaches the code that logs.
"""

from __future__ import annotations

import atexit
import contextvars
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ...redact import describe

Level: TypeAlias = Literal["debug", "info", "warning", "error", "silent"]
Format: TypeAlias = Literal["pretty", "json"]

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "silent": 100}
BACKLOG = 10_000  # records queued for slow sinks; more are dropped and counted
LINE = 1_000  # characters of a message on standard error
WHERE = ("tool", "model", "session", "thread", "run")  # fields shown after the message
PATIENCE = 5.0  # seconds that closing waits for slow sinks

_BREAKS = {n: f"\\x{n:02x}" for n in (*range(32), 127, 0x85, 0x2028, 0x2029)}
_BREAKS |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
# The standard attributes of a record; all other attributes were passed as `extra`.
STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "holdfast"}


def entry(record: logging.LogRecord) -> dict[str, Any]:
    """Convert a log record to a dict: time, level, logger and message, then its fields."""
    found: dict[str, Any] = {
        "at": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
        **getattr(record, "holdfast", {}),
    }
    found |= {key: value for key, value in vars(record).items() if key not in STANDARD}
    if trace := _trace(record):
        found["exception"] = trace
    return found


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _trace(record: logging.LogRecord) -> str | None:
    if record.exc_text:
        return record.exc_text
    if record.exc_info and record.exc_info[0]:
        return logging.Formatter().formatException(record.exc_info)
    return None


class JSONLFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        found = entry(record)
        try:
            return msgspec.json.encode(found, enc_hook=str).decode()
        except (TypeError, ValueError, OverflowError, RecursionError):
            return json.dumps(found, default=str, skipkeys=True)  # a lone surrogate, odd keys


class PrettyFormatter(logging.Formatter):
    """Formats a record as one readable line. Line breaks are escaped, so that a message cannot look
    like another record; a traceback follows on separate lines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {**entry(record), "exception": None}
        head = [_time(record).strftime("%H:%M:%S.%f")[:-3], f"{record.levelname:<7}"]
        for name in ("at", "level", "logger", "category", "event"):
            fields.pop(name, None)
        head.append(str(fields.pop("message")))
        rest = [f"{name}={_plain(value)}" for name, value in _flat(fields)]
        line = " ".join([*head, *rest]).translate(_BREAKS)
        if trace := _trace(record):
            line += "".join(f"\n    {row.translate(_BREAKS)}" for row in trace.splitlines())
        return line


class LineFormatter(logging.Formatter):
    """Formats a record as one line for the operator: the problem, and where it occurred. A
    traceback is shortened to the exception itself."""

    def format(self, record: logging.LogRecord) -> str:
        known = getattr(record, "holdfast", {})
        fields = {name: known[name] for name in WHERE if name in known} | known.get("fields", {})
        where = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
        where = where if len(where) <= LINE else f"{where[: LINE - 1]}…"
        text = _ends(record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {describe(record.exc_info[1])}"
        text = text if len(text) <= LINE else f"{text[: LINE - 1]}…"
        line = f"{record.levelname} {record.name}: {text}{f' ({where})' if where else ''}"
        return line.translate(_BREAKS)


def _ends(text: str) -> str:
    """Return the first and the last line of a text that has several lines."""
    lines = text.splitlines() or [""]
    return text if len(lines) == 1 else f"{lines[0]} … {lines[-1].strip()}"


def _flat(fields: dict[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in fields.items():
        if name in ("error", "fields") and isinstance(value, dict):
            prefix = "error." if name == "error" else ""
            flat += [(prefix + key, item) for key, item in value.items()]
        else:
            flat.append((name, value))
    return [(name, value) for name, value in flat if value is not None]


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, str) and value and " " not in value:
        return value
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ascii(value)


FORMATTERS: dict[str, type[logging.Formatter]] = {"pretty": PrettyFormatter, "json": JSONLFormatter}


class Structured(Protocol):
    """The methods of a structlog logger that a sink uses."""

    def bind(self, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...


Target: TypeAlias = (
    "logging.Handler | logging.Logger | str | os.PathLike[str] | Structured "
    "| Callable[[dict[str, Any]], object]"
)


class Sink(Struct, frozen=True):
    """A destination for log records, optionally with its own level and format."""

    to: Target
    level: Level | None = None
    format: Format | None = None


class MemorySink(logging.Handler):
    """Keeps records as dicts in `records`, for tests and debugging."""

    def __init__(self, level: Level | None = None) -> None:
        super().__init__(LEVELS[level] if level else logging.NOTSET)
        self.records: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(entry(record))

    def clear(self) -> None:
        self.records.clear()


@dataclass(eq=False)
class Outlet:
    """An opened sink: `give` passes it a record, and `close` closes it if it was opened here.
    `direct` means that it never blocks and is called without the separate thread."""

    name: str
    level: int
    give: Callable[[logging.LogRecord], object]
    close: Callable[[], None] = lambda: None
    direct: bool = False
    failures: int = 0


def prepared(sink: Sink, field: str, level: Level, format: Format) -> Outlet:
    """Create the `Outlet` of a sink. `level` is used if the sink has no level, `format` if the
    console has no format. A handler or logger belongs to the caller and is not closed. Raises
    `InvalidValue`."""
    to: Any = sink.to
    own = to.level if isinstance(to, logging.Handler) else 0
    least = LEVELS[sink.level] if sink.level else own or LEVELS[level]
    if isinstance(to, logging.Handler):
        direct = isinstance(to, MemorySink)
        return Outlet(type(to).__name__, least, to.handle, to.flush, direct)
    if isinstance(to, logging.Logger):
        return Outlet(type(to).__name__, least, partial(_log, to))
    if to == "console":
        formatter = FORMATTERS[sink.format or format]()
        return Outlet("console", least, partial(_print, formatter))
    if isinstance(to, (str, os.PathLike)) and os.fspath(to):
        file = LogFile(Path(os.fspath(to)), FORMATTERS[sink.format or "json"]())
        return Outlet(file.path.name, least, file.write, file.close)
    if hasattr(to, "bind") and hasattr(to, "info"):
        return Outlet("structlog", least, partial(_log_structured, to))
    if callable(to):  # the function is called directly, so it must not block
        name = getattr(to, "__name__", "function")
        return Outlet(name, least, lambda record: to(entry(record)), direct=True)
    raise InvalidValue(
        field=field,
        problem=f"is of type {type(to).__name__}",
        remedy="pass a path, 'console', a logging.Handler, a structlog logger or a function",
    )


def _log(logger: logging.Logger, record: logging.LogRecord) -> None:
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _log_structured(logger: Structured, record: logging.LogRecord) -> None:
    """Pass the fields of a record as fields to a structlog logger."""
    fields = entry(record)
    fields = {**fields.pop("fields", {}), **fields}
    for name in ("at", "level", "logger", "message", "event"):
        fields.pop(name, None)
    method = getattr(logger, record.levelname.lower(), logger.info)
    method(record.getMessage(), **fields)


def _print(formatter: logging.Formatter, record: logging.LogRecord) -> None:
    """Write a record to the current `sys.stderr`, which the program may have replaced."""
    sys.stderr.write(formatter.format(record) + "\n")
    sys.stderr.flush()


class LogFile:
    """A file to which records are appended as lines. It is opened when the first line is
    written."""

    def __init__(self, path: Path, formatter: logging.Formatter) -> None:
        self.path, self._formatter = path, formatter
        self._file: IO[str] | None = None

    def write(self, record: logging.LogRecord) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        self._file.write(self._formatter.format(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Drain:
    """Passes records in order to sinks that may block, in a separate thread. The thread starts with
    the first record. Each record is passed in the context in which it was logged. If the program
    exits without closing the sinks, `at_exit` is called."""

    def __init__(
        self, give: Callable[[logging.LogRecord], None], at_exit: Callable[[], None]
    ) -> None:
        self._give, self._at_exit = give, at_exit
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.dropped = 0

    def put(self, record: logging.LogRecord) -> None:
        """Queue a record without waiting. The record is dropped if the queue is full or closed."""
        if self._closed or self._queue.qsize() >= BACKLOG:
            self.dropped += 1
            return
        self._queue.put((contextvars.copy_context(), record))
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="holdfast-log", daemon=True)
                self._thread.start()
                atexit.register(self._at_exit)

    def flush(self) -> bool:
        """Wait until all queued records are written. Returns False after `PATIENCE` seconds."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(PATIENCE)

    def close(self) -> None:
        """Write the queued records, and end the thread."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self._at_exit)
            self._queue.put(None)
            thread.join(PATIENCE)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            context, record = item
            context.run(self._give, record)

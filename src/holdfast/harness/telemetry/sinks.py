"""Log sinks: formatters, and the kinds of sink.

A sink gets records that are already redacted. It may be slow or fail: sinks that can block run on a
separate thread, and no failure reaches the caller who logged.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

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
# The standard attributes of a record; all others came as `extra`.
STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "holdfast"}


def entry(record: logging.LogRecord) -> dict[str, Any]:
    """A record as a plain dict: time, level, message, then its fields."""
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
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        found = entry(record)
        try:
            return msgspec.json.encode(found, enc_hook=str).decode()
        except (TypeError, ValueError, OverflowError, RecursionError):
            return json.dumps(found, default=str, skipkeys=True)  # a lone surrogate, odd keys


class PrettyFormatter(logging.Formatter):
    """A readable line. Line breaks in it are escaped, so that no text can look like another
    record; a traceback follows on separate lines."""

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
    """One line for the operator: what went wrong, and where. Of a traceback, only the exception
    itself is shown."""

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
    """The first and the last line of a text with several lines."""
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
    """A structlog logger, or a compatible one."""

    def bind(self, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...


Target: TypeAlias = (
    "logging.Handler | logging.Logger | str | os.PathLike[str] | Structured "
    "| Callable[[dict[str, Any]], object]"
)


class Sink(Struct, frozen=True):
    """A target for records, optionally with its own level and format."""

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


class Outlet:
    """A prepared sink: `give` passes it a record, and `close` closes what was opened here.
    `direct` means that it never blocks."""

    direct = False

    def __init__(self, name: str, level: int) -> None:
        self.name, self.level = name, level
        self.failures = 0

    def give(self, record: logging.LogRecord) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing by default: nothing was opened."""


class ToHandler(Outlet):
    """A handler or logger of the standard library; it belongs to the caller and stays open."""

    def __init__(self, target: logging.Handler | logging.Logger, level: int) -> None:
        super().__init__(type(target).__name__, level)
        self._target = target
        self.direct = isinstance(target, MemorySink)

    def give(self, record: logging.LogRecord) -> None:
        target = self._target
        if isinstance(target, logging.Handler) or target.isEnabledFor(record.levelno):
            target.handle(record)

    def close(self) -> None:
        if isinstance(self._target, logging.Handler):
            self._target.flush()


class ToCallable(Outlet):
    """A function that takes a record as a dict. It is called synchronously, so it must not
    block."""

    direct = True

    def __init__(self, function: Callable[[dict[str, Any]], object], level: int) -> None:
        super().__init__(getattr(function, "__name__", "function"), level)
        self._function = function

    def give(self, record: logging.LogRecord) -> None:
        self._function(entry(record))


class ToStructured(Outlet):
    """A structlog logger: the fields of the record are passed as its fields."""

    def __init__(self, logger: Structured, level: int) -> None:
        super().__init__("structlog", level)
        self._logger = logger

    def give(self, record: logging.LogRecord) -> None:
        fields = entry(record)
        fields = {**fields.pop("fields", {}), **fields}
        for name in ("at", "level", "logger", "message", "event"):
            fields.pop(name, None)
        method = getattr(self._logger, record.levelname.lower(), self._logger.info)
        method(record.getMessage(), **fields)


class ToStream(Outlet):
    """Standard error, looked up for each record."""

    def __init__(self, formatter: logging.Formatter, level: int) -> None:
        super().__init__("console", level)
        self._formatter = formatter

    def give(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self._formatter.format(record) + "\n")
        sys.stderr.flush()


class ToFile(Outlet):
    """A file that lines are appended to; opened for the first line, and closed by `close`."""

    def __init__(self, path: Path, formatter: logging.Formatter, level: int) -> None:
        super().__init__(path.name, level)
        self._path, self._formatter = path, formatter
        self._file: IO[str] | None = None

    def give(self, record: logging.LogRecord) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8", errors="backslashreplace")
        self._file.write(self._formatter.format(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Drain:
    """Passes records to sinks that may block, in order, on a thread that starts with the first
    record. Each is passed in the context in which it was logged. If the program exits without
    closing, `at_exit` is called."""

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
        """Queue a record without waiting; it is dropped if the queue is full or closed."""
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
        """Wait until all queued records are passed on; False if that takes too long."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(PATIENCE)

    def close(self) -> None:
        """Pass on the queued records, and end the thread."""
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

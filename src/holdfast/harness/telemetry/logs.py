"""Logging: structured records under the standard logger `holdfast`, redacted before they are
written.

The harness and agents write to a `BoundLog`; `LogConfig` sets where records are written, in
addition to the standard library's handlers. Logging never raises.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from ...errors import InvalidValue
from ...log.codec import check_choice
from ...redact import DEFAULT_KEYS, Redactor, describe
from .sinks import (
    FORMATTERS,
    LEVELS,
    STANDARD,
    Drain,
    Format,
    JSONLFormatter,
    Level,
    LineFormatter,
    MemorySink,
    Outlet,
    PrettyFormatter,
    Sink,
    Target,
    prepared,
)

__all__ = [
    "CATEGORIES",
    "BoundLog",
    "Deltas",
    "JSONLFormatter",
    "LastResort",
    "LineFormatter",
    "LogConfig",
    "Logs",
    "MemorySink",
    "PrettyFormatter",
    "RedactingFilter",
    "Sink",
    "logging_configured",
]

CATEGORIES = (
    *("session", "run", "step", "context", "model", "tool", "approval"),
    *("snapshot", "storage", "sandbox", "agent"),
)
FIELDS = (
    *("category", "event", "session", "thread", "run", "step", "call"),
    *("tool", "model", "seconds", "error"),
)
ERROR = ("code", "category", "severity", "recoverable", "message")

LOGGER = logging.getLogger("holdfast")


class LogConfig(Struct, frozen=True, kw_only=True):
    """Where log records are written, and what they contain.

    A sink is a path (for JSON lines), `"console"`, a `logging.Handler` or `logging.Logger`, a
    structlog logger, or a function that takes a record as a dict; `Sink` adds a level and a format
    to one. `redact` is a `Redactor`, or names of additional secrets. With `propagate`, records also
    go to the handlers that the program has configured for the logger `holdfast`. Without sinks and
    handlers, warnings and errors of at least `level` are written to standard error.

    See [logging, errors, tracing](../logging.md).
    """

    level: Level = "info"
    sinks: Sequence[Target | Sink] = ()
    format: Format = "pretty"
    model_deltas: Literal["none", "summary", "full"] = "none"
    redact: Redactor | Sequence[str] = ()
    propagate: bool = True

    def __post_init__(self) -> None:
        check_choice("level", self.level, LEVELS)
        check_choice("format", self.format, FORMATTERS)
        check_choice("model_deltas", self.model_deltas, ("none", "summary", "full"))
        if isinstance(self.redact, str) or isinstance(self.sinks, (str, Mapping)):
            field = "redact" if isinstance(self.redact, str) else "sinks"
            raise InvalidValue(field=field, problem="is a single value", remedy="pass a list")
        list(_outlets(self))  # rejects invalid sinks

    def open(self) -> Logs:
        """Create the sinks. Each sink is opened when its first record is written."""
        return Logs(self)


class Logs:
    """The open sinks of one harness; `log` writes records to them. Closing flushes all sinks, and
    closes the sinks that were opened here, but not handlers and loggers of the caller."""

    def __init__(self, config: LogConfig) -> None:
        keys = config.redact
        self.redactor = (
            keys if isinstance(keys, Redactor) else Redactor(keys=[*DEFAULT_KEYS, *keys])
        )
        self.model_deltas = config.model_deltas
        self._propagate = config.propagate
        self._outlets = list(_outlets(config))
        self._direct = [outlet for outlet in self._outlets if outlet.direct]
        self._slow = [outlet for outlet in self._outlets if not outlet.direct]
        self._least = min((outlet.level for outlet in self._outlets), default=LEVELS["silent"])
        self._unheard = LEVELS["silent" if config.sinks else config.level]
        self._drain = Drain(lambda record: self._give(self._slow, record), self.close)
        self.log = BoundLog(self)

    @property
    def failures(self) -> dict[str, int]:
        """The number of records that each sink failed to write, and the number of records that were
        dropped."""
        found = {outlet.name: outlet.failures for outlet in self._outlets if outlet.failures}
        return {**found, "dropped": self._drain.dropped} if self._drain.dropped else found

    def enabled(self, level: int) -> bool:
        """Return whether any sink or handler accepts records of this level."""
        return level >= self._least or (self._propagate and LOGGER.isEnabledFor(level))

    def handle(self, record: logging.LogRecord) -> None:
        """Pass a redacted record to all sinks that accept it. Never raises an error, and never
        waits for a sink that was opened here."""
        self._give(self._direct, record)
        if any(record.levelno >= outlet.level for outlet in self._slow):
            self._drain.put(record)
        if self._propagate and (record.levelno >= self._unheard or logging_configured(LOGGER)):
            _tell(record)

    def _give(self, outlets: Iterable[Outlet], record: logging.LogRecord) -> None:
        for outlet in outlets:
            if record.levelno < outlet.level:
                continue
            try:
                outlet.give(record)
            except Exception as error:
                outlet.failures += 1
                if outlet.failures == 1:
                    _tell(_complaint(outlet.name, error))

    async def flush(self) -> None:
        """Wait until the sinks have written all records."""
        await asyncio.to_thread(self._drain.flush)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Write queued records, flush the caller's handlers, and close the sinks that were opened
        here. Safe to call twice."""
        self._drain.close()
        for outlet in self._outlets:
            try:
                outlet.close()
            except Exception:
                outlet.failures += 1

    async def __aenter__(self) -> Logs:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class BoundLog:
    """Writes log records with bound fields: `log.bind(run=run).info("started", category="run")`.

    `event` is a short name of what happened; `error` may be a fault or an exception. Standard
    fields are at the top level of a record, all other fields under `fields`.
    """

    def __init__(self, logs: Logs, fields: Mapping[str, Any] | None = None) -> None:
        self._logs = logs
        self._fields = dict(fields or {})

    def bind(self, **fields: Any) -> BoundLog:
        """Return a log that adds these fields to each record; None removes a field."""
        both = {**self._fields, **fields}
        return BoundLog(
            self._logs, {name: value for name, value in both.items() if value is not None}
        )

    def debug(self, event: str, /, *, message: str | None = None, **fields: Any) -> None:
        self._write(logging.DEBUG, event, message, fields)

    def info(self, event: str, /, *, message: str | None = None, **fields: Any) -> None:
        self._write(logging.INFO, event, message, fields)

    def warning(self, event: str, /, *, message: str | None = None, **fields: Any) -> None:
        self._write(logging.WARNING, event, message, fields)

    def error(self, event: str, /, *, message: str | None = None, **fields: Any) -> None:
        self._write(logging.ERROR, event, message, fields)

    def deltas(self, **fields: Any) -> Deltas:
        """Return an object that logs the streamed text of one model call, as configured by
        `model_deltas`."""
        return Deltas(self.bind(category="model", **fields), self._logs.model_deltas)

    def _write(self, level: int, event: str, message: str | None, fields: dict[str, Any]) -> None:
        if not self._logs.enabled(level):
            return
        both = {"category": "agent", **self._fields, **fields, "event": event}
        try:
            record = _record(level, message, both, self._logs.redactor)
        except Exception as error:
            note = {"category": "agent", "event": "unloggable"}
            record = _make(
                level, f"a log record could not be created: {type(error).__name__}", note
            )
        self._logs.handle(record)


class Deltas:
    """Logs the streamed text of one model call. In mode `full`, complete lines are logged, because
    redaction would not find a secret that is split between two records."""

    def __init__(self, log: BoundLog, mode: Literal["none", "summary", "full"]) -> None:
        self._log, self._mode = log, mode
        self._rest = ""
        self._count = self._characters = 0

    def add(self, text: str) -> None:
        self._count += 1
        self._characters += len(text)
        if self._mode == "full":
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
            if newline:
                self._log.info("delta", text=lines + newline)

    def end(self) -> None:
        """Log the rest of the text. Call this once, whether the model call succeeded or failed."""
        if self._mode == "full" and self._rest:
            self._log.info("delta", text=self._rest)
        elif self._mode == "summary" and self._count:
            self._log.info("deltas", count=self._count, characters=self._characters)
        self._rest, self._count = "", 0


class RedactingFilter(logging.Filter):
    """Logging filter that redacts a whole record: its message, arguments, extra fields and
    traceback. It can be added to any handler or logger, more than once; it never raises and drops
    no record."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._redactor = redactor or Redactor()

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            self._mask(record)
        except Exception as error:
            extra = [name for name in vars(record) if name not in STANDARD]
            for name in [*extra, "holdfast"]:
                vars(record).pop(name, None)
            record.msg = f"a log record could not be redacted: {type(error).__name__}"
            record.exc_info = record.exc_text = record.stack_info = None
        record.args = None
        return True

    def _mask(self, record: logging.LogRecord) -> None:
        mask = self._redactor
        record.msg = mask.text(_rendered(record, mask))
        trace = record.exc_text
        if record.exc_info and record.exc_info[0]:
            trace = trace or logging.Formatter().formatException(record.exc_info)
        record.exc_text = mask.text(trace) if trace else None
        record.exc_info = None  # other handlers would format it without redaction
        record.stack_info = mask.text(record.stack_info) if record.stack_info else None
        extra = {k: v for k, v in vars(record).items() if k not in STANDARD or k == "holdfast"}
        vars(record).update(mask(extra))


class LastResort(logging.Handler):
    """Log handler that writes each warning and error as one redacted line to standard error, as
    long as the program has not configured logging. It uses `logging.lastResort`. If the program has
    removed that handler, it writes nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._redactor = Redactor()
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        last = logging.lastResort
        if last is None or record.levelno < last.level:
            return
        if logging_configured(logging.getLogger(record.name)):
            return
        line = self._redactor.text(self.format(record))
        last.handle(logging.makeLogRecord({"msg": line, "levelno": record.levelno}))


def logging_configured(logger: logging.Logger) -> bool:
    """Return whether the program has configured a handler for this logger or one of its parents."""
    at: logging.Logger | None = logger
    while at is not None:
        if any(not isinstance(handler, LastResort) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


LOGGER.addHandler(LastResort())


def _record(
    level: int, message: str | None, given: dict[str, Any], redactor: Redactor
) -> logging.LogRecord:
    text = message or f"{given['category']} {given['event']}"
    trace = None
    if (error := given.get("error")) is not None:
        given["error"], trace = _error(error)
        text = message or _failure(given)
    known = {name: given[name] for name in FIELDS if given.get(name) is not None}
    if others := {name: value for name, value in given.items() if name not in FIELDS}:
        known["fields"] = others
    record = _make(level, redactor.text(text), redactor(known))
    record.exc_text = redactor.text(trace) if trace else None
    return record


def _make(level: int, message: str, fields: dict[str, Any]) -> logging.LogRecord:
    file, line, function, _ = LOGGER.findCaller(stacklevel=5)
    made = LOGGER.makeRecord(
        LOGGER.name, level, file, line, message, (), None, function, {"holdfast": fields}
    )
    made.args = None  # so that percent signs in the message are kept
    return made


def _error(error: Any) -> tuple[Any, str | None]:
    """Return the fields of a fault or an exception, and its traceback if there is one."""
    if isinstance(error, BaseException):
        facts = {
            "code": getattr(error, "code", None) or type(error).__name__,
            "message": describe(error),
        }
        raised = error.__traceback__ is not None
        return facts, "".join(traceback.format_exception(error)) if raised else None
    if all(hasattr(error, name) for name in ERROR):
        return {name: getattr(error, name) for name in ERROR}, getattr(error, "stack", None)
    return error, None


def _failure(given: Mapping[str, Any]) -> str:
    """Return the failure and its reason, for example `tool failed: ValueError: no such order`."""
    error = given["error"]
    why = error["message"] if isinstance(error, dict) and "message" in error else describe(error)
    return f"{str(given['event']).replace('_', ' ')}: {why}"


def _rendered(record: logging.LogRecord, mask: Redactor) -> str:
    """Return the formatted message. Its arguments are redacted first, because a secret in a dict
    can be recognized by its key."""
    if not record.args:
        return str(record.msg)
    args: Any = record.args
    try:
        if isinstance(args, Mapping):
            return str(str(record.msg) % mask(args))
        return str(record.msg) % tuple(
            arg if isinstance(arg, (str, int, float, BaseException)) else mask(arg) for arg in args
        )
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} {mask(args)}"


def _outlets(config: LogConfig) -> Iterator[Outlet]:
    for place, given in enumerate(config.sinks):
        field = f"sinks[{place}]"
        sink = given if isinstance(given, Sink) else Sink(given)
        if sink.level is not None:
            check_choice(f"{field}.level", sink.level, LEVELS)
        if sink.format is not None:
            check_choice(f"{field}.format", sink.format, FORMATTERS)
        yield prepared(sink, field, config.level, config.format)


def _tell(record: logging.LogRecord) -> None:
    """Pass a record to the program's handlers, and ignore their failures."""
    try:
        if LOGGER.isEnabledFor(record.levelno):
            LOGGER.handle(record)
    except Exception:  # noqa: S110 - it cannot be reported anywhere
        pass


def _complaint(name: str, error: Exception) -> logging.LogRecord:
    text = f"the log sink {name} failed: {type(error).__name__}"
    return _make(logging.WARNING, text, {"category": "agent", "event": "sink_failed"})

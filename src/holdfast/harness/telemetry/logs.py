"""Logging: structured records under the standard logger `holdfast`, masked before they leave.

A `Log` is what the harness and agents write to; `LogConfig` says where records go beside the
standard library's own handlers. Whatever fails in here, logging never raises.
"""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from msgspec import Struct

from ...errors import InvalidValue
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
    ToCallable,
    ToFile,
    ToHandler,
    ToStream,
    ToStructured,
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
    "shape",
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
KEYS_SHOWN = 8

LOGGER = logging.getLogger("holdfast")


class LogConfig(Struct, frozen=True, kw_only=True):
    """Where records go, and what they hold.

    A sink is a path (lines of JSON), `"console"`, a `logging.Handler` or `logging.Logger`, a
    logger of structlog, or a function of a record's dict; `Sink` gives one a level and a
    format of its own. `redact` is a `Redactor`, or names of more secrets. With `propagate`,
    records also go to the handlers that the program has set up for the logger `holdfast`. A
    program that has set up neither sinks nor handlers reads warnings and errors on standard
    error, from `level` on.
    """

    level: Level = "info"
    sinks: Sequence[Target | Sink] = ()
    format: Format = "pretty"
    model_deltas: Literal["none", "summary", "full"] = "none"
    redact: Redactor | Sequence[str] = ()
    propagate: bool = True

    def __post_init__(self) -> None:
        _one_of("level", self.level, LEVELS)
        _one_of("format", self.format, FORMATTERS)
        _one_of("model_deltas", self.model_deltas, ("none", "summary", "full"))
        if isinstance(self.redact, str) or isinstance(self.sinks, (str, Mapping)):
            field = "redact" if isinstance(self.redact, str) else "sinks"
            raise InvalidValue(field=field, problem="is a single value", remedy="pass a list")
        for place, sink in enumerate(self.sinks):
            _outlet(sink, self, f"sinks[{place}]")

    def open(self) -> Logs:
        """Make the sinks ready. Nothing is opened before there is something to write."""
        return Logs(self)


class Logs:
    """The open sinks of one harness. `log` is where to write; closing it flushes all sinks and
    closes those that were opened here, not what it was given."""

    def __init__(self, config: LogConfig) -> None:
        keys = config.redact
        self.redactor = (
            keys if isinstance(keys, Redactor) else Redactor(keys=[*DEFAULT_KEYS, *keys])
        )
        self.model_deltas = config.model_deltas
        self._propagate = config.propagate
        self._outlets = [
            _outlet(sink, config, f"sinks[{place}]") for place, sink in enumerate(config.sinks)
        ]
        self._direct = [outlet for outlet in self._outlets if outlet.direct]
        self._slow = [outlet for outlet in self._outlets if not outlet.direct]
        self._least = min((outlet.level for outlet in self._outlets), default=LEVELS["silent"])
        self._unheard = LEVELS["silent" if config.sinks else config.level]
        self._drain = Drain(lambda record: self._give(self._slow, record), self.close)
        self.log = BoundLog(self)

    @property
    def failures(self) -> dict[str, int]:
        """How many records each sink has failed to take, and how many came too fast."""
        found = {outlet.name: outlet.failures for outlet in self._outlets if outlet.failures}
        return {**found, "dropped": self._drain.dropped} if self._drain.dropped else found

    def enabled(self, level: int) -> bool:
        """Whether anybody wants records of this level."""
        return level >= self._least or (self._propagate and LOGGER.isEnabledFor(level))

    def handle(self, record: logging.LogRecord) -> None:
        """Hand a record that is masked to all that want it; never raises, never waits for a
        sink of ours."""
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
        """Wait until the sinks have all that was logged."""
        await asyncio.to_thread(self._drain.flush)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Give what waits, flush what is the caller's, close what is ours. Twice is fine."""
        self._drain.close()
        for outlet in self._outlets:
            try:
                outlet.close()
            except Exception:
                outlet.failures += 1

    async def __aenter__(self) -> Logs:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class BoundLog:
    """Writes records with bound fields: `log.bind(run=run).info("started", category="run")`.

    `event` is a short name; `error` may be a fault or an exception. Fields that every record
    knows stand at its top, all others under `fields`.
    """

    def __init__(self, logs: Logs, fields: Mapping[str, Any] | None = None) -> None:
        self._logs = logs
        self._fields = dict(fields or {})

    def bind(self, **fields: Any) -> BoundLog:
        """A log whose records also have these; None takes one away."""
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
        """What a model streams in one call, to be logged as the configuration says."""
        return Deltas(self.bind(category="model", **fields), self._logs.model_deltas)

    def _write(self, level: int, event: str, message: str | None, fields: dict[str, Any]) -> None:
        if not self._logs.enabled(level):
            return
        both = {"category": "agent", **self._fields, **fields, "event": event}
        try:
            record = _record(level, message, both, self._logs.redactor)
        except Exception as error:
            note = {"category": "agent", "event": "unloggable"}
            record = _make(level, f"a record could not be made: {type(error).__name__}", note)
        self._logs.handle(record)


class Deltas:
    """The text of one model call as it comes. In full it is logged by whole lines, so that a
    secret is not cut in two where no rule would know it."""

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
        """The call is over; called once, however it ended."""
        if self._mode == "full" and self._rest:
            self._log.info("delta", text=self._rest)
        elif self._mode == "summary" and self._count:
            self._log.info("deltas", count=self._count, characters=self._characters)
        self._rest, self._count = "", 0


class RedactingFilter(logging.Filter):
    """Masks all of a record: its message, arguments, extra fields and traceback. It can be
    put on any handler or logger, more than once; it never raises and drops nothing."""

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
            record.msg = f"a record could not be masked: {type(error).__name__}"
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
        record.exc_info = None  # others would write it out themselves
        record.stack_info = mask.text(record.stack_info) if record.stack_info else None
        extra = {k: v for k, v in vars(record).items() if k not in STANDARD or k == "holdfast"}
        vars(record).update(mask(extra))


class LastResort(logging.Handler):
    """Writes each warning and error as one masked line to standard error, as long as the program
    has set up no logging of its own. It stands in for `logging.lastResort`, and writes nothing
    where a program has taken that away."""

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
    """Whether a program has set up a handler that the records of a logger reach."""
    at: logging.Logger | None = logger
    while at is not None:
        if any(not isinstance(handler, LastResort) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


LOGGER.addHandler(LastResort())


def shape(value: Any) -> str:
    """What a value is like, without what it holds: `string(120)`, `object(a, b, …)`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return f"string({len(value)})"
    if isinstance(value, (bytes, bytearray)):
        return f"bytes({len(value)})"
    if isinstance(value, Struct):
        value = dict.fromkeys(value.__struct_fields__)
    if isinstance(value, Mapping):
        names = [str(key)[:40] for key, _ in zip(value, range(KEYS_SHOWN), strict=False)]
        return f"object({', '.join([*names, '…'] if len(value) > KEYS_SHOWN else names)})"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"array({len(value)})"
    return type(value).__name__


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
    made.args = None  # so that a percent sign in the message is one
    return made


def _error(error: Any) -> tuple[Any, str | None]:
    """An error's facts, and its traceback: of a fault, or of any exception."""
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
    """What failed and why, as `tool failed: ValueError: no such order`."""
    error = given["error"]
    why = error["message"] if isinstance(error, dict) and "message" in error else describe(error)
    return f"{str(given['event']).replace('_', ' ')}: {why}"


def _rendered(record: logging.LogRecord, mask: Redactor) -> str:
    """The message with its arguments, whose secrets are masked by their names too."""
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


def _outlet(sink: Target | Sink, config: LogConfig, field: str) -> Outlet:
    wrapped = sink if isinstance(sink, Sink) else Sink(sink)
    to: Any = wrapped.to
    if wrapped.level is not None:
        _one_of(f"{field}.level", wrapped.level, LEVELS)
    if wrapped.format is not None:
        _one_of(f"{field}.format", wrapped.format, FORMATTERS)
    own = to.level if isinstance(to, logging.Handler) else 0
    level = LEVELS[wrapped.level] if wrapped.level else own or LEVELS[config.level]
    if isinstance(to, (logging.Handler, logging.Logger)):
        return ToHandler(to, level)
    if to == "console":
        return ToStream(FORMATTERS[wrapped.format or config.format](), level)
    if isinstance(to, (str, os.PathLike)) and os.fspath(to):
        return ToFile(Path(os.fspath(to)), FORMATTERS[wrapped.format or "json"](), level)
    if hasattr(to, "bind") and hasattr(to, "info"):
        return ToStructured(to, level)
    if callable(to):
        return ToCallable(to, level)
    raise InvalidValue(
        field=field,
        problem=f"is {type(to).__name__}",
        remedy="pass a path, 'console', a logging.Handler, a logger of structlog or a function",
    )


def _one_of(field: str, value: Any, allowed: Iterable[str]) -> None:
    if value not in tuple(allowed):
        raise InvalidValue(
            field=field, problem=f"is {value!r}", remedy=f"use one of {', '.join(allowed)}"
        )


def _tell(record: logging.LogRecord) -> None:
    """To the handlers that the program has set up, which may fail as they like."""
    try:
        if LOGGER.isEnabledFor(record.levelno):
            LOGGER.handle(record)
    except Exception:  # noqa: S110 - there is nobody left to tell
        pass


def _complaint(name: str, error: Exception) -> logging.LogRecord:
    text = f"the log sink {name} failed: {type(error).__name__}"
    return _make(logging.WARNING, text, {"category": "agent", "event": "sink_failed"})

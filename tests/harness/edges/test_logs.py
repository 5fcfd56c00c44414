"""Logging: what a record holds, where it goes, what never gets in, what never comes back."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from msgspec import Struct

from holdfast.errors import InvalidValue, ModelTimeout
from holdfast.harness.faults import classify, make
from holdfast.harness.telemetry import sinks
from holdfast.harness.telemetry.logs import (
    CATEGORIES,
    JSONLFormatter,
    LogConfig,
    MemorySink,
    PrettyFormatter,
    RedactingFilter,
    Sink,
)
from holdfast.redact import Redactor

MASK = "[redacted]"
SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ456789"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def logged(*names: str, **config: Any) -> list[dict[str, Any]]:
    """What a memory sink has after one record of each level was written."""
    memory = MemorySink()
    async with LogConfig(sinks=[memory], **config).open() as logs:
        for name in names or ("debug", "info", "warning", "error"):
            getattr(logs.log, name)("said", n=name)
    return memory.records


# Records


async def test_a_record_has_known_fields_at_its_top_and_others_below() -> None:
    memory = MemorySink()
    async with LogConfig(sinks=[memory]).open() as logs:
        log = logs.log.bind(session="s1", thread="main", run="r1", category="tool")
        log.bind(step=2).info("finished", call="c1", tool="refund", seconds=0.5, args="object(id)")
    (record,) = memory.records
    assert record.pop("at").endswith("Z")
    assert list(record.items()) == [
        ("level", "info"),
        ("logger", "holdfast"),
        ("message", "tool finished"),
        ("category", "tool"),
        ("event", "finished"),
        ("session", "s1"),
        ("thread", "main"),
        ("run", "r1"),
        ("step", 2),
        ("call", "c1"),
        ("tool", "refund"),
        ("seconds", 0.5),
        ("fields", {"args": "object(id)"}),
    ]


@pytest.mark.parametrize("category", CATEGORIES)
async def test_every_category_can_be_logged(category: str) -> None:
    memory = MemorySink()
    async with LogConfig(sinks=[memory]).open() as logs:
        logs.log.bind(category=category).warning("seen", message="In so many words.")
    (record,) = memory.records
    assert (record["category"], record["message"]) == (category, "In so many words.")


async def test_a_fault_is_logged_by_its_facts_and_its_traceback() -> None:
    memory = MemorySink()
    async with LogConfig(sinks=[memory]).open() as logs:
        try:
            raise ModelTimeout(model="m", problem=f"no answer for {SECRET}")
        except ModelTimeout as error:
            logs.log.error("failed", error=classify(error, source="model"))
            logs.log.error("failed", error=error)
        logs.log.warning("stopped", error=make("limit_steps", "50 steps"))
    fault, plain, limit = memory.records
    assert fault["error"] == {
        "code": "model_timeout",
        "category": "model",
        "severity": "warn",
        "recoverable": False,
        "message": f"ModelTimeout: m: no answer for {MASK}",
    }
    assert plain["error"] == {"code": "model_timeout", "message": fault["error"]["message"]}
    for record in (fault, plain):
        assert "test_logs.py" in record["exception"]
    assert limit["error"]["message"] == "50 steps"
    assert "exception" not in limit
    assert SECRET not in str(memory.records)


async def test_binding_leaves_the_log_it_came_from_as_it_was() -> None:
    memory = MemorySink()
    async with LogConfig(sinks=[memory]).open() as logs:
        bound = logs.log.bind(run="r1", colour="red")
        bound.bind(run=None, colour=None).info("a")
        bound.info("b")
        logs.log.info("c")
    assert [(r.get("run"), r.get("fields")) for r in memory.records] == [
        (None, None),
        ("r1", {"colour": "red"}),
        (None, None),
    ]
    memory.clear()
    assert memory.records == []


class Hostile(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(SECRET)

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


async def test_what_cannot_be_logged_is_said_to_be_so() -> None:
    memory = MemorySink()
    async with LogConfig(sinks=[memory]).open() as logs:
        logs.log.info("odd", value=Hostile())
        logs.log.info("after", message="100% sure %s")
    assert [r["event"] for r in memory.records] == ["unloggable", "after"]
    assert memory.records[1]["message"] == "100% sure %s"
    assert SECRET not in str(memory.records)


# Levels and sinks


@pytest.mark.parity("harness-kernel", 138)
async def test_sinks_alone_are_enough_to_log() -> None:
    assert [record["level"] for record in await logged()] == ["info", "warning", "error"]


@pytest.mark.parity("harness-kernel", 139)
@pytest.mark.parametrize(
    ("level", "own", "seen"),
    [
        ("debug", None, "debug info warning error"),
        ("info", None, "info warning error"),
        ("warning", None, "warning error"),
        ("error", None, "error"),
        ("silent", None, ""),
        ("error", "debug", "debug info warning error"),
        ("debug", "error", "error"),
        ("silent", "warning", "warning error"),
        ("debug", "silent", ""),
    ],
)
async def test_each_sink_has_the_level_of_all_or_its_own(
    level: Any, own: Any, seen: str, tmp_path: Path
) -> None:
    by_wrapper, by_itself = MemorySink(), MemorySink(level=own)
    called: list[dict[str, Any]] = []
    path = tmp_path / "log.jsonl"
    given: list[Any] = [
        Sink(by_wrapper, level=own),
        by_itself,
        Sink(called.append, own),
        Sink(path, own),
    ]
    async with LogConfig(level=level, sinks=given).open() as logs:
        for name in ("debug", "info", "warning", "error"):
            getattr(logs.log, name)("said")
    wanted = seen.split()
    assert [r["level"] for r in by_wrapper.records] == wanted
    assert [r["level"] for r in by_itself.records] == wanted
    assert [r["level"] for r in called] == wanted
    assert [r["level"] for r in (lines(path) if wanted else [])] == wanted
    assert path.exists() is bool(wanted)


@pytest.mark.parity("harness-kernel", 139)
async def test_a_file_gets_one_object_of_json_a_line(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "log.jsonl"
    odd: dict[str, Any] = {
        "nan": float("nan"),
        "lone": "\ud800",
        "lines": "a\nb\u2028c",
        "odd": {1, 2},
        "o": path,
    }
    for turn in (1, 2):
        async with LogConfig(sinks=[path]).open() as logs:
            for n in range(50):
                logs.log.info("counted", n=n, turn=turn, **odd)
    found = lines(path)
    assert [(r["fields"]["turn"], r["fields"]["n"]) for r in found] == [
        (turn, n) for turn in (1, 2) for n in range(50)
    ]
    assert found[0]["fields"]["lines"] == "a\nb\u2028c"
    assert path.read_bytes().count(b"\n") == 100


@pytest.mark.parity("harness-kernel", 139)
@pytest.mark.parametrize("format", ["pretty", "json"])
async def test_the_console_has_the_format_that_was_asked_for(
    format: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async with LogConfig(sinks=["console"], format=format).open() as logs:
        logs.log.info("started", category="run", run="r1", seconds=1.5, note="two words")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    if format == "json":
        assert json.loads(err)["run"] == "r1"
    else:
        assert err.endswith('INFO    run started run=r1 seconds=1.5 note="two words"\n')


def test_a_pretty_line_cannot_be_made_to_look_like_two() -> None:
    record = logging.makeLogRecord(
        {
            "msg": "hello\n09:00:00 ERROR forged\x1b[31m",
            "levelname": "INFO",
            "holdfast": {"category": "run", "fields": {"x": "a\r\nb"}},
            "exc_text": "Traceback\n  one",
        }
    )
    first, *rest = PrettyFormatter().format(record).splitlines()
    assert "hello\\n09:00:00 ERROR forged\\x1b[31m" in first
    assert "x=a\\r\\nb" in first
    assert rest == ["    Traceback", "      one"]


async def test_a_handler_and_a_logger_are_sinks_and_stay_the_callers() -> None:
    class Kept(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []
            self.flushed = self.closed = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.seen.append(self.format(record))

        def flush(self) -> None:
            self.flushed += 1

        def close(self) -> None:
            self.closed += 1
            super().close()

    handler, other = Kept(), Kept()
    handler.setFormatter(JSONLFormatter())
    logger = logging.Logger("mine", logging.ERROR)
    logger.addHandler(other)
    logs = LogConfig(sinks=[handler, logger]).open()
    logs.log.info("a", token=SECRET)
    logs.log.error("b")
    await logs.flush()
    assert [json.loads(text)["event"] for text in handler.seen] == ["a", "b"]
    assert other.seen == ["agent b"]
    await logs.aclose()
    await logs.aclose()
    assert (handler.closed, other.closed) == (0, 0)
    assert handler.flushed > 0
    logs.log.info("after the end")
    handler.close()


async def test_structlog_is_recognised() -> None:
    capture = structlog.testing.LogCapture()
    logger = structlog.wrap_logger(None, processors=[capture]).bind(app="shop")
    async with LogConfig(sinks=[logger]).open() as logs:
        logs.log.bind(run="r1").warning("slow", category="model", seconds=2.5, api_key="x", n=1)
    (entry,) = capture.entries
    assert entry == {
        "app": "shop",
        "event": "model slow",
        "log_level": "warning",
        "category": "model",
        "run": "r1",
        "seconds": 2.5,
        "api_key": MASK,
        "n": 1,
    }


async def test_the_standard_logger_has_every_record_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        async with LogConfig().open() as logs:
            logs.log.info("started", category="run", password="x")
            logs.log.debug("unseen")
        async with LogConfig(propagate=False).open() as logs:
            logs.log.error("unseen")
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("holdfast", "run started")
    assert record.funcName == "test_the_standard_logger_has_every_record_too"
    assert vars(record)["holdfast"] == {
        "category": "run",
        "event": "started",
        "fields": {"password": MASK},
    }


# What fails, and what is slow


class Failing(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError(f"no room for {SECRET}")


class FailingStructured:
    def bind(self, **fields: Any) -> FailingStructured:
        return self

    def info(self, event: str, **fields: Any) -> None:
        raise OSError(SECRET)


def failing(record: dict[str, Any]) -> None:
    raise KeyError(SECRET)


@pytest.mark.parity("harness-kernel", 142)
async def test_a_sink_that_fails_hurts_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory, path = MemorySink(), tmp_path / "log.jsonl"
    bad: list[Any] = [failing, Failing(), tmp_path, FailingStructured()]
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with LogConfig(sinks=[*bad, memory, path]).open() as logs:
            for n in range(3):
                logs.log.info("counted", n=n)
            await logs.flush()
            assert logs.failures == {
                "failing": 3,
                "Failing": 3,
                tmp_path.name: 3,
                "structlog": 3,
            }
    assert [r["fields"]["n"] for r in memory.records] == [0, 1, 2]
    assert [r["fields"]["n"] for r in lines(path)] == [0, 1, 2]
    assert len(caplog.records) == 4  # each is complained of once
    assert SECRET not in caplog.text


@pytest.mark.parity("harness-kernel", 142)
async def test_a_handler_of_the_program_that_fails_hurts_nobody() -> None:
    memory, handler = MemorySink(), Failing()
    logger = logging.getLogger("holdfast")
    logger.addHandler(handler)
    try:
        async with LogConfig(sinks=[memory]).open() as logs:
            logs.log.error("said")
    finally:
        logger.removeHandler(handler)
    assert [r["event"] for r in memory.records] == ["said"]


class Gated(logging.Handler):
    """Blocks each record until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.seen: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert self.gate.wait(60)
        self.seen.append(vars(record)["holdfast"]["fields"]["n"])


async def test_a_sink_that_blocks_does_not_block_the_loop() -> None:
    handler, memory = Gated(), MemorySink()
    async with LogConfig(sinks=[handler, memory]).open() as logs:
        for n in range(20):
            logs.log.info("counted", n=n)
        await asyncio.sleep(0)
        assert (len(memory.records), handler.seen) == (20, [])
        handler.gate.set()
    assert handler.seen == list(range(20))


async def test_what_comes_too_fast_for_a_sink_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinks, "BACKLOG", 10)
    handler = Gated()
    async with LogConfig(sinks=[handler]).open() as logs:
        for n in range(100):
            logs.log.info("counted", n=n)
        dropped = logs.failures["dropped"]
        handler.gate.set()
    assert dropped >= 89
    assert len(handler.seen) == 100 - dropped


async def test_a_sink_sees_the_context_in_which_was_logged() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")
    seen: list[tuple[str, str]] = []

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((vars(record)["holdfast"]["event"], request.get()))

    async with LogConfig(sinks=[Asking()]).open() as logs:

        async def serve(name: str) -> None:
            request.set(name)
            logs.log.info(name)

        await asyncio.gather(*(asyncio.create_task(serve(name)) for name in "abc"))
    assert sorted(seen) == [("a", "a"), ("b", "b"), ("c", "c")]


def test_a_program_that_forgets_to_close_loses_no_record(tmp_path: Path) -> None:
    program = """
from holdfast.harness.telemetry.logs import LogConfig
logs = LogConfig(sinks=["log.jsonl"]).open()
for n in range(500):
    logs.log.info("counted", n=n)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [r["fields"]["n"] for r in lines(tmp_path / "log.jsonl")] == list(range(500))


# Secrets


class Login(Struct):
    user: str
    password: str


@pytest.mark.parity("user-demand", 57)
@pytest.mark.parity("harness-kernel", 140)
async def test_no_secret_gets_into_any_sink(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    redactor, memory, path = Redactor(), MemorySink(), tmp_path / "log.jsonl"
    redactor.learn("hunter2!")
    called: list[dict[str, Any]] = []
    given: list[Any] = [memory, path, "console", called.append]
    with caplog.at_level(logging.DEBUG, "holdfast"):
        async with LogConfig(sinks=given, redact=redactor).open() as logs:
            log = logs.log.bind(url="db://u:hunter2!@h")
            try:
                raise RuntimeError("cannot log in with hunter2!")
            except RuntimeError as error:
                log.error(
                    "failed", message="with hunter2!", error=error, deep=[{"a": {"cookie": "S3"}}]
                )
            log.info("known", login=Login("ann", "S3"), text="apiKey=S3", usage={"tokens": 5})
    texts = [str(memory.records), path.read_text(), capsys.readouterr().err, str(called)]
    for text in [*texts, caplog.text, str([vars(r) for r in caplog.records])]:
        assert "failed" in text or "with" in text
        assert "hunter2!" not in text
        assert "S3" not in text
    assert memory.records[1]["fields"]["usage"] == {"tokens": 5}


async def test_names_of_more_secrets_are_added_to_the_known_ones() -> None:
    memory = MemorySink()
    async with LogConfig(sinks=[memory], redact=["customerNumber"]).open() as logs:
        logs.log.info("x", customer_number="1", password="2", other="3")
    assert memory.records[0]["fields"] == {
        "customer_number": MASK,
        "password": MASK,
        "other": "3",
    }


def raised(error: BaseException) -> Any:
    try:
        raise error
    except BaseException:
        return sys.exc_info()


@pytest.mark.parity("harness-kernel", 140)
@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"msg": "token=%s", "args": ("S3",)}, f"token={MASK}"),
        ({"msg": "url %s %d", "args": ("db://u:S3@h", 5)}, f"url db://u:{MASK}@h 5"),
        ({"msg": "got %s", "args": ({"password": "S3", "a": 1},)}, "got"),
        ({"msg": "%(password)s %(a)s", "args": ({"password": "S3", "a": 1},)}, f"{MASK} 1"),
        ({"msg": "%d", "args": ("password=S3",)}, "%d"),
        ({"msg": ValueError("secret: S3")}, f"secret: {MASK}"),
        ({"msg": "x", "headers": {"Authorization": "Negotiate S3"}}, "x"),
        ({"msg": "x", "exc_info": raised(ValueError("password=S3"))}, f"password={MASK}"),
        ({"msg": "x", "stack_info": "Stack:\n password=S3"}, f"password={MASK}"),
        ({"msg": "x", "holdfast": {"fields": {"secret": "S3"}}}, "x"),
        ({"msg": "100%", "args": None}, "100%"),
        ({"msg": "x", "odd": Hostile(), "also": {"password": "S3"}}, "could not be redacted"),
    ],
)
def test_the_filter_masks_all_of_a_record(record: dict[str, Any], expected: str) -> None:
    for times in (1, 2):
        made = logging.makeLogRecord({"levelname": "INFO", **record})
        if isinstance(record.get("args"), tuple) and isinstance(record["args"][0], dict):
            made.args = record["args"][0] if "%(" in record["msg"] else record["args"]
        for _ in range(times):
            assert RedactingFilter().filter(made)
        for formatter in (logging.Formatter(), JSONLFormatter(), PrettyFormatter()):
            text = formatter.format(made)
            assert "S3" not in text
        assert "S3" not in str(vars(made))
        assert expected in logging.Formatter().format(made)


def test_the_filter_serves_a_logger_that_is_not_ours() -> None:
    memory = MemorySink()
    memory.addFilter(RedactingFilter(Redactor(values=["hunter2!"])))
    logger = logging.Logger("theirs")
    logger.addHandler(memory)
    argument = {"password": "x"}
    logger.warning("with hunter2! and %s", argument, extra={"request": {"cookie": "y"}})
    assert memory.records[0]["message"] == f"with {MASK} and {{'password': '{MASK}'}}"
    assert memory.records[0]["request"] == {"cookie": MASK}
    assert argument == {"password": "x"}


# What models stream


@pytest.mark.parity("harness-kernel", 143)
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("none", []),
        ("summary", [("deltas", {"count": 4, "characters": 21})]),
        ("full", [("delta", {"text": "one two\n"}), ("delta", {"text": f"key={MASK}!"})]),
    ],
)
async def test_deltas_are_logged_as_asked_for(mode: Any, expected: list[Any]) -> None:
    memory = MemorySink()
    redactor = Redactor(values=["secret-9"])
    async with LogConfig(sinks=[memory], model_deltas=mode, redact=redactor).open() as logs:
        deltas = logs.log.bind(run="r1").deltas(model="openai/x")
        for text in ("one ", "two\nkey=", "secre", "t-9!"):
            deltas.add(text)
        deltas.end()
        deltas.end()
    assert [(r["event"], r["fields"]) for r in memory.records] == expected
    for record in memory.records:
        assert (record["category"], record["model"], record["run"]) == ("model", "openai/x", "r1")


async def test_nothing_is_said_of_a_call_that_streamed_nothing() -> None:
    for mode in ("none", "summary", "full"):
        memory = MemorySink()
        async with LogConfig(sinks=[memory], model_deltas=mode).open() as logs:
            logs.log.deltas().end()
        assert memory.records == []


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("level", {"level": "loud"}),
        ("format", {"format": "xml"}),
        ("model_deltas", {"model_deltas": True}),
        ("sinks", {"sinks": "console"}),
        ("redact", {"redact": "password"}),
        ("sinks[1]", {"sinks": ["console", 5]}),
        ("sinks[0]", {"sinks": [""]}),
        ("sinks[0].level", {"sinks": [Sink("console", level="loud")]}),  # type: ignore[arg-type]
        ("sinks[0].format", {"sinks": [Sink("x", format="xml")]}),  # type: ignore[arg-type]
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as caught:
        LogConfig(**given)
    assert caught.value.field == field

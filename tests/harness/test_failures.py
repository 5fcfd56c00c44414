"""What a program learns of a failure that has set up no logging: a line on standard error, the
cause of the exception, and what to do where the configuration is wrong."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Agent, ErrorPolicy, Harness, MissingExtra, ModelError, Result, RunFailed, sync
from holdfast.models import ScriptedModel
from holdfast.models.port import ModelCall, TextChunk
from holdfast.models.scripted import Fail
from holdfast.values.result import Result as Kept
from tests import forks

PROGRAM = """
import asyncio
import logging
import sys
import holdfast
from holdfast import Agent, Harness, LogConfig, tool
from holdfast.models import Say, ScriptedModel, Use

@tool
async def charge(card: str) -> str:
    \"\"\"Charge a card.\"\"\"
    raise ValueError(f"declined\\npassword=hunter2 for {card}")

def quiet(record):
    pass

async def main(model, **settings):
    agent = Agent("shop", instructions="Help.", tools=[charge])
    async with Harness(agent, default_model=model, **settings) as harness:
        result = await harness.send("customer-42", "go")
        print(result.status, result.run, result.error)

charging = ScriptedModel([Say("", calls=[Use("charge", card="4242")]), "Done."])
"""


def ran(program: str, tmp_path: Path) -> tuple[str, list[str]]:
    """What a program of its own prints, and its lines on standard error."""
    environ = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    ended = forks.run(
        *("-c", PROGRAM + program),
        needs=("holdfast.harness",),
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.strip(), ended.stderr.splitlines()


def test_a_tool_that_raises_is_one_masked_line_on_stderr(tmp_path: Path) -> None:
    out, err = ran("asyncio.run(main(charging))", tmp_path)
    status, run, _ = out.split()
    assert status == "done"
    (line,) = err
    assert line.startswith("WARNING holdfast: tool failed: ValueError: declined")
    for part in ("password=[redacted]", "tool=charge", "session=customer-42", f"run={run}"):
        assert part in line
    assert "hunter2" not in line


def test_a_missing_key_is_one_line_on_stderr_and_in_the_result(tmp_path: Path) -> None:
    out, err = ran('asyncio.run(main("openai/gpt-5.1"))', tmp_path)
    status, run, error = out.split(maxsplit=2)
    assert status == "failed"
    assert error.startswith("The model call failed. Set OPENAI_API_KEY, or pass providers=[")
    (line,) = err
    assert line.startswith("ERROR holdfast: run failed: ModelError: openai/gpt-5.1: the key or the")
    for part in ("set OPENAI_API_KEY", "model=openai/gpt-5.1", "session=customer-42", f"run={run}"):
        assert part in line


@pytest.mark.parametrize(
    "program",
    [
        'asyncio.run(main(charging, logging=LogConfig(level="silent")))',
        "asyncio.run(main(charging, logging=LogConfig(propagate=False)))",
        "asyncio.run(main(charging, logging=LogConfig(sinks=[quiet])))",
        'asyncio.run(main(charging, logging=LogConfig(level="error")))',
        'logging.getLogger("holdfast").addHandler(logging.NullHandler())\n'
        "asyncio.run(main(charging))",
        "logging.getLogger('holdfast').setLevel(logging.CRITICAL)\nasyncio.run(main(charging))",
        "logging.basicConfig(stream=sys.stdout, level='CRITICAL')\nasyncio.run(main(charging))",
        "logging.lastResort = None\nasyncio.run(main(charging))",
    ],
)
def test_what_a_program_has_set_up_stays_as_it_was(program: str, tmp_path: Path) -> None:
    assert ran(program, tmp_path)[1] == []


def test_a_program_with_handlers_reads_each_record_once(tmp_path: Path) -> None:
    _, err = ran("logging.basicConfig()\nasyncio.run(main(charging))", tmp_path)
    first, *trace = err
    assert first.startswith("WARNING:holdfast:tool failed: ValueError: declined")
    assert trace[0] == "password=[redacted] for 4242"
    assert sum("tool failed" in line for line in err) == 1
    assert "hunter2" not in "\n".join(err)


def test_other_loggers_of_ours_are_masked_and_on_one_line_too(tmp_path: Path) -> None:
    program = """
log = logging.getLogger("holdfast.server")
holdfast.Harness
log.error("request r1 failed: %s", "Traceback\\n  in f\\nOSError: postgresql://ann:hunter2@db")
try:
    raise RuntimeError("Authorization: Bearer abcdefghijklmnop")
except RuntimeError:
    log.exception("it broke")
log.info("unseen")
"""
    _, err = ran(program, tmp_path)
    assert err == [
        "ERROR holdfast.server: request r1 failed: Traceback … "
        "OSError: postgresql://ann:[redacted]@db",
        "ERROR holdfast.server: it broke: RuntimeError: Authorization: Bearer [redacted]",
    ]


# The cause


class Broken(Exception):
    """Whatever a model of the program's own raises."""


def agent(**parts: Any) -> Agent:
    return Agent("shop", **{"instructions": "Help.", **parts})


async def test_the_exception_of_a_failed_run_has_its_cause() -> None:
    broken = Broken("disk 7")
    async with Harness(agent(), default_model=ScriptedModel([Fail(broken)])) as harness:
        result = await harness.send("s", "go")
        with pytest.raises(RunFailed) as caught:
            result.raise_for_status()
    assert caught.value.__cause__ is result.cause is broken
    assert "disk 7" not in str(caught.value)


def test_so_it_is_without_await() -> None:
    broken = Broken("disk 7")
    with sync.Harness(agent(), default_model=ScriptedModel([Fail(broken)])) as harness:
        with pytest.raises(RunFailed) as caught:
            harness.send("s", "go").raise_for_status()
        assert caught.value.__cause__ is broken


async def test_a_context_that_fails_is_the_cause_too() -> None:
    def instructions(session: Any) -> str:
        raise Broken("no such plan")

    async with Harness(agent(instructions=instructions), default_model=ScriptedModel(["hi"])) as h:
        result = await h.send("s", "go")
    assert result.code == "context_failed"
    assert isinstance(result.cause, Broken)


async def test_a_cause_stays_in_the_process_and_out_of_what_is_kept(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'shop.db'}"
    model = ScriptedModel([Fail(Broken("disk 7"))])
    async with Harness(agent(), default_model=model, store=store) as harness:
        result = await harness.send("s", "go")
    async with Harness(agent(), default_model=ScriptedModel(["hi"]), store=store) as harness:
        elsewhere = await (await harness.open("s")).wait()
    assert (elsewhere.status, elsewhere.cause) == ("failed", None)
    with pytest.raises(RunFailed) as caught:
        elsewhere.raise_for_status()
    assert caught.value.__cause__ is None
    for copy in (
        pickle.loads(pickle.dumps(result)),
        msgspec.json.decode(encoded(result), type=Kept),
    ):
        assert (copy, copy.cause) == (result, None)
    assert b"disk 7" not in encoded(result)


def encoded(result: Result) -> bytes:
    return msgspec.json.encode(result)


async def test_a_run_that_recovers_has_no_cause() -> None:
    model = ScriptedModel(["hi"])
    first = ScriptedModel([Fail(Broken("disk 7"))], ref="scripted/first")
    settings: dict[str, Any] = {"providers": [model], "fallback_models": [model.ref]}
    async with Harness(agent(), default_model=first, **settings) as harness:
        result = await harness.send("s", "go")
    assert (result.status, result.cause) == ("done", None)


# What to do


class Raises:
    """A model that fails by one error."""

    ref = "lab/model"

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    async def stream(self, call: ModelCall) -> Any:
        if self.error is not None:
            raise self.error
        yield TextChunk("never")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ModelError(model="lab/model", problem="vendor words", remedy="set LAB_API_KEY"),
            "The model call failed. Set LAB_API_KEY.",
        ),
        (
            MissingExtra(extra="models", needed_for="lab/model"),
            "The model call failed. Install an optional package: pip install 'holdfast[models]'.",
        ),
        (ModelError(model="lab/model", problem="vendor words"), "The model call failed."),
        (ValueError("set LAB_API_KEY"), "The model call failed."),
    ],
)
async def test_users_read_what_to_do_where_our_own_error_says_it(
    error: Exception, said: str
) -> None:
    async with Harness(agent(), default_model=Raises(error)) as harness:
        result = await harness.send("s", "go")
    assert (result.code, result.error) == ("model_failed", said)
    shown = ErrorPolicy(expose_internal_errors=True)
    async with Harness(agent(), default_model=Raises(error), error_policy=shown) as harness:
        result = await harness.send("s", "go")
    assert str(error) in (result.error or "")


async def test_a_model_that_is_not_served_any_more_is_named(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'shop.db'}"
    other, model = ScriptedModel(["hi"], ref="lab/old"), ScriptedModel(["hi"])
    async with Harness(agent(), default_model=model, providers=[other], store=store) as harness:
        session = await harness.get_or_create("s")
        await session.model.set("lab/old")
        assert (await session.send("go")).status == "done"
    async with Harness(agent(), default_model=model, store=store) as harness:
        result = await harness.send("s", "go")
    assert result.status == "failed"
    assert "Add a provider for 'lab/old', or choose another model" in (result.error or "")

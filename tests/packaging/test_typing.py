"""The annotations as type checkers see them in a user's program: what is right passes, and what is
wrong is reported, by mypy and by pyright."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node import node, node_modules

CHECKERS = Path(__file__).parent / "checkers"
PROGRAM = '''
import asyncio
from typing import assert_type

import holdfast
from holdfast import Agent, Harness, HoldfastError, NewEvent, Result, RunContext, Session, tool


@tool(approval="ask")
async def refund(ctx: RunContext, order: str, cents: int) -> str:
    """Refund an order."""
    return f"refunded {cents} of {order}"


@tool
def look_up(order: str) -> str:
    """Look up an order."""
    return order


agent = Agent("shop", instructions="Help with orders.", tools=[refund, look_up])


async def main() -> None:
    async with Harness(agent, store="sqlite:shop.db") as harness:
        assert_type(harness, Harness)
        session = await harness.get_or_create("customer-42", user="ann")
        assert_type(session, Session)
        result = await session.send("refund order 42")
        assert_type(result, Result)
        assert_type(result.text, str)
        for ask in result.pending:
            await session.approve(ask.id, reason="seen")
        async for item in session.subscribe():
            print(item)
    async with holdfast.connect("memory:") as store:
        appended = await store.append(
            holdfast.key("s"), [NewEvent.of("session.created")], create=True
        )
        print(appended)


def blocking() -> None:
    try:
        asyncio.run(main())
    except HoldfastError as error:
        assert_type(error.code, str)
        assert_type(error.docs, str)
'''
WRONG = {
    "Agent(3, instructions='x')": "int for a name",
    "NewEvent.of(3)": "int for a kind",
    "holdfast.connect(url=3)": "int for a URL",
}


MISTAKES = "import holdfast\nfrom holdfast import Agent, NewEvent\n" + "\n".join(WRONG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right program, and one in which each of the last lines is wrong."""
    place = tmp_path_factory.mktemp("typing")
    (place / "program.py").write_text(PROGRAM)
    (place / "mistakes.py").write_text(MISTAKES)
    return place


@pytest.fixture(scope="module")
def by_mypy(folder: Path) -> set[tuple[str, int]]:
    """The files and lines with errors, by mypy as a user without settings of ours runs it. One run
    for both files, because it checks the whole library each time."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"]
    command += ["--cache-dir=/dev/null", "program.py", "mistakes.py"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert said.returncode in (0, 1), said.stderr
    found = [json.loads(line) for line in said.stdout.splitlines() if line[:1] == "{"]
    return {(one["file"], one["line"]) for one in found}


@pytest.fixture(scope="module")
def by_pyright(folder: Path) -> set[tuple[str, int]]:
    """The files and lines with errors, by pyright in strict mode."""
    settings = {"typeCheckingMode": "strict", "include": ["program.py", "mistakes.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    script = node_modules(CHECKERS) / "pyright" / "index.js"
    command = [str(node()), str(script), "--outputjson", "--pythonpath", sys.executable]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads(said.stdout)
    assert report["summary"]["filesAnalyzed"] == 2, said.stderr
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors}


EXPECTED = {("mistakes.py", 3), ("mistakes.py", 4), ("mistakes.py", 5)}


def test_mypy_accepts_a_users_program_and_reports_mistakes(by_mypy: set[tuple[str, int]]) -> None:
    assert by_mypy == EXPECTED


def test_pyright_accepts_a_users_program_and_reports_mistakes(
    by_pyright: set[tuple[str, int]],
) -> None:
    assert by_pyright == EXPECTED

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


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def mistakes(tmp_path: Path) -> Path:
    path = tmp_path / "mistakes.py"
    path.write_text("import holdfast\nfrom holdfast import Agent, NewEvent\n" + "\n".join(WRONG))
    return path


def mypy(path: Path) -> list[int]:
    """The lines with errors, by mypy as a user without settings of ours runs it."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"]
    command += ["--cache-dir", str(path.parent / "cache"), path.name]
    said = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    assert said.returncode in (0, 1), said.stderr
    found = [json.loads(line) for line in said.stdout.splitlines() if line[:1] == "{"]
    assert {one["file"] for one in found} <= {path.name}, found
    return sorted({one["line"] for one in found})


def pyright(path: Path) -> list[int]:
    """The lines with errors, by pyright in strict mode."""
    settings = path.parent / "pyrightconfig.json"
    settings.write_text(json.dumps({"typeCheckingMode": "strict", "include": [path.name]}))
    script = node_modules(CHECKERS) / "pyright" / "index.js"
    command = [str(node()), str(script), "--outputjson", "--pythonpath", sys.executable]
    said = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    report = json.loads(said.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, said.stderr
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    return sorted({one["range"]["start"]["line"] + 1 for one in errors})


def test_mypy_accepts_a_users_program(program: Path) -> None:
    assert mypy(program) == []


def test_mypy_reports_mistakes(mistakes: Path) -> None:
    assert mypy(mistakes) == [3, 4, 5]


def test_pyright_accepts_a_users_program(program: Path) -> None:
    assert pyright(program) == []


def test_pyright_reports_mistakes(mistakes: Path) -> None:
    assert pyright(mistakes) == [3, 4, 5]

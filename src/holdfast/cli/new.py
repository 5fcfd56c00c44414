"""`holdfast new`: the first files of an agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ..harness.agents.agent import slug
from .failure import UsageError
from .output import Output

AGENT = '''"""{label}: an agent. Talk to it with: holdfast chat --agent agent:agent"""

from holdfast import Agent, tool


@tool
async def look_up(order: str) -> dict[str, str]:
    """Say how an order stands.

    Args:
        order: The number of the order.
    """
    return {{"order": order, "state": "delivered"}}


@tool(category="payments", risk="write", approval="ask")
async def refund(order: str, cents: int) -> str:
    """Refund an order. A person is asked first."""
    return f"refunded {{cents}} cents of order {{order}}"


agent = Agent(
    "{label}",
    instructions="Help with orders. Look an order up before you refund it.",
    tools=[look_up, refund],
)
'''
SERVE = '''"""Serves the agent: takes up what was left undone, and goes on until it is stopped."""

import asyncio
import os

from agent import agent
from holdfast import Harness, RunLimits
from holdfast.models import offline

STORE = os.environ.get("HOLDFAST_STORE", "sqlite:{key}.db")
MODEL = os.environ.get("HOLDFAST_MODEL") or offline()


async def main() -> None:
    limits = RunLimits(steps=20, seconds=600)
    async with Harness(agent, default_model=MODEL, store=STORE, limits=limits):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
'''
TEST = '''"""The agent, played through with a scripted model: no key, no network."""

import asyncio

from agent import agent
from holdfast import Harness
from holdfast.models import Say, ScriptedModel, Use

SCRIPT = [Say(calls=[Use("refund", order="42", cents=1999)]), "It is refunded."]


def test_a_refund_waits_for_a_person() -> None:
    async def play() -> str:
        model = ScriptedModel(SCRIPT, per_turn=True)
        async with Harness(agent, default_model=model) as harness:
            session = await harness.get_or_create("test")
            result = await session.send("Refund order 42.")
            assert result.status == "waiting"
            await session.approve()
            return (await session.wait()).text

    assert asyncio.run(play()) == "It is refunded."
'''
README = """# {label}

```sh
pip install 'holdfast[cli,models]'
holdfast chat --agent agent:agent --store sqlite:{key}.db
holdfast pending --store sqlite:{key}.db
python serve.py
pytest
```
"""
TEMPLATES: dict[str, dict[str, str]] = {
    "one-file": {"agent.py": AGENT},
    "full": {"agent.py": AGENT, "serve.py": SERVE, "test_agent.py": TEST, "README.md": README},
}


def new(
    folder: Annotated[
        str | None, Parameter(help="Where to put it; `-` or nothing reads it from the input.")
    ] = None,
    /,
    *,
    template: Annotated[
        Literal["one-file", "full"], Parameter(help="An agent alone, or with tests and a server.")
    ] = "full",
    label: Annotated[str | None, Parameter(help="The agent's name; else the folder's.")] = None,
    json: Annotated[bool, Parameter(help="One document: the files.")] = False,
) -> int:
    """Begin an agent of your own.

    ```
    holdfast new shop
    echo shop | holdfast new --template one-file
    ```

    Writes into a folder that does not exist yet, or is empty; nothing is ever replaced.
    """
    place = Path(_folder(folder))
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{str(place)!r} is there already and not empty; name a new folder")
    name = label or place.resolve().name
    if any(mark in name for mark in "\"'\\{}\n"):
        raise UsageError(f"the label {name!r} has quotes or braces; use plain words")
    place.mkdir(parents=True, exist_ok=True)
    files = TEMPLATES[template]
    for file, text in files.items():
        (place / file).write_text(text.format(label=name, key=slug(name)), encoding="utf-8")
    _tell(Output(json=json), place, list(files))
    return 0


def _folder(given: str | None) -> str:
    if given not in (None, "-"):
        return str(given)
    if sys.stdin.isatty():
        print("folder: ", end="", flush=True)
    line = sys.stdin.readline().strip()
    if not line:
        raise UsageError("no folder was given; name one")
    return line


def _tell(out: Output, place: Path, files: list[str]) -> None:
    if out.json:
        out.emit({"folder": os.fspath(place), "files": files})
        return
    for file in files:
        out.print(f"{place / file}")
    out.print(f"\nnow: cd {place} && holdfast chat --agent agent:agent")

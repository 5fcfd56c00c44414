"""`holdfast new`: create the files of a new agent."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ..errors import InvalidValue
from ..harness import slug
from .error_report import UsageError
from .output import Output

AGENT = '''"""{label}: an agent. Talk to it with: holdfast chat --agent agent:agent"""

from holdfast import Agent, tool


@tool
async def look_up(order: str) -> dict[str, str]:
    """Look up the state of an order.

    Args:
        order: The number of the order.
    """
    return {{"order": order, "state": "delivered"}}


@tool(category="payments", risk="write", approval="ask")
async def refund(order: str, cents: int) -> str:
    """Refund an order. Needs approval."""
    return f"refunded {{cents}} cents of order {{order}}"


agent = Agent(
    "{label}",
    instructions="Help with orders. Look an order up before you refund it.",
    tools=[look_up, refund],
)
'''
SERVE = '''"""Serves the agent: resumes unfinished sessions, and runs until SIGTERM or Ctrl-C.

Then runs have ten seconds to reach a safe point; the next process that serves the agent continues
them. A second signal ends the process at once.
"""

import asyncio
import os
import signal

from agent import agent
from holdfast import Harness, RunLimits
from holdfast.models import offline

STORE = os.environ.get("HOLDFAST_STORE", "sqlite:{key}.db")
MODEL = os.environ.get("HOLDFAST_MODEL") or offline()


def stop_event() -> asyncio.Event:
    """Return an event that the first signal sets."""
    loop, ending = asyncio.get_running_loop(), asyncio.Event()

    def handle(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(ending.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return ending


async def main() -> None:
    ending = stop_event()
    limits = RunLimits(steps=20, seconds=600)
    async with Harness(agent, default_model=MODEL, store=STORE, limits=limits):
        await ending.wait()


if __name__ == "__main__":
    asyncio.run(main())
'''
TEST = '''"""Tests the agent with a scripted model: no key, no network."""

import asyncio

from agent import agent
from holdfast import Harness
from holdfast.models import Say, ScriptedModel, Use

SCRIPT = [Say(calls=[Use("refund", order="42", cents=1999)]), "It is refunded."]


def test_a_refund_needs_approval() -> None:
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
    folder: str | None = None,
    /,
    *,
    template: Literal["one-file", "full"] = "full",
    label: str | None = None,
    json: bool = False,
) -> int:
    """Create the files of a new agent.

    ```
    holdfast new shop
    echo shop | holdfast new --template one-file
    ```

    The folder must be new or empty; no file is overwritten. With `--json`, prints one JSON object.

    :param folder: Folder to create. If omitted or `-`, its name is read from stdin.
    :param template: `one-file`: only an agent. `full`: also a test and a server.
    :param label: Name of the agent. Default: the name of the folder.
    :param json: Write JSON to stdout, and errors as JSON.
    """
    place = Path(_folder(folder))
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{str(place)!r} already exists and is not empty; choose a new folder")
    name = label or place.resolve().name
    if any(mark in name for mark in "\"'\\{}\n"):
        raise UsageError(f"label {name!r} must not contain quotes, backslashes or braces")
    texts = {file: _filled(text, name) for file, text in TEMPLATES[template].items()}
    try:
        _write(place, texts)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InvalidValue(
            field="folder",
            problem=f"{str(place)!r} cannot be written ({why})",
            remedy="choose another folder",
        ) from error
    _tell(Output(json=json), place, list(texts))
    return 0


def _filled(text: str, name: str) -> bytes:
    try:
        return text.format(label=name, key=slug(name)).encode()
    except UnicodeEncodeError:
        raise UsageError(f"label {name!r} is not valid UTF-8") from None


def _write(place: Path, texts: Mapping[str, bytes]) -> None:
    """Write all files. If one cannot be written, remove the others again."""
    missing = [folder for folder in (place, *place.absolute().parents) if not folder.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (place / file).write_bytes(text)
    except BaseException:
        for file in texts:
            with contextlib.suppress(OSError):
                (place / file).unlink()
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _folder(given: str | None) -> str:
    if given not in (None, "-"):
        return str(given)
    if sys.stdin.isatty():
        print("folder: ", end="", flush=True)
    line = sys.stdin.readline().strip()
    if not line:
        raise UsageError("new requires the name of a folder")
    return line


def _tell(out: Output, place: Path, files: list[str]) -> None:
    if out.json:
        out.emit({"folder": os.fspath(place), "files": files})
        return
    for file in files:
        out.print(f"{place / file}")
    out.print("", f"next: cd {place} && holdfast chat --agent agent:agent")

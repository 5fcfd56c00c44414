"""The command line, and those who write beside it, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests import forks

APPEND = """
import asyncio, sys
from holdfast import NewEvent, connect, key

async def main(url, session, *texts):
    async with connect(url) as store:
        for text in texts:
            event = NewEvent.of("message.received", {"text": text})
            await store.append(key(session), [event], create=True)

asyncio.run(main(*sys.argv[1:]))
"""

# What each verb needs on its command line, beside the store.
ARGUMENTS = {
    "delete": ["s", "--yes"],
    "copy": ["--to", "memory:"],
    "answer": ["s", "yes"],
    "unseal": ["s", "--reason", "lost"],
    "resume": ["--agent", "holdfast.cli.demo_processes:agent", "--model", "scripted/offline"],
    "adopt": ["s", "--agent", "shop"],
    "search": ["word"],
    "rewind": ["s", "--to", "1"],
    **{verb: ["s"] for verb in ("show", "transcript", "tail", "approve", "deny", "abort")},
    **{verb: ["s"] for verb in ("export", "import")},
}

WITHOUT = """
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""


def append(url: str, session: str, *texts: str) -> None:
    """Let another process write messages; returns when they are durable."""
    forks.run("-c", APPEND, url, session, *texts, check=True)


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """`holdfast` with these arguments, its outputs in pipes unless `options` say otherwise."""
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return forks.popen("-m", "holdfast.cli", *arguments, text=True, **outputs)


def without(names: set[str], program: str) -> subprocess.CompletedProcess[str]:
    """Run a program where these packages are not installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=names) + program],
        capture_output=True,
        text=True,
        check=False,
    )

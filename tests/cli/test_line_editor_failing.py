"""The line editor of a chat when something that it prints fails."""

from __future__ import annotations

import subprocess
import sys

# A process of its own: prompt_toolkit waits for a thread on the event loop when it ends.
PROGRAM = """
import asyncio, io
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from holdfast.cli.line_editor import LineEditor

async def main():
    gone = io.StringIO()
    gone.close()
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        editor = LineEditor([], lambda: None)
        line = asyncio.create_task(editor.line())
        while not editor.running:
            await asyncio.sleep(0.01)
        editor.write(lambda: print("x", file=gone))
        assert await line is None
        try:
            await editor.close()
        except ValueError as error:
            print("failed:", error)

asyncio.run(main())
"""


def test_output_that_fails_ends_the_chat_and_is_reported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("failed: I/O operation on closed file")

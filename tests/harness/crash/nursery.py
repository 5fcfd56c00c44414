"""Processes that are there in a moment: each is a fork of one that has imported everything.

`Nursery` is the leader's side. What a child does is what `serve` was given; it ends by itself, by a
planned kill, or when the nursery does.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from ...crash.workers.talk import hear, say
from ...processes.crew import Worker

Live: TypeAlias = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]
MODULE = "tests.harness.crash.nursery"
LOOK = 0.02
LONGEST = 100  # seconds that a child may live


class Child:
    """A process, as the one who watches it sees it."""

    def __init__(self, pid: int, words: Path) -> None:
        self.pid, self._words = pid, words
        self._file: int | None = None
        with suppress(ProcessLookupError):  # dead already, and nobody waits for it
            self._file = os.pidfd_open(pid)

    @property
    def words(self) -> dict[str, Any]:
        """What it left behind: nothing when it was killed."""
        return msgspec.json.decode(self._words.read_bytes()) if self._words.exists() else {}

    @property
    def alive(self) -> bool:
        return self._file is not None and not select.select([self._file], [], [], 0)[0]

    async def died(self) -> None:
        """Return when it is dead."""
        while self.alive:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)

    async def end(self) -> None:
        """Kill it, if it lives."""
        self.kill()
        await self.died()

    def kill(self) -> None:
        if self._file is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._file, signal.SIGKILL)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


class Nursery:
    """Where children come from. Leaving it ends them all."""

    def __init__(self, folder: Path, patience: float = 900.0, module: str = MODULE) -> None:
        self._folder, self._children = folder, list[Child]()
        self._worker = Worker(patience=patience, module=module)

    def __enter__(self) -> Nursery:
        self._worker.hear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for child in self._children:
            child.kill()
            child.close()
        self._worker.__exit__(kind, error, tb)

    def bear(self, **told: Any) -> Child:
        """A new process that does what it is told."""
        words = self._folder / f"words-{len(self._children)}.json"
        pid = self._worker.ask("bear", words=str(words), **told)["pid"]
        self._children.append(child := Child(pid, words))
        return child


def _child(live: Live, words: Path, told: dict[str, Any]) -> None:
    import traceback

    signal.alarm(LONGEST)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        left = asyncio.run(live(told))
    except BaseException:
        left = {"failed": traceback.format_exc()}
    words.write_bytes(msgspec.json.encode(left))


def serve(live: Live) -> None:
    """Be the process that all others are forked from; each does what `live` does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    say(ready=True)
    while True:
        told = hear()
        told.pop("do")
        words = Path(told.pop("words"))
        if (pid := os.fork()) == 0:
            os.close(0)
            _child(live, words, told)
            os._exit(0)
        say(pid=pid)


if __name__ == "__main__":
    from . import life

    serve(lambda told: life.live(life.Told(**told)))

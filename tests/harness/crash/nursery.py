"""Processes that are there in a moment: each is a fork of one that has imported everything.

`Nursery` is the leader's side. What a child does is `life.live`; it ends by itself, by a planned
kill, or when the nursery does.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ...crash.workers.talk import hear, say
from ...processes.crew import Worker

MODULE = "tests.harness.crash.nursery"
LOOK = 0.02
LONGEST = 100  # seconds that a child may live


class Child:
    """A process, as the one who watches it sees it."""

    def __init__(self, pid: int, words: Path) -> None:
        self.pid, self._words = pid, words
        self._file = os.pidfd_open(pid)

    @property
    def words(self) -> dict[str, Any]:
        """What it left behind: nothing when it was killed."""
        return msgspec.json.decode(self._words.read_bytes()) if self._words.exists() else {}

    @property
    def alive(self) -> bool:
        return not select.select([self._file], [], [], 0)[0]

    async def died(self) -> None:
        """Return when it is dead."""
        while self.alive:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)

    async def end(self) -> None:
        """Kill it, if it lives."""
        signal.pidfd_send_signal(self._file, signal.SIGKILL)
        await self.died()

    def close(self) -> None:
        os.close(self._file)


class Nursery:
    """Where children come from. Leaving it ends them all."""

    def __init__(self, folder: Path, patience: float = 900.0) -> None:
        self._folder, self._children = folder, list[Child]()
        self._worker = Worker(patience=patience, module=MODULE)

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
            with _gone():
                signal.pidfd_send_signal(child._file, signal.SIGKILL)
            child.close()
        self._worker.__exit__(kind, error, tb)

    def bear(self, **told: Any) -> Child:
        """A new process that does what it is told."""
        words = self._folder / f"words-{len(self._children)}.json"
        pid = self._worker.ask("bear", words=str(words), **told)["pid"]
        self._children.append(child := Child(pid, words))
        return child


class _gone:
    """What is dead already need not be killed."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, tb: Any) -> bool:
        return isinstance(error, ProcessLookupError)


def _child(words: Path, told: dict[str, Any]) -> None:
    import traceback

    from . import life

    signal.alarm(LONGEST)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        left = asyncio.run(life.live(life.Told(**told)))
    except BaseException:
        left = {"failed": traceback.format_exc()}
    words.write_bytes(msgspec.json.encode(left))


def main() -> None:
    from . import life  # noqa: F401 - once, for all who are forked

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    say(ready=True)
    while True:
        told = hear()
        told.pop("do")
        words = Path(told.pop("words"))
        if (pid := os.fork()) == 0:
            os.close(0)
            _child(words, told)
            os._exit(0)
        say(pid=pid)


if __name__ == "__main__":
    main()

"""One server program as a child process: found, started, waited for, killed, and never left behind.

What is the same for PostgreSQL and MongoDB. What each is started with is theirs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds until a server that does not come up, or go down, counts as failed
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class ServerFailed(Exception):
    """A server that the tests need did not start, or died. The text has its last words."""


FIRST_PORT, PORTS, WORKERS = 15_000, 1_000, 16  # each worker of a run has ports of its own


def free_port() -> int:
    """A port of loopback that nobody uses, and that no other worker of the run is given before it
    is bound. It is below those that the kernel gives to outgoing connections, so that none can
    take it while a server is down for a moment."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    first = FIRST_PORT + int(worker) % WORKERS * PORTS
    for port in random.sample(range(first, first + PORTS), PORTS):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                trial.bind(("127.0.0.1", port))
                return port
    raise ServerFailed(f"no port from {first} to {first + PORTS} is free on 127.0.0.1")


class Program:
    """A program in the foreground. It ends with the process that started it, whatever ends that."""

    def __init__(self, words: Path, *, dying: signal.Signals, user: str | None = None) -> None:
        self._words = words
        self._dying = dying
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, command: Sequence[str | Path], ready: Callable[[], bool]) -> None:
        """Start the program and wait until it is `ready`; fails when it ends before."""
        with self._words.open("ab") as words:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self._words.parent,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                preexec_fn=lambda: _die_with_parent(self._dying),  # noqa: PLW1509 - the keeper has no threads
                **as_user(self._user),
            )
        until(
            lambda: self._process is None or self._process.poll() is not None or ready(),
            f"{command[0]} was not ready after {PATIENCE:g} s: {self.last_words()}",
        )
        if not self.alive():
            raise ServerFailed(f"{command[0]} ended at once: {self.last_words()}")

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, how: signal.Signals) -> None:
        """Send a signal, and wait until the program and its own children are gone."""
        if self._process is None:
            return
        family = _children(self.pid)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        if how is signal.SIGKILL:
            for child in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, how)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(PATIENCE)
        until(lambda: not any(_running(child) for child in family), f"{family} do not end")
        self._process = None

    def freeze(self) -> None:
        """Stop the program and its children where they stand, connections open."""
        for pid in (self.pid, *_children(self.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in (*_children(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def last_words(self) -> str:
        if not self._words.exists():
            return "it said nothing"
        return self._words.read_text(errors="replace").strip()[-2000:]


def as_user(user: str | None) -> dict[str, Any]:
    """The arguments of `subprocess` that make a child another user's."""
    return {} if user is None else {"user": user, "group": _group_of(user), "extra_groups": []}


def until(holds: Callable[[], bool], problem: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise ServerFailed(problem)
        time.sleep(0.01)


def _die_with_parent(how: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, how)


def _group_of(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _running(pid: int) -> bool:
    """A zombie, which only waits for its parent to look, does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

"""Programs that serve HTTP, as child processes on loopback that may be killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

PATIENCE = 60.0  # seconds, far beyond what anything takes


class Served:
    """A program that serves HTTP at `url`: started, killed, and started again."""

    def __init__(self, words: list[str], folder: Path, port: int, env: Mapping[str, str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._words, self._folder, self._env = words, folder, env
        self.process = self._started()

    def restart(self) -> None:
        self.end(signal.SIGKILL)
        self.process = self._started()

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def _started(self) -> subprocess.Popen[bytes]:
        log = (self._folder / "server.log").open("ab")
        with log:
            process = subprocess.Popen(
                [sys.executable, *self._words],
                cwd=self._folder,
                env={**os.environ, **self._env},
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + PATIENCE
        while not _up(self.url):
            said = (self._folder / "server.log").read_text()
            assert process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.05)
        return process


@contextlib.contextmanager
def served(
    words: list[str], folder: Path, port: int, env: Mapping[str, str] | None = None
) -> Iterator[Served]:
    server = Served(words, folder, port, env or {})
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)


def _up(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/", timeout=PATIENCE).status_code < 500
    return False

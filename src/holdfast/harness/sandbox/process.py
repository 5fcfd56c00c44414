"""Runs one process on this machine, and ends it together with every process it started.

A thread watches each process, so this does not depend on the event loop's child watcher. A process
leads its own process group, and its children inherit an environment variable with its id. On Linux,
this variable identifies children that left the group. When the process ends, its remaining children
are killed, so that no process outlives its command.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import IO

from ...errors import SandboxError
from ...log.events import new_id
from .port import Ran

MARK = "HOLDFAST_COMMAND"
SHORT = 0.005  # seconds between polls of a process that has closed its pipes
TICK = 0.05  # seconds between polls of a process that writes nothing
LINGER = 0.2  # seconds that children may keep writing after the process has ended
DRAIN = 1.0  # seconds that killed processes may take to close their pipes
DEATH = 10.0  # seconds to wait for a process to end after SIGKILL
PASSES = 20  # scans for marked processes: a process may start another during a scan
_PIECE = 1 << 16


class Running:
    """Runs one process, and ends every process that it started. `where` is a context manager that
    yields the folder to start in; it is entered in the thread that starts the process."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        where: Callable[[], AbstractContextManager[str | None]] = nullcontext,
        env: Mapping[str, str],
        stdin: bytes | None,
        timeout: float,
        limit: int,
        grace: float,
    ) -> None:
        self._id = new_id()
        self._words = list(words)
        self._where = where
        self._env = {**env, MARK: "/".join(filter(None, [os.environ.get(MARK), self._id]))}
        self._stdin = memoryview(stdin or b"")
        self._timeout = timeout
        self._grace = grace
        self._out = _Kept(limit)
        self._err = _Kept(limit)
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()

    def stop(self) -> None:
        """End the process. `result` returns after it has ended."""
        self._stop.set()

    async def result(self) -> Ran:
        """Run the process until it ends, and return its result. On cancellation, the process is
        ended before `CancelledError` is raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Ran] = loop.create_future()
        threading.Thread(target=self._watch, args=(loop, done), name="command").start()
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError as error:
                self.stop()
                cancelled = error
        if cancelled is not None:
            done.exception()
            raise cancelled
        return done.result()

    def _watch(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[Ran]) -> None:
        outcome: Ran | BaseException
        try:
            outcome = self._run()
        except (OSError, ValueError) as error:
            said = (isinstance(error, OSError) and error.strerror) or str(error)
            outcome = SandboxError(problem=f"cannot start {self._words[0]!r}: {said}")
            outcome.__cause__ = error
        except BaseException as error:
            outcome = error
        with suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(_settle, done, outcome)

    def _run(self) -> Ran:
        begun = time.monotonic()
        with closing(self._selector):
            process = self._start()
            try:
                self._listen(process)
                self._pump(lambda: _ended(process) or self._stop.is_set(), begun + self._timeout)
                cut = not _ended(process)
                if cut:
                    _signal_group(process, signal.SIGTERM)
                    self._pump(lambda: _ended(process) and not self._heard, _in(self._grace))
                else:
                    self._pump(lambda: not self._heard or self._stop.is_set(), _in(LINGER))
            finally:
                try:
                    code = self._kill(process)
                    self._pump(lambda: not self._heard, _in(DRAIN))
                finally:
                    self._hang_up()
        return Ran(
            stdout=self._out.text(),
            stderr=self._err.text(),
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            seconds=time.monotonic() - begun,
            timed_out=cut and not self._stop.is_set(),
            truncated=self._out.truncated or self._err.truncated,
        )

    def _start(self) -> subprocess.Popen[bytes]:
        with self._where() as cwd:
            if self._stop.is_set():
                raise SandboxError(problem="the command was stopped before it started")
            return subprocess.Popen(  # noqa: S603  # the caller decides what to run
                self._words,
                cwd=cwd,
                env=self._env,
                stdin=subprocess.PIPE if self._stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )

    # Pipes

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        for pipe, kept in ((process.stdout, self._out), (process.stderr, self._err)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, kept)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE, None)

    @property
    def _heard(self) -> bool:
        """Whether stdout or stderr is still open."""
        return any(each.data is not None for each in self._selector.get_map().values())

    def _pump(self, until: Callable[[], bool], deadline: float) -> None:
        """Read and write until `until` returns True or the deadline passes."""
        while not until() and (left := deadline - time.monotonic()) > 0:
            self._move(min(left, TICK))

    def _move(self, timeout: float) -> None:
        if not self._selector.get_map():
            time.sleep(min(timeout, SHORT))
            return
        for each, _ in self._selector.select(timeout):
            pipe: IO[bytes] = each.fileobj  # type: ignore[assignment]  # as registered
            if each.data is None:
                self._tell(pipe)
            else:
                self._hear(pipe, each.data)

    def _hear(self, pipe: IO[bytes], kept: _Kept) -> None:
        with suppress(BlockingIOError):
            piece = os.read(pipe.fileno(), _PIECE)
            kept.add(piece)
            if not piece:
                self._drop(pipe)

    def _tell(self, pipe: IO[bytes]) -> None:
        with suppress(BlockingIOError):
            try:
                self._stdin = self._stdin[os.write(pipe.fileno(), self._stdin[:_PIECE]) :]
            except BrokenPipeError:
                self._stdin = memoryview(b"")
            if not self._stdin:
                self._drop(pipe)

    def _drop(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        pipe.close()

    def _hang_up(self) -> None:
        for each in list(self._selector.get_map().values()):
            self._drop(each.fileobj)  # type: ignore[arg-type]  # as registered

    # The end

    def _kill(self, process: subprocess.Popen[bytes]) -> int:
        """Kill the process group and every process with this process's id in its environment. Wait
        for the process itself last: until then its pid cannot be reused."""
        _signal_group(process, signal.SIGKILL)
        for _ in range(PASSES):
            if not _kill_marked(self._id):
                break
            time.sleep(SHORT)
        try:
            return process.wait(timeout=DEATH)
        except subprocess.TimeoutExpired as error:
            raise SandboxError(
                problem=f"{self._words[0]!r} cannot be killed: it may run as another user"
            ) from error


class _Kept:
    """Collects the first `limit` bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._pieces: list[bytes] = []
        self._left = limit
        self.truncated = False

    def add(self, piece: bytes) -> None:
        if len(piece) > self._left:
            piece = piece[: self._left]
            self.truncated = True
        if piece:
            self._pieces.append(piece)
            self._left -= len(piece)

    def text(self) -> str:
        """Return the decoded text, without an incomplete character at the limit."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(b"".join(self._pieces), final=not self.truncated)


def _settle(done: asyncio.Future[Ran], outcome: Ran | BaseException) -> None:
    if isinstance(outcome, Ran):
        done.set_result(outcome)
    else:
        done.set_exception(outcome)


def _in(seconds: float) -> float:
    return time.monotonic() + seconds


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended. If the platform allows it, the process is not
    reaped."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
    return process.returncode is not None or os.waitid(os.P_PID, process.pid, flags) is not None


def _signal_group(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError for a zombie
        os.killpg(process.pid, what)


def _kill_marked(mark: str) -> bool:
    """Kill the processes whose environment contains `mark`. Returns whether there were any. Has no
    effect where /proc does not exist."""
    found = False
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdigit():
            continue
        with suppress(OSError):
            if mark.encode() in Path("/proc", name, "environ").read_bytes():
                os.kill(int(name), signal.SIGKILL)
                found = True
    return found

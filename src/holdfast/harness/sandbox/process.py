"""One process on this machine, with all that it starts: run, watched, and ended.

A thread watches each, so that nothing here depends on the event loop's way with children.
A process leads a group of its own, and all that it starts inherit a mark in their
environment, by which Linux finds those that left the group. When the process ends, by itself
or not, whatever it left is killed: nothing outlives its command.
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
SHORT = 0.005  # seconds between two looks at a process that has nothing more to say
TICK = 0.05  # seconds between two looks at a process that says nothing
LINGER = 0.2  # seconds that others may go on writing when the process itself has ended
DRAIN = 1.0  # seconds that what is killed may take to let go of its pipes
DEATH = 10.0  # seconds that a process may take to die of a signal that none can ignore
PASSES = 20  # looks for marked processes: one may start another while we look
_PIECE = 1 << 16


class Running:
    """A process from its start to the end of everything that it started. `where` gives the
    folder that it starts in, and is asked in the thread that starts it."""

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
        """End it; whoever waits in `result` returns when it has ended."""
        self._stop.set()

    async def result(self) -> Ran:
        """Run it to its end. Cancelled, it ends the process before it raises."""
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
        with suppress(RuntimeError):  # the loop is closed: nobody waits
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
                raise SandboxError(problem="the command was stopped before it began")
            return subprocess.Popen(  # noqa: S603  # what to run is the caller's to decide
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
        """Whether somebody may still write to us."""
        return any(each.data is not None for each in self._selector.get_map().values())

    def _pump(self, until: Callable[[], bool], deadline: float) -> None:
        """Read and write until something holds or the time has come."""
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
        """Kill the group and everything marked. The process itself is waited for last: until
        then no other can have its number."""
        _signal_group(process, signal.SIGKILL)
        for _ in range(PASSES):
            if not _kill_marked(self._id):
                break
            time.sleep(SHORT)
        try:
            return process.wait(timeout=DEATH)
        except subprocess.TimeoutExpired as error:
            problem = f"{self._words[0]!r} cannot be killed: perhaps it runs as another user"
            raise SandboxError(problem=problem) from error


class _Kept:
    """The beginning of a stream, as much as is kept of it."""

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
        """Decoded at once. A character that the limit cut in two is left out."""
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
    """Whether the process has ended; it is not waited for, where that can be told apart."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
    return process.returncode is not None or os.waitid(os.P_PID, process.pid, flags) is not None


def _signal_group(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses for a zombie
        os.killpg(process.pid, what)


def _kill_marked(mark: str) -> bool:
    """Kill the processes whose environment has the mark; whether there was one. Only where
    the system shows environments in /proc."""
    found = False
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdigit():
            continue
        with suppress(OSError):
            if mark.encode() in Path("/proc", name, "environ").read_bytes():
                os.kill(int(name), signal.SIGKILL)
                found = True
    return found

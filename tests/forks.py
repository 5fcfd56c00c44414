"""Python programs in processes of their own that are there in a moment.

    forks.popen("-m", "tests.crash.workers.writer", url, stdin=PIPE)     a `subprocess.Popen`
    forks.run("-m", "holdfast.cli", "ls", capture_output=True)           as `subprocess.run`

Most of the time of a short program goes into starting Python and importing the package. Here a
template process imports once what such programs import, and each program is a fork of it: a
process that can be killed, frozen and waited for like any other, with files, folder, environment
and arguments of its own. It is a child of the process that asked, not of the template.

The template has no threads and runs nothing but imports. Each process that runs tests has a
template of its own, started when it first asks and gone when it ends. Use `subprocess` itself
where the start of Python or the order of imports matters, and for options of the interpreter
other than `-W error`. Where the system is not Linux, or the environment has other `PYTHON…`
variables than the template, a program is started as usual.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parent.parent
MOST = 1 << 16  # bytes of an answer
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)

# What programs import, by the beginning of a word of their command line. The template imports it
# when the first of them is asked for.
NEEDED = {
    "-": ("holdfast", "holdfast.stores.sqlite", "holdfast.stores.file"),
    "tests.": ("asyncpg", "pymongo.asynchronous.mongo_client", "tests.crash.scene"),
    "tests.harness.": ("holdfast.harness", "holdfast.testing.faults"),
    "tests.adapters.": ("claude_agent_sdk", "holdfast.adapters.claude"),
    "holdfast.cli": ("holdfast.cli.app", "holdfast.cli.chat_commands", "holdfast.cli.resume"),
    "serve": ("holdfast.cli.serve", "holdfast.server", "uvicorn.protocols.http.h11_impl"),
}


def popen(*words: str, needs: tuple[str, ...] = (), **options: Any) -> subprocess.Popen[Any]:
    """`python WORDS…` as a process; options as for `subprocess.Popen`. `needs` names modules that
    the program imports. With a session of its own, the process takes the terminal that is its
    input, if it is one, for its own."""
    command = [sys.executable, *words]
    if sys.platform != "linux" or _python_variables(options.get("env")) != _python_variables():
        if options.get("start_new_session"):
            options["preexec_fn"] = _take_terminal
        return subprocess.Popen(command, **options)
    return _Forked(command, needs, **options)


def run(
    *words: str,
    needs: tuple[str, ...] = (),
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`python WORDS…` to its end; options as for `subprocess.run`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with popen(*words, needs=needs, **options) as process:
        try:
            said, complained = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, said, complained)
    if check:
        done.check_returncode()
    return done


def _take_terminal() -> None:
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _python_variables(env: Any = None) -> dict[str, str]:
    found = os.environ if env is None else env
    return {name: found[name] for name in found if name.startswith("PYTHON")}


class _Forked(subprocess.Popen[Any]):
    """A `Popen` whose process is a fork of the template. Pipes and waiting are those of `Popen`."""

    def __init__(self, command: list[str], needs: tuple[str, ...], **options: Any) -> None:
        self._needs = needs
        super().__init__(command, **options)

    def _execute_child(
        self,
        args: list[str],
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Any,
        cwd: Any,
        env: Any,
        startupinfo: Any,
        creationflags: Any,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: bool,
        gid: Any,
        gids: Any,
        uid: Any,
        umask: int,
        start_new_session: bool,
        process_group: int,
    ) -> None:
        other = [executable, preexec_fn, pass_fds, shell, gid, gids, uid, umask + 1]
        assert not any(other), "a forked process cannot have this: use subprocess"
        files = [
            given if given != -1 else usual
            for given, usual in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))
        ]
        told = {
            "words": args[1:],
            "needs": self._needs,
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "session": start_new_session,
        }
        self.pid = _template().fork(told, files)
        self._child_created = True
        close: Callable[..., None] = self._close_pipe_fds  # type: ignore[attr-defined]
        close(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


class _Template:
    """The template, as the process that started it sees it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forks", str(there.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )

    def fork(self, told: dict[str, Any], files: list[int]) -> int:
        """The id of a new process that is a child of this one."""
        with self._lock:
            # The template leaves the new process an orphan, and we adopt it.
            _adopt_orphans(True)
            try:
                with tempfile.TemporaryFile() as request:
                    request.write(json.dumps(told).encode())
                    request.flush()
                    socket.send_fds(self._here, [b"fork"], [request.fileno(), *files])
                answer = json.loads(self._here.recv(MOST) or b'{"failed": "the template ended"}')
            finally:
                _adopt_orphans(False)
        if "failed" in answer:
            raise RuntimeError(f"no process could be forked: {answer['failed']}")
        return int(answer["pid"])

    def end(self) -> None:
        self._here.close()
        self._process.wait()


def _adopt_orphans(whether: bool) -> None:
    if _prctl()(SUBREAPER, int(whether), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


@functools.cache
def _prctl() -> Any:
    return ctypes.CDLL(None, use_errno=True).prctl


_starting = threading.Lock()


def _template() -> _Template:
    with _starting:  # one for all threads: who adopts orphans is said of the whole process
        return _template_of(os.getpid())


@functools.cache
def _template_of(process: int) -> _Template:
    made = _Template()
    atexit.register(made.end)
    return made


# The template's side


def serve(asked: socket.socket) -> None:
    """Fork a process for every request, until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end us
    while True:
        asks, received, _, _ = socket.recv_fds(asked, MOST, 4)
        if not asks:
            return
        request, *files = received
        with open(request, "rb") as written:  # a command line may be longer than a message
            written.seek(0)
            told = json.loads(written.read())
        try:
            _import_all(told)
            answer: dict[str, Any] = {"pid": _fork(asked, told, files)}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        for file in files:
            os.close(file)
        asked.send(json.dumps(answer).encode())


def _import_all(told: dict[str, Any]) -> None:
    names = list(told["needs"])
    for begins, needed in NEEDED.items():
        if any(word.startswith(begins) for word in told["words"]):
            names += needed
    for name in names:
        importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError(f"importing {names} started a thread, which a fork would lose")
    gc.freeze()  # what was imported stays: no process need look at it, and copy it by that


def _fork(asked: socket.socket, told: dict[str, Any], files: list[int]) -> int:
    """Fork twice, so that the new process is nobody's child here."""
    heard, said = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(heard)
        between = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(said)
            asked.close()
            while os.getppid() == between:
                time.sleep(0.0005)  # until we are adopted
            _be(told, files)
        os.write(said, str(pid).encode())
        os._exit(0)
    os.close(said)
    with open(heard) as pipe:
        pid = int(pipe.read())
    os.waitpid(between, 0)
    return pid


def _be(told: dict[str, Any], files: list[int]) -> NoReturn:
    """Run the program, and end as Python ends."""
    code = 1
    try:
        _become(told, files)
        code = _exit_code(told["words"])
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at any exit
    except BaseException:
        traceback.print_exc()
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = 120
    os._exit(code)


def _become(told: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if told["session"]:
        os.setsid()
        _take_terminal()
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["env"])
    now = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw),
            errors=errors,
            line_buffering=number == 2 or os.isatty(number),
            write_through=now,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if told["words"][:2] == ["-W", "error"]:
        del told["words"][:2]
        warnings.simplefilter("error")


def _exit_code(words: list[str]) -> int:
    how, what, *rest = words
    try:
        if how == "-m":
            sys.path[0] = os.getcwd()
            sys.argv = [what, *rest]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            assert how == "-c", f"neither -m nor -c: {words}"
            sys.path[0] = ""
            sys.argv = ["-c", *rest]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(main))
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

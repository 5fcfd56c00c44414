"""A forked program behaves as one that was started: `tests/forks.py`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from tests import forks

SHOWS = """
import os, sys
class Own: pass
assert sys.modules[Own.__module__].Own is Own
print(sys.argv[1:], os.getcwd(), os.environ["OWN"], os.getppid(), sys.stdin.read())
print("problem", file=sys.stderr)
"""


def test_a_program_has_its_own_arguments_folder_environment_and_files(tmp_path: Path) -> None:
    done = forks.run(
        *("-c", SHOWS + "#" * 100_000, "a", "b c"),
        input="told",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OWN": "value"},
    )
    assert done.stdout == f"['a', 'b c'] {tmp_path} value {os.getpid()} told\n"
    assert (done.returncode, done.stderr) == (0, "problem\n")


@pytest.mark.parametrize(
    ("code", "ended", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('why')", 1, "why"),
        ("raise LookupError('gone')", 1, "LookupError: gone"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "Keyboard"),
        ("import warnings; warnings.warn('loud')", 1, "UserWarning: loud"),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end"),
        ("from threading import Timer as T; T(0.01, lambda: print('later')).start()", 0, "later"),
    ],
)
def test_it_ends_as_python_ends(code: str, ended: int, said: str) -> None:
    for run in (forks.run, _started):
        done = run("-W", "error", "-c", code, stdout=PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == ended
        assert said in done.stdout


def _started(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    import sys

    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    return run([sys.executable, *words], check=False, **options)


def test_it_can_be_frozen_and_killed() -> None:
    with forks.popen("-c", "print(flush=True); input()", stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        process.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        assert process.poll() is None
        process.kill()
        assert process.wait() == -signal.SIGKILL


def test_what_is_asked_of_the_interpreter_itself_is_started() -> None:
    asked = {**os.environ, "PYTHONHASHSEED": "7"}
    code = "import sys; print(sys.flags.hash_randomization, hash('a'))"
    outputs = [forks.run("-c", code, env=asked, stdout=PIPE).stdout for _ in range(2)]
    assert outputs[0] == outputs[1]
    assert outputs[0] == _started("-c", code, env=asked, stdout=PIPE).stdout

"""Runs the `docker` command and builds its arguments. Independent of sessions."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from ...errors import InvalidValue, SandboxError
from .port import Ran
from .process import Running

CLI_TIMEOUT = 120.0  # seconds for a call that runs no command; it may pull an image
MISSING = re.compile(r"no such container", re.IGNORECASE)
TAKEN = re.compile(r"already in use|already exists", re.IGNORECASE)
DEAD = re.compile(r"Error( response from daemon)?:.*(no such container|is not running)", re.I)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Ends every process in a container that has a mark in its environment. The shell that runs this
# has the mark only as an argument, so it does not end itself.
END = """
each() {
  for p in /proc/[0-9]*; do
    if tr '\\0' '\\n' 2>/dev/null <"$p/environ" | grep -q "^$1=$2$"; then
      kill "-$3" "${p#/proc/}" 2>/dev/null && n=1
    fi
  done
}
n=0; each "$1" "$2" TERM
if [ "$n" = 1 ]; then sleep "$3"; each "$1" "$2" KILL; fi
exit 0
"""


class DockerCli:
    """Runs the `docker` program at `path`."""

    def __init__(self, path: str, *, limit: int, grace: float) -> None:
        self._path = path
        self._limit = limit
        self.grace = grace

    async def call(self, *words: str, fine: re.Pattern[str] | None = None) -> None:
        """Run one docker command. Raises `SandboxError` if it fails, unless its error output
        matches `fine`."""
        ran = await self.running(words, timeout=CLI_TIMEOUT).result()
        if ran.exit_code != 0 and not (fine and fine.search(ran.stderr)):
            raise SandboxError(problem=f"docker {words[0]}: {_said(ran)}")

    def running(
        self,
        words: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
    ) -> Running:
        """Return a docker command that is ready to run. `env` is added to the environment of this
        process."""
        return Running(
            [self._path, *words],
            env={**os.environ, **(env or {})},
            stdin=stdin,
            timeout=timeout,
            limit=self._limit,
            grace=self.grace,
        )


def _said(ran: Ran) -> str:
    if ran.timed_out:
        return f"timed out after {ran.seconds:.0f} s"
    return ran.stderr.strip()[-500:] or f"ended with exit code {ran.exit_code}"


def flags(option: str, values: Iterable[str]) -> list[str]:
    """Return command-line arguments that repeat an option for each value."""
    return [word for value in values for word in (option, value)]


def limits(
    *, cpus: float | None, memory: str | None, pids: int, network: str, user: str | None
) -> list[str]:
    """Return the options of `docker create` for limits, network and user (default: the current
    user)."""
    said = ["--network", network, "--pids-limit", str(pids)]
    if user is None and hasattr(os, "getuid"):
        user = f"{os.getuid()}:{os.getgid()}"
    for option, value in {"--cpus": cpus, "--memory": memory, "--user": user}.items():
        if value is not None:
            said += [option, str(value)]
    return said


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of environment variables. Raises `InvalidValue` for names that docker does not
    accept."""
    for name in env:
        if not _VARIABLE.fullmatch(name):
            raise InvalidValue(
                field="env",
                problem=f"has the invalid name {name!r}",
                remedy="use letters, digits and _",
            )
    return dict(env)


def mount(source: str, target: str, *, read_only: bool) -> str:
    """Return the value of one `--mount` option. Its fields are written as CSV, so that paths may
    contain commas."""
    if not target.startswith("/"):
        raise InvalidValue(
            field="mounts",
            problem=f"has the relative target {target!r}",
            remedy="pass an absolute path",
        )
    fields = ["type=bind", f"source={source}", f"target={target}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields + ["readonly"] * read_only)
    return line.getvalue()

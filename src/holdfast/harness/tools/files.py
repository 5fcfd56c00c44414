"""Built-in tools for files and commands: read, write, edit, find, search, run.

They work in every kind of sandbox. If the sandbox or a command fails, the result is a failure with
the code `sandbox_failed`: the model reads the reason and may try something else.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from posixpath import normpath
from typing import Annotated, Any

from msgspec import Meta

from ...errors import InvalidValue, SandboxError
from ..sandbox import Place, Ran
from .definition import Tool, ToolContext, tool
from .values import Permission, Ref, ToolResult

SHOWN = 12_000  # characters of one stream that a model is shown
LINE = 500  # characters of one line that `grep` shows
REFS = 50  # files that one result refers to
EDITABLE = 10_000_000  # bytes of the largest file that `edit_file` accepts

_READ = (Permission(kind="filesystem", access="read", path="."),)
_WRITE = (Permission(kind="filesystem", access="write", path="."),)
_SHELL = (Permission(kind="shell", access="execute", path="."),)

# Resolves the path first, so that a link cannot lead the search out of the sandbox.
# Exit code 1 of grep means no match and is not a failure; 2 and above is.
_GREP = """
real=$(realpath "$1") || exit 2
root=$(pwd -P)
case "$real/" in "$root"/*) ;; *) echo "$1 leads outside the sandbox" >&2; exit 2;; esac
exec find -H "$1" -name .git -prune -o -name node_modules -prune -o -type f \\
  -exec sh -c 'p=$1; shift; grep -nHI "$0" -e "$p" -- "$@"; [ $? -le 1 ]' "$2" "$3" {} +
"""


def _reporting(
    function: Callable[..., Coroutine[Any, Any, ToolResult]],
) -> Callable[..., Coroutine[Any, Any, ToolResult]]:
    """Decorator that returns a sandbox error or an invalid value as a failed result."""

    @wraps(function)
    async def called(*arguments: Any, **named: Any) -> ToolResult:
        try:
            return await function(*arguments, **named)
        except (SandboxError, InvalidValue) as error:
            about = {"error": error.code}
            return ToolResult(
                content=str(error), failed=True, code=SandboxError.code, metadata=about
            )

    return called


@tool(category="files", risk="read", permissions=_READ, repeat_safe=True)
@_reporting
async def read_file(
    path: str,
    context: ToolContext,
    max_bytes: Annotated[int, Meta(ge=1, le=1_000_000)] = 500_000,
) -> ToolResult:
    """Read a text file.

    Args:
        path: The path of the file, relative to the working folder.
        max_bytes: Read at most this many bytes, from the beginning.
    """
    data = await _place(context).read(path, limit=max_bytes + 1)
    ref = Ref(kind="file", value=path, role="read")
    if b"\0" in data:
        return _failed(f"{path} is not a text file", refs=[ref])
    more = len(data) > max_bytes
    # The decoder drops a character that the limit cuts in two.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data[:max_bytes], final=not more)
    if more:
        text += f"\n[only the first {max_bytes} bytes are shown]"
    return ToolResult(content=text, refs=[ref], metadata={"truncated": more})


@tool(category="files", risk="write", permissions=_WRITE, approval="ask", concurrency=1)
@_reporting
async def write_file(
    path: str, content: str, context: ToolContext, append: bool = False
) -> ToolResult:
    """Write a text file, or append to it. Missing folders are created.

    Args:
        path: The path of the file, relative to the working folder.
        content: The text to write.
        append: Append to the file instead of replacing its content.
    """
    place = _place(context)
    data = content.encode()
    existed = await _exists(place, path)
    await place.write(path, data, append=append)
    did = "appended to" if append and existed else "wrote"
    return ToolResult(
        content=f"{did} {path}: {len(data)} bytes",
        data={"path": path, "bytes": len(data), "created": not existed},
        refs=[Ref(kind="file", value=path, role="modified" if existed else "created")],
    )


@tool(category="files", risk="write", permissions=_WRITE, approval="ask", concurrency=1)
@_reporting
async def edit_file(
    path: str,
    search: Annotated[str, Meta(min_length=1)],
    replace: str,
    context: ToolContext,
    expected: Annotated[int, Meta(ge=1)] = 1,
) -> ToolResult:
    """Replace text in a file, if it occurs exactly `expected` times.

    Args:
        path: The path of the file, relative to the working folder.
        search: The exact text to look for, including whitespace and line breaks.
        replace: The text to replace it with.
        expected: The number of times that the text must occur in the file.
    """
    place = _place(context)
    data = await place.read(path, limit=EDITABLE + 1)
    if len(data) > EDITABLE:
        return _failed(f"{path} has more than {EDITABLE} bytes")
    found = data.count(search.encode())
    if found != expected:
        return _failed(
            f"{path}: the text occurs {found} times, not {expected}; nothing was changed",
            data={"path": path, "found": found, "expected": expected},
        )
    await place.write(path, data.replace(search.encode(), replace.encode()))
    return ToolResult(
        content=f"edited {path}: {found} replaced",
        data={"path": path, "replaced": found},
        refs=[Ref(kind="file", value=path, role="modified")],
    )


@tool(category="files", risk="read", permissions=_READ, repeat_safe=True)
@_reporting
async def glob(
    pattern: str, context: ToolContext, limit: Annotated[int, Meta(ge=1, le=1_000)] = 200
) -> ToolResult:
    """List the files whose paths match a pattern.

    Args:
        pattern: A glob pattern, such as `src/**/*.py`. `**` matches any number of folders, and
            `{a,b}` matches `a` or `b`.
        limit: The maximum number of files to list.
    """
    found = await _place(context).list(pattern, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    text = "\n".join(found) or "no file matches"
    if more:
        text += f"\n[only the first {limit} files are listed]"
    data = {"files": found, "truncated": more}
    return ToolResult(content=text, data=data, refs=_evidence(found))


@tool(category="files", risk="read", permissions=_READ, repeat_safe=True)
@_reporting
async def grep(
    pattern: Annotated[str, Meta(min_length=1)],
    context: ToolContext,
    path: str = ".",
    fixed: bool = False,
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200,
) -> ToolResult:
    """Search files for lines that match a pattern.

    Args:
        pattern: An extended regular expression.
        path: The file or folder to search, relative to the working folder.
        fixed: Treat the pattern as plain text.
        limit: The maximum number of lines to show.
    """
    where = path if path.startswith("/") else f"./{normpath(path)}".removesuffix("/.")
    words = ["sh", "-c", _GREP, "sh", where, "-F" if fixed else "-E", pattern]
    ran = await _place(context).run(words)
    if ran.timed_out or (ran.exit_code != 0 and not ran.stdout):
        return _ended_badly(ran, f"grep {pattern}")
    lines = [line.removeprefix("./") for line in ran.stdout.splitlines()]
    lines = [line if len(line) <= LINE else f"{line[:LINE]}…" for line in lines]
    more = ran.truncated or len(lines) > limit
    text = _short("\n".join(lines[:limit])) or "no line matches"
    if more:
        text += f"\n[only the first {limit} lines are shown]"
    if ran.stderr:
        text += f"\nstderr:\n{_short(ran.stderr)}".rstrip("\n")
    files = {found[1]: None for line in lines[:limit] if (found := re.match(r"(.*?):\d+:", line))}
    data = {"lines": min(len(lines), limit), "truncated": more}
    return ToolResult(content=text, data=data, refs=_evidence(files))


@tool(category="shell", risk="execute", permissions=_SHELL, approval="ask")
@_reporting
async def bash(
    command: Annotated[str, Meta(min_length=1)],
    context: ToolContext,
    timeout: Annotated[float, Meta(gt=0, le=120)] = 30,  # noqa: ASYNC109  # the command's
) -> ToolResult:
    """Run a shell command in the working folder.

    Args:
        command: The command.
        timeout: The time limit in seconds.
    """
    ran = await _place(context).run(command, timeout=timeout)
    if ran.exit_code != 0 or ran.timed_out:
        return _ended_badly(ran, command)
    ref = Ref(kind="command", value=command, exit_code=0)
    return ToolResult(content=_streams(ran), data=_data(ran), refs=[ref])


def file_tools() -> list[Tool]:
    """Return the built-in file and command tools."""
    return [read_file, write_file, edit_file, glob, grep, bash]


def _place(context: ToolContext) -> Place:
    place: Place = context.sandbox
    return place


async def _exists(place: Place, path: str) -> bool:
    try:
        await place.read(path, limit=0)
    except SandboxError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False
        raise
    return True


def _failed(content: str, *, data: Any = None, refs: Iterable[Ref] = ()) -> ToolResult:
    return ToolResult(content=content, data=data, refs=list(refs), failed=True, code="tool_failed")


def _ended_badly(ran: Ran, command: str) -> ToolResult:
    return ToolResult(
        content=f"{_end(ran)}\n{_streams(ran)}".strip(),
        data=_data(ran),
        refs=[Ref(kind="command", value=command, exit_code=ran.exit_code)],
        failed=True,
        code=SandboxError.code,
    )


def _end(ran: Ran) -> str:
    if ran.timed_out:
        return f"timed out after {ran.seconds:.1f} s"
    if ran.signal is not None:
        return f"killed by signal {ran.signal}"
    return f"exit code {ran.exit_code}"


def _streams(ran: Ran) -> str:
    parts = [_short(ran.stdout).rstrip("\n")]
    if ran.stderr:
        parts.append(f"stderr:\n{_short(ran.stderr)}".rstrip("\n"))
    if ran.truncated:
        parts.append("[the output was truncated]")
    return "\n".join(filter(None, parts)) or "(no output)"


def _data(ran: Ran) -> dict[str, Any]:
    return {
        "exit_code": ran.exit_code,
        "signal": ran.signal,
        "timed_out": ran.timed_out,
        "stdout": _short(ran.stdout),
        "stderr": _short(ran.stderr),
        "truncated": ran.truncated or max(len(ran.stdout), len(ran.stderr)) > SHOWN,
    }


def _short(text: str) -> str:
    """Shorten a long text to its beginning and its end, because the end often has the error."""
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def _evidence(files: Iterable[str]) -> list[Ref]:
    return [Ref(kind="file", value=name, role="evidence") for name in list(files)[:REFS]]

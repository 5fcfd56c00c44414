"""Estimates the risk of a tool call, as a hint for approvers. Pure. The risk is estimated from the
tool's name and arguments, unless the tool declares it. It does not allow or forbid anything,
because a command can hide what it does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from ..log import events as ev

Level: TypeAlias = Literal["low", "medium", "high", "destructive"]

DECLARED: dict[str, Level] = {  # by the risk that a tool declares
    "safe": "low",
    "read": "low",
    "write": "medium",
    "network": "medium",
    "execute": "high",
    "destructive": "destructive",
}
TEXT = 100_000  # characters of a command that are analysed
NESTED = 4  # levels of commands within commands
STARTED = 20  # words of a command in which another command may start


def _any(words: str) -> frozenset[str]:
    return frozenset(words.split())


_READING = _any("read glob grep ls tree list view show")
_REMOVING = _any("delete remove rm unlink destroy drop erase purge wipe")
_SHELLS = _any("bash sh zsh dash ksh fish shell cmd powershell terminal")
_RUNNING = _SHELLS | _any("exec execute command")
_DATABASES = _any("sql query database db psql postgres mysql sqlite")
_COMMANDS = ("command", "commands", "cmd", "script", "code", "line", "sql", "query", "statement")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def level(tool: str, arguments: Any, declared: str | None = None) -> Level:
    """Return the risk of one call: the risk that the tool declares, or else an estimate from its
    name. For a tool that runs commands (`execute`), the estimate includes the command."""
    if declared is not None and declared != "execute":
        return DECLARED.get(declared, "medium")
    words = [word.lower() for word in _WORDS.findall(tool)]
    if declared == "execute" or not _RUNNING.isdisjoint(words):
        return "destructive" if any(map(_destroys, _texts(arguments))) else "high"
    if not _DATABASES.isdisjoint(words) and any(map(_SQL.search, _texts(arguments))):
        return "destructive"
    if not _REMOVING.isdisjoint(words):
        return "high"
    return "low" if words and words[0] in _READING else "medium"


def risk(opened: ev.PendingOpened | None) -> str | None:
    """Return the risk of the call that a pending item asks about: the recorded risk, or else an
    estimate. Returns None if the item is not about a call."""
    if opened is not None and opened.risk is not None:
        return opened.risk
    detail = opened.detail if opened is not None and opened.what == "approval" else None
    if not isinstance(detail, dict) or not isinstance(detail.get("tool"), str):
        return None
    declared = detail.get("risk")
    declared = declared if isinstance(declared, str) else None
    return level(detail["tool"], detail.get("arguments"), declared)


def _texts(arguments: Any) -> Iterator[str]:
    """Yield the arguments of a call that may contain shell commands."""
    if isinstance(arguments, Mapping):
        named = [arguments[name] for name in _COMMANDS if name in arguments]
        for value in named or arguments.values():
            yield from _texts(value) if not isinstance(value, Mapping) else ()
    elif isinstance(arguments, str):
        yield arguments[:TEXT]
    elif isinstance(arguments, Sequence) and all(isinstance(word, str) for word in arguments):
        yield shlex.join(arguments)[:TEXT]


# Analysis of commands

_SQL = re.compile(r"\b(?:drop\s+(?:table|database|schema)|truncate\s+table)\b", re.IGNORECASE)
_BOMB = re.compile(r"(\b\w{1,30}|:)\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1")
_INNER = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_DISK = re.compile(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|dm-|mapper/|md|loop)")
_SET = re.compile(r"\w+=")
_STARTERS = _any(
    "sudo doas env nohup time nice ionice command exec builtin xargs busybox timeout stdbuf setsid "
    "chroot watch parallel if then elif else while until do ! {"
)
_LOOKING = _any("grep egrep fgrep rg ag ack")
_ASIDE = _any("shutdown reboot halt poweroff wipefs mkfs mke2fs mkswap")
_SPLIT = {"init": {"0", "6"}, "telinit": {"0", "6"}, "systemctl": {"poweroff", "reboot", "halt"}}
_TOP = _any(
    "bin boot dev etc home lib lib64 opt proc root sbin srv sys usr var Users System Library "
    "Applications"
)


def _destroys(text: str, depth: int = 0) -> bool:
    """Return whether a shell command line is destructive."""
    if depth > NESTED:
        return False
    if _BOMB.search(text):
        return True
    inner = (first or second for first, second in _INNER.findall(text))
    if any(_destroys(part, depth + 1) for part in inner):
        return True
    return any(_harms(words, depth) for words in _simple(text))


def _simple(text: str) -> Iterator[list[str]]:
    """Split a command line into simple commands; yield the words of each, without quotes."""
    reader = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        for word in reader:
            if word and not word.strip(";&|()\n"):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # an unclosed quote: read the line without quoting
        words = []
        yield from (re.sub(r"['\"\\]", "", line).split() for line in re.split(r"[;&|()\n]+", text))
    yield words


def _harms(words: Sequence[str], depth: int) -> bool:
    """Return whether a simple command is destructive, including a command that it runs, as `sudo`
    does."""
    if any(
        ">" in to and not to.strip("<>") and _DISK.match(where) for to, where in pairwise(words)
    ):
        return True
    while words and _SET.match(words[0]):
        words = words[1:]
    starts = bool(words) and _name(words[0]) in _STARTERS
    read = False
    for at in range(min(len(words), STARTED if starts else 1)):
        program, rest = _name(words[at]), words[at + 1 :]
        if not read and (program in _SHELLS or program in ("eval", "ssh", "su")):
            read = True  # check the commands in its arguments, once
            if any(_destroys(word, depth + 1) for word in rest if " " in word):
                return True
        if _does(program, rest):
            return True
    return False


def _name(program: str) -> str:
    return program.rpartition("/")[2]


def _does(program: str, rest: Sequence[str]) -> bool:
    """Return whether a program with these arguments permanently destroys data."""
    targets = [word for word in rest if not word.startswith("-")]
    match program:
        case "rm":
            recursive = _has(rest, "rR", "--recursive")
            return "--no-preserve-root" in rest or (recursive and any(map(_is_much, targets)))
        case "chmod" | "chown" | "chgrp":
            return _has(rest, "R", "--recursive") and any(map(_is_much, targets[1:]))
        case "find":
            removes = "-delete" in rest or ("-exec" in rest and "rm" in rest)
            return removes and any(_is_much(path) and path[0] in "/~$" for path in targets[:1])
        case "dd":
            return any(word.startswith("of=") and _DISK.match(word[3:]) for word in rest)
        case "tee" | "cp" | "mv" | "shred":
            return any(map(_DISK.match, targets))
        case "init" | "telinit" | "systemctl":
            return not _SPLIT[program].isdisjoint(rest)
    if program in _ASIDE or program.startswith("mkfs."):
        return True
    return program not in _LOOKING and any(map(_SQL.search, [program, *rest, " ".join(rest)]))


def _has(words: Sequence[str], letters: str, long: str) -> bool:
    return any(
        word == long or (word[:1] == "-" and word[:2] != "--" and any(c in word for c in letters))
        for word in words
    )


def _is_much(path: str) -> bool:
    """Return whether a path is the root, a folder in the root, a home folder, or the whole current
    folder."""
    names = [name for name in path.split("/") if name not in ("", ".", "*", ".*")]
    if path.startswith("/"):
        return not names or (len(names) == 1 and names[0] in _TOP)
    if names and re.fullmatch(r"~\w*|\$HOME|\$\{HOME\}|\$PWD", names[0]):
        return len(names) == 1
    return all(name == ".." for name in names)

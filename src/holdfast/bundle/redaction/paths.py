"""Local paths in a text: the folders are taken out, the name of the file stays.

Local are home folders, temporary ones and mounted ones, paths of Windows, and whatever a `file:`
URL names; `/usr/lib` and its like are the same everywhere and say nothing about a machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...redact import Finder, Span

# ruff: noqa: S108 - names of folders to look for, none to write to
_ROOTS = (
    *("/home", "/Users", "/root", "/tmp", "/var/tmp", "/var/folders", "/private/tmp"),
    *("/private/var", "/mnt", "/media", "/Volumes", "/run/user", "/cygdrive", "/export/home"),
    *("/usr/home", "/var/home", "/data/data", "/storage/emulated"),
)
# Below these stands the name of a person or of a machine, never that of a file.
_NAMED = re.compile(
    r"(?:/private|/usr|/var|/export)?/(?:home|Users|media|Volumes)"
    r"|(?:%2F)(?:home|Users)|/(?:mnt|cygdrive)(?:/[A-Za-z](?:/Users)?)?|/run/user|/var/folders(?:/[^/]*)?"
    r"|[A-Za-z]:[\\/]+(?:Users|Documents and Settings)",
    re.IGNORECASE,
)
_END = r"\s\"'`<>|:;,()\[\]{}*?$&!=#\\%^"
_MARKS: tuple[str, ...] = (
    "/home",
    "/Users",
    "/root",
    "/tmp",
    "/var/",
    "/private/",
    "/mnt",
    "/media",
    "/Volumes",
)
_MARKS += ("/run/user", "/cygdrive", ":\\", ":/", "\\\\", "file:", "%2F", "%5C", "~")
_MARKS += ("/export/home", "/usr/home", "/data/data", "/storage/emulated")

_NAME = r"[^\\/\s\"'`<>|:*?\[\]]"
_WINDOWS = re.compile(
    r"(?:(?<![A-Za-z0-9\\])(?:\\\\\?\\)?[A-Za-z]:(?=[\\/]{1,2}\w)(?!//)"
    r"|(?<![\\\w])(?:\\\\){1,2}[A-Za-z][\w.$-]{1,63}(?=\\{1,2}[A-Za-z][\w.$-]))"
    rf"(?:[\\/]{{1,4}}{_NAME}{{1,255}}(?:[ ]{_NAME}{{1,64}}){{0,6}}(?=[\\/]))*+"
    rf"(?:[\\/]{{1,4}}(?:(?![,;(){{}}]){_NAME}){{0,255}}+)?"
)
_FILE = re.compile(
    r"\bfile:(?://[A-Za-z0-9.-]{0,255})?(?P<path>/{1,3}[^\s\"'`<>|\[\]{}]++)"
    r"|\b[a-z][a-z+.-]{1,30}://file(?P<open>/[^\s\"'`<>|\[\]{}]++)"
)
_ENCODED = re.compile(
    r"(?i:%2F(?:home|Users|root|tmp)|[A-Z]%3A%5C(?:Users))(?:%2F|%5C|/)[^\s\"'`<>&\[\]]*+"
)
_TILDE = re.compile(rf"(?<![\w~./-])~[A-Za-z_][\w.-]{{0,31}}/[^{_END}]*+")


def finder(roots: Iterable[str] = ()) -> Finder:
    """Finds the folders of local paths; `roots` are more folders that are local."""
    own = [root.rstrip("/\\") for root in roots if root.rstrip("/\\")]
    names = "|".join(re.escape(root) for root in sorted({*_ROOTS, *own}, key=len, reverse=True))
    step = rf"/[^/{_END}]*+(?:\\? [^/{_END}]{{1,32}}){{0,2}}(?=/[^/\s])|/[^/{_END}]*+"
    posix = re.compile(rf"(?:(?<![\w.~/%-])|(?<=-[A-Za-z]))(?:{names})(?![\w.-])(?:{step})*+")
    marks = (*_MARKS, *own)

    def find(text: str) -> Iterator[Span]:
        if not any(mark in text for mark in marks):
            return
        for found in _FILE.finditer(text):
            yield from _folder(text, *found.span(found.lastgroup or 0))
        for pattern in (_WINDOWS, posix, _TILDE, _ENCODED):
            for found in pattern.finditer(text):
                yield from _folder(text, *found.span())

    return find


def _folder(text: str, start: int, end: int) -> Iterator[Span]:
    """The part of a path that says where it is: all but its last name, and all of it where
    that name is a person's."""
    while end > start and text[end - 1] in ".,;!?":
        end -= 1  # the end of a sentence
    path = text[start:end]
    bare = path.rstrip("/\\")
    folder = bare[: _last(bare)].rstrip("/\\")
    if not folder or _NAMED.fullmatch(folder) or bare in _ROOTS:
        yield Span(start, start + len(bare), "path")
    else:
        yield Span(start, start + len(folder), "path")


def _last(path: str) -> int:
    """Where the last name of a path ends what is before it."""
    small = path.lower() if "%" in path else ""
    return max(0, path.rfind("/"), path.rfind("\\"), small.rfind("%2f"), small.rfind("%5c"))

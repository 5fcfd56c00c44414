"""Finds local paths in a string. The folders are replaced, the name of the file is kept.

Local paths are paths in home folders, temporary folders and mounts, Windows paths, and `file:`
URLs. Folders such as `/usr/lib` are the same on every machine and are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...redact import Finder, Span

# ruff: noqa: S108 - folders to search for, not to write to
_ROOTS = (
    *("/home", "/Users", "/root", "/tmp", "/var/tmp", "/var/folders", "/private/tmp"),
    *("/private/var", "/mnt", "/media", "/Volumes", "/run/user", "/cygdrive", "/export/home"),
    *("/usr/home", "/var/home", "/data/data", "/storage/emulated"),
)
# The next name in these folders is that of a person or a machine, never of a file.
_NAMED = re.compile(
    r"(?:/private|/usr|/var|/export)?/(?:home|Users|media|Volumes)"
    r"|(?:%2F)(?:home|Users)|/(?:mnt|cygdrive)(?:/[A-Za-z](?:/Users)?)?|/run/user|/var/folders(?:/[^/]*)?"
    r"|[A-Za-z]:[\\/]+(?:Users|Documents and Settings)",
    re.IGNORECASE,
)
_END = r"\s\"'`<>|:;,()\[\]{}*?$&!=#\\%^"
_MARKS = (*_ROOTS, ":\\", ":/", "\\\\", "file:", "%2F", "%5C", "~")
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
_ROUTE = r"/(?::\w|\{\w)"  # a parameter of an HTTP route: `/home/:id`
_TILDE = re.compile(rf"(?<![\w~./-])~[A-Za-z_][\w.-]{{0,31}}/[^{_END}]*+")


def finder(roots: Iterable[str] = ()) -> Finder:
    """Return a finder for the folders of local paths; `roots` are additional local folders."""
    own = [root.rstrip("/\\") for root in roots if root.rstrip("/\\")]
    names = "|".join(re.escape(root) for root in sorted({*_ROOTS, *own}, key=len, reverse=True))
    step = rf"/[^/{_END}]*+(?:\\? [^/{_END}]{{1,32}}){{0,2}}(?=/[^/\s])|/[^/{_END}]*+"
    posix = re.compile(
        rf"(?:(?<![\w.~/%-])|(?<=-[A-Za-z]))(?:{names})(?![\w.-]|{_ROUTE})(?:{step})*+"
    )
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
    """Return the path without its last name, or the whole path if the last name is a user name."""
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
    """Return the position of the last separator of a path."""
    small = path.lower() if "%" in path else ""
    return max(0, path.rfind("/"), path.rfind("\\"), small.rfind("%2f"), small.rfind("%5c"))

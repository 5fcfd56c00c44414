"""Path patterns: `*`, `?` and `[ab]` match within a name, `**` matches any number of folders,
`{a,b}` matches a or b. Pure; the time to match is proportional to the lengths of path and
pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from ...errors import InvalidValue

MOST = 100  # alternatives that the braces of one pattern may expand to
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

Names = Sequence[str]


class Pattern:
    """A parsed pattern. It is matched against paths relative to a folder."""

    def __init__(self, text: str) -> None:
        self._each = [tuple(_names(each)) for each in _either(text)]
        self.names = {name for each in self._each for name in each}

    def matches(self, path: Names) -> bool:
        return any(_matches(path, each) for each in self._each)

    def leads_into(self, folder: Names) -> bool:
        """Return whether a path below this folder may match."""
        return any(_leads_into(folder, each) for each in self._each)


def _either(text: str) -> list[str]:
    found, whole = [text], []
    while found:
        one = found.pop()
        if (braces := _BRACES.search(one)) is None:
            whole.append(one)
        else:
            before, after = one[: braces.start()], one[braces.end() :]
            found += [before + word + after for word in braces[1].split(",")]
        if len(found) + len(whole) > MOST:
            raise InvalidValue(
                field="pattern",
                problem=f"has more than {MOST} alternatives",
                remedy="use fewer braces",
                limit=MOST,
            )
    return whole


def _names(text: str) -> Iterator[str]:
    before = ""
    for name in text.split("/"):
        if name not in ("", ".") and not name == before == "**":
            yield name
            before = name


def _matches(path: Names, pattern: Names) -> bool:
    # Lengths of the path prefixes that the pattern matches so far.
    ends = {0}
    for name in pattern:
        if name == "**":
            ends = set(range(min(ends), len(path) + 1))
        else:
            ends = {n + 1 for n in ends if n < len(path) and fnmatchcase(path[n], name)}
        if not ends:
            return False
    return len(path) in ends


def _leads_into(folder: Names, pattern: Names) -> bool:
    for n, name in enumerate(pattern):
        if name == "**" or n == len(folder):
            return True
        if not fnmatchcase(folder[n], name):
            return False
    return False

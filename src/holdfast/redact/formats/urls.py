"""Finds credentials in URLs: the password of a user, or a token instead of the user name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..spans import Bounds, Span
from ..values import NO_SECRET, Looks, looks

_ADDRESS = re.compile(r"://([^\s/?#\"'<>`]*+)")
_SLASHED = re.compile(r"[/?#][^\s\"'<>@]{0,256}+@(?=[\w.\[-])")


def urls(text: str) -> Iterator[Span]:
    """Find the credentials in the URLs of a string."""
    for found in _ADDRESS.finditer(text) if "://" in text else ():
        web = text[max(0, found.start() - 5) : found.start()].lower().endswith(("http", "https"))
        secret = _credentials(text, *found.span(1), web=web)
        if secret is not None and looks(text[slice(*secret)]) not in NO_SECRET:
            yield Span(*secret, "url")


def _credentials(text: str, start: int, end: int, *, web: bool) -> Bounds | None:
    """Return the span of the secret in the authority of a URL, which is the text from `start` to
    `end`.
    """
    if "@" not in text[start:end]:
        # A password with an unescaped slash looks like a host, its port and a path.
        port = text.find(":", start, end)
        if port < 0 or text[port + 1 : end].isdigit() or not (more := _SLASHED.match(text, end)):
            return None
        end = more.end()
    at = text.rindex("@", start, end)
    colon = text.find(":", start, at)
    if 0 <= colon < at - 1:
        return colon + 1, at
    name_end = at if colon < 0 else colon
    token = name_end > start and (web or colon >= 0)
    return (start, name_end) if token and looks(text[start:name_end]) is not Looks.WORD else None

"""Finds private keys in PEM blocks, and tokens without a prefix in long runs of characters."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from ..spans import Bounds, Span
from ..values import DIGIT

_HEADER = r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_FOOTER = r"-{4,5} ?END [A-Z0-9 ]{0,50}-{4,5}"
_BODY = r"(?:[^-]++|-(?!---[- ]{0,2}(?:END|BEGIN)))*+"
# A complete or truncated block. A header without any data does not contain a key.
_BLOCK = re.compile(
    rf"{_HEADER}(?:{_BODY}{_FOOTER}|"
    r"(?=[ \t\r]{0,4}(?:\n|\\[nr])"
    r"|[\s\\nrt>|\"'+,`]{0,32}(?:Proc-Type|DEK-Info|[A-Za-z0-9+/]{16,}))"
    rf"{_BODY})"
)
# Tokens without a prefix, in a long run of characters.
_IN_RUNS = re.compile(
    r"(?P<discord>[MNO](?<![\w.-].)[\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w.-]))"
    r"|(?P<azure>[A-Za-z0-9+/](?<![\w+/-].)[A-Za-z0-9+/]{85}(?===))"
    r"|(?P<license>[A-Z0-9](?<![\w-].)[A-Z0-9]{4}-(?:[A-Z0-9]{5}-){3}[A-Z0-9]{5}(?![\w-]))"
)
_LONG = 29  # length of the shortest of them, in characters


def blocks(text: str, runs: list[Bounds]) -> Iterator[Span]:
    """Find private keys of any length, including incomplete keys, and tokens without a prefix."""
    if "BEGIN " in text and "PRIVATE KEY" in text:
        for found in _BLOCK.finditer(text):
            yield Span(*found.span(), "private-key")
    for low, high in runs:
        token = _IN_RUNS.search(text, low, high + 2) if high - low >= _LONG else None
        if token is not None and _is_random(token):
            yield Span(*token.span(), token.lastgroup or "")


def _is_random(token: re.Match[str]) -> bool:
    if token["azure"]:  # 64 random bytes, not base64 of a text
        return not base64.b64decode(token[0] + "==").isascii()
    return DIGIT.search(token[0]) is not None

"""What is secret in a text, and what is doubtful: below all of its layers, each with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from . import decode
from .formats import Pair, read, telling
from .judge import judge
from .names import SECRETS, Names
from .spans import Span
from .values import Looks, random

_LOGIN = re.compile(r"[A-Za-z][\w.@+-]{0,63}:([^\s:]{6,128})")
LAYERS = 3  # of base64, one in the other


class Finding(NamedTuple):
    """A span of a text; `secret` says that it goes, and otherwise it is doubtful."""

    start: int
    end: int
    rule: str
    reason: str
    secret: bool


def scan(text: str, names: Names, depth: int = 0, *, doubts: bool = False) -> Iterator[Finding]:
    """Everything found in the text, in no order; spans may overlap. With `doubts`, also long random
    values that nothing says anything about."""
    if doubts:
        yield from _unnamed(text)
    yield from _plain(text, names)
    layers = [*decode.views(text)]
    for view in layers:
        for low, high in view.regions():
            for found in _plain(view.text[low:high], names):
                start, end = view.span(low + found.start, low + found.end)
                yield found._replace(start=start, end=end)
    for start, end, inner in _encoded(layers[-1].text if layers else text, names, depth):
        span = layers[-1].span(start, end) if layers else (start, end)
        yield Finding(*span, "base64", f"encoded: {inner.reason}", inner.secret)


def _encoded(text: str, names: Names, depth: int) -> Iterator[tuple[int, int, Finding]]:
    """Runs of base64 or hexadecimal in whose text something is found."""
    if depth >= LAYERS:
        return
    for start, end, inner in decode.encoded(text):
        if depth == 0 and (pair := _LOGIN.fullmatch(inner.strip())) and telling(pair[1]):
            yield start, end, Finding(start, end, "base64", "a user and a password", True)
            continue
        secret = next((found for found in scan(inner, names, depth + 1) if found.secret), None)
        if secret is not None:
            yield start, end, secret


_RANDOM = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9][\w+-]{22,254}[A-Za-z0-9]={0,2}(?![\w+/=-])")
_HASH = re.compile(
    r"[0-9a-f-]{24,}|[0-9A-F-]{24,}|(?:sha\d+|md5|msg|call|toolu|req|resp|run|chatcmpl)[-_].*"
)


def _unnamed(text: str) -> Iterator[Finding]:
    """Long random values without a name, but for hashes and ids of known kinds."""
    for found in _RANDOM.finditer(text):
        digits = sum(c.isdigit() for c in found[0])
        one_case = found[0].islower() or found[0].isupper()
        if digits >= 3 and not one_case and random(found[0]) and not _HASH.fullmatch(found[0]):
            reason = f"{Looks.RANDOM.value}, and nothing says what it is"
            yield Finding(*found.span(), "unknown", reason, False)


def _plain(text: str, names: Names) -> Iterator[Finding]:
    for item in read(text, names):
        if isinstance(item, Span):
            yield Finding(item.start, item.end, item.rule, item.reason or item.rule, True)
        elif found := _judged(text, item, names):
            yield found


def _judged(text: str, pair: Pair, names: Names) -> Finding | None:
    says = pair.says or names.find(pair.name)
    if says is None or pair.start >= pair.end:
        return None
    verdict = judge(pair.name, says, text[pair.start : pair.end], pair.place)
    if not (verdict.secret or verdict.doubtful):
        return None
    rule = pair.rule if says in SECRETS else says
    reason = f"{verdict.reason} ({pair.place.value})"
    return Finding(pair.start, pair.end, rule, reason, verdict.secret)

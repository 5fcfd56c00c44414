"""Searches text for secrets and possible secrets, including text that is encoded, for example as
base64.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from . import encodings
from .formats import Pair, read
from .names import SECRETS, Names
from .spans import Span
from .values import Looks, is_plausible, random
from .verdict import judge

_LOGIN = re.compile(r"[A-Za-z][\w.@+-]{0,63}:([^\s:]{6,128})")
LAYERS = 3  # levels of nested base64


class SecretFinding(NamedTuple):
    """A span of text that is a secret, or a possible secret if `secret` is false."""

    start: int
    end: int
    rule: str
    reason: str
    secret: bool


def scan(
    text: str, names: Names, depth: int = 0, *, doubts: bool = False
) -> Iterator[SecretFinding]:
    """Yield all secrets and possible secrets in text, in no particular order; spans may overlap.
    With `doubts`, also yield long random values without a name.
    """
    if doubts:
        yield from _unnamed(text)
    yield from _plain(text, names)
    layers = [*encodings.decoded(text)]
    for layer in layers:
        for low, high in layer.regions():
            for found in _plain(layer.text[low:high], names):
                start, end = layer.span(low + found.start, low + found.end)
                yield found._replace(start=start, end=end)
    for start, end, reason in _encoded(layers[-1].text if layers else text, names, depth):
        span = layers[-1].span(start, end) if layers else (start, end)
        yield SecretFinding(*span, "base64", f"encoded: {reason}", True)


def _encoded(text: str, names: Names, depth: int) -> Iterator[tuple[int, int, str]]:
    """Yield runs of base64 or hexadecimal whose decoded text contains a secret, with the reason."""
    if depth >= LAYERS:
        return
    for start, end, inner in encodings.encoded(text):
        if depth == 0 and (pair := _LOGIN.fullmatch(inner.strip())) and is_plausible(pair[1]):
            yield start, end, "a user name and a password"
        elif secret := next((one for one in scan(inner, names, depth + 1) if one.secret), None):
            yield start, end, secret.reason


_RANDOM = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9][\w+-]{22,254}[A-Za-z0-9]={0,2}(?![\w+/=-])")
_HASH = re.compile(
    r"[0-9a-f-]{24,}|[0-9A-F-]{24,}|(?:sha\d+|md5|msg|call|toolu|req|resp|run|chatcmpl)[-_].*"
)


def _unnamed(text: str) -> Iterator[SecretFinding]:
    """Yield long random values without a name, except hashes and ids in known formats."""
    for found in _RANDOM.finditer(text):
        digits = sum(c.isdigit() for c in found[0])
        one_case = found[0].islower() or found[0].isupper()
        if digits >= 3 and not one_case and random(found[0]) and not _HASH.fullmatch(found[0]):
            reason = f"{Looks.RANDOM.value}, and has no name"
            yield SecretFinding(*found.span(), "unknown", reason, False)


def _plain(text: str, names: Names) -> Iterator[SecretFinding]:
    for item in read(text, names):
        if isinstance(item, Span):
            yield SecretFinding(item.start, item.end, item.rule, item.reason or item.rule, True)
        elif found := _judged(text, item, names):
            yield found


def _judged(text: str, pair: Pair, names: Names) -> SecretFinding | None:
    says = pair.says or names.find(pair.name)
    if says is None or pair.start >= pair.end:
        return None
    verdict = judge(pair.name, says, text[pair.start : pair.end], pair.syntax)
    if not (verdict.secret or verdict.doubtful):
        return None
    rule = "key" if says in SECRETS else says
    reason = f"{verdict.reason} ({pair.syntax.value})"
    return SecretFinding(pair.start, pair.end, rule, reason, verdict.secret)

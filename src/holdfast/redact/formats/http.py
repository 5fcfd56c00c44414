"""Finds secrets in HTTP: credentials after their scheme, cookies by name, and form fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..names import HEADERS, word_set
from ..spans import Bounds, Span, only_placeholders
from ..values import NO_SECRET, NO_VALUE, UNRESOLVED, Looks, looks, mixed, random
from ..verdict import Syntax
from .keywords import Candidates, Pair, SecretName
from .literals import in_string, quoted

# ruff: noqa: E501 - a pattern is easier to read in one piece

_SCHEME = re.compile(
    r"(?<![\w-])(?:(bearer)|(basic))(?:\s{1,4}|%20|\+)([\w.~+/=-]++)", re.IGNORECASE
)
_MENTIONED = re.compile(r"[Bb](?:earer|asic|EARER|ASIC)")
_CHALLENGE = re.compile(
    r"(?:tokens?|auth|authentication|authorization|schemes?|realm|error|scope|credentials?|keys?"
    r"|of|the|an?|is|was|in|for|and|or|to|with|must|header|format|prefix|\.{3}|information)(?:=.*)?",
    re.IGNORECASE | re.DOTALL,
)
_CREDENTIALS = re.compile(
    r"(?P<scheme>[A-Za-z][\w-]{1,31})[ ](?:token=)?(?P<quote>[\"']?)(?P<token>[^\s\"',;]{1,8192}+)[\"']?"
)
_PARAMETER = re.compile(r"(\w[\w-]{0,31})=(\"([^\"]{0,2048})\"|[^\s,;\"]{1,2048}+)")
_PUBLIC = word_set("""
username realm uri algorithm qop nc opaque charset stale keyid headers version domain signedheaders
oauth_version oauth_signature_method oauth_timestamp oauth_callback scope error
""")
_COOKIE = re.compile(r"([^\s=;,\"']{1,128})=([^;\s\"'\\]{0,4096}+)|([^;\s=\"'\\][^;=\"'\\]{0,64}+)")
_SIGN = re.compile(r"\\{0,3}[\"'`]?\]?[\"']?[ \t]{0,4}(?::|=>|=|,)[ \t]{0,4}")
# Cookies and attributes of cookies that do not identify a user or a session.
_HARMLESS = re.compile(
    r"(?i:path|expires|max-age|domain|samesite|secure|httponly|partitioned|priority|version|comment"
    r"|lang(?:uage)?|locale|theme|tz|timezone|currency|country|consent|cookie_?consent|dark_?mode"
    r"|i18n\w*|_ga\w*|_gid|_gat\w*|sidebar\w*|view|region|page|ab_test|layout|color_mode)"
)
_PART = re.compile(
    r"(?i:content-disposition):[ ]form-data;[ ]name=[\"']?([\w.\[\]-]{1,128})[\"']?[^\r\n]{0,256}"
    r"(?:\r?\n[\w-]{1,64}:[^\r\n]{0,256}){0,4}\r?\n\r?\n"
)
_FORM_END = re.compile(r"\r?\n-{2,}")


_END = re.compile(r"[\r\n`]|\\[nr\"]|\x1b|[ ]-[A-Za-z-]")


def http(text: str, names: list[SecretName]) -> Candidates:
    """Find credentials, cookies and form fields in HTTP requests and responses."""
    for scheme in _SCHEME.finditer(text) if _MENTIONED.search(text) else ():
        bearer, _, secret = scheme.groups()
        word = not bearer and secret.isalpha() and secret[1:].islower()
        if not word and not _CHALLENGE.fullmatch(secret) and looks(secret) not in UNRESOLVED:
            yield Span(*scheme.span(3), "bearer" if bearer else "basic")
    done = 0
    for name in names:
        header = name.words[-1]
        if header not in HEADERS or name.start < done:
            continue
        cookies = header != "authorization"
        if (span := _value(text, name, cookies=cookies)) is not None:
            done = span[1]
            yield from _header(text, span, cookies=cookies)
    for part in _PART.finditer(text) if "form-data" in text else ():
        yield _form_part(text, part)


def _value(text: str, name: SecretName, *, cookies: bool) -> Bounds | None:
    """Return the start and the end of a header's value."""
    sign = _SIGN.match(text, name.end)
    if sign is None:
        return None
    at, mark = sign.end(), sign[0].strip()
    if literal := quoted(text, at):
        if not mark.strip(":=,>") and in_string(text, name.start, text[literal.start - 1]):
            return None
        value = text[literal.start : literal.end]
        if mark[-1:] == "," and " " not in value and not (mixed(value) or random(value)):
            return None  # the next word of a list
        return literal.span
    if mark[-1:] == ":" or (cookies and mark == "="):
        return at, _line_end(text, name.start, at)
    return None


def _header(text: str, span: Bounds, *, cookies: bool) -> Iterator[Span]:
    value = text[slice(*span)]
    if value[:1] == "[" and value.rstrip()[-1:] == "]" and not only_placeholders(value):
        span = span[0] + 1, span[0] + len(value.rstrip()) - 1  # a list with one item
        value = text[slice(*span)]
    if not value.strip() or looks(value) in NO_VALUE:
        return
    bare = text[span[0] - 1] not in "\"'`"
    yield from _cookies(value, span[0]) if cookies else _credentials(value, span[0], bare=bare)


def _line_end(text: str, name: int, at: int) -> int:
    """Return the position at which a header ends: the end of its line, or of the string that
    contains it."""
    found = _END.search(text, at, at + 16384)
    end = found.start() if found else min(len(text), at + 16384)
    for quote in "\"'":
        close = text.find(quote, at, end)
        if close >= 0 and in_string(text, name, quote):
            end = close
    return end


def _credentials(value: str, offset: int, *, bare: bool) -> Iterator[Span]:
    """Yield the token after a scheme, the secret parameters, or the whole value."""
    if found := _CREDENTIALS.fullmatch(value.strip()):
        token = found["token"]
        if looks(token) not in NO_SECRET and not _CHALLENGE.fullmatch(token):
            at = offset + value.index(token, len(found["scheme"]))
            yield Span(at, at + len(token), "key")
        return
    parameters = list(_PARAMETER.finditer(value))
    if parameters and " " in value.strip():
        for one in parameters:
            if one[1].lower() not in _PUBLIC:
                group = 3 if one[3] is not None else 2
                yield Span(offset + one.start(group), offset + one.end(group), "key")
    elif _is_credential(value.strip(), bare=bare):
        yield Span(offset, offset + len(value.rstrip()), "key")


def _is_credential(value: str, *, bare: bool) -> bool:
    """Return whether the value of a header without a known structure is a credential."""
    if " " in value:
        return value.split(maxsplit=1)[0].lower() in ("digest", "bearer", "basic", "negotiate")
    return not bare or mixed(value) or random(value)


def _cookies(value: str, offset: int) -> Iterator[Span]:
    """Yield the value of each cookie, or all cookies as one value if one of them may be an ordinary
    word.
    """
    found = [one for one in _COOKIE.finditer(value) if one[1] and not _HARMLESS.fullmatch(one[1])]
    secrets = [one for one in found if looks(one[2]) not in NO_SECRET]
    if any(len(one[2]) < 6 or looks(one[2]) in (Looks.WORD, Looks.PHRASE) for one in found):
        if secrets:
            yield Span(offset, offset + len(value.rstrip()), "key")
        return
    for one in secrets:
        yield Span(offset + one.start(2), offset + one.end(2), "key")


def _form_part(text: str, part: re.Match[str]) -> Pair:
    end = _FORM_END.search(text, part.end(), part.end() + 8192)
    stop = end.start() if end else min(len(text), part.end() + 8192)
    return Pair(part.end(), stop, part[1].rstrip("]").rpartition("[")[2], "", Syntax.FIELD)

"""HTTP: credentials behind their scheme, cookies by their names, parts of a form."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..judge import Place
from ..names import HEADERS, words
from ..spans import Span, only_placeholders
from ..values import NO_SECRET, NO_VALUE, Looks, looks, mixed, random
from .landmarks import Anchor
from .literal import in_string, quoted
from .pairs import Pair

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
_PUBLIC = {"username", "realm", "uri", "algorithm", "qop", "nc", "opaque", "charset", "stale"}
_PUBLIC |= {"keyid", "headers", "version", "domain", "signedheaders", "oauth_version"}
_PUBLIC |= {"oauth_signature_method", "oauth_timestamp", "oauth_callback", "scope", "error"}
_COOKIE = re.compile(r"([^\s=;,\"']{1,128})=([^;\s\"'\\]{0,4096}+)|([^;\s=\"'\\][^;=\"'\\]{0,64}+)")
_COOKIES = {"cookie", "cookies"}
_HEADERS = HEADERS | {("document", "cookie"), ("cookies",), ("x", "authorization")}
_SIGN = re.compile(r"\\{0,3}[\"'`]?\]?[\"']?[ \t]{0,4}(?::|=>|=|,)[ \t]{0,4}")
# Cookies and attributes of one that say nothing about who has it.
_HARMLESS = re.compile(
    r"(?i:path|expires|max-age|domain|samesite|secure|httponly|partitioned|priority|version|comment"
    r"|lang(?:uage)?|locale|theme|tz|timezone|currency|country|consent|cookie_?consent|dark_?mode"
    r"|i18n\w*|_ga\w*|_gid|_gat\w*|sidebar\w*|view|region|page|ab_test|layout|color_mode)"
)
_PART = re.compile(
    r"(?i:content-disposition):[ ]form-data;[ ]name=[\"']?([\w.\[\]-]{1,128})[\"']?[^\r\n]{0,256}"
    r"(?:\r?\n[\w-]{1,64}:[^\r\n]{0,256}){0,4}\r?\n\r?\n"
)
# A line of a cookies.txt.
_JAR = re.compile(
    r"(?m)^\S{1,253}\t(?:TRUE|FALSE)\t/\S{0,128}\t(?:TRUE|FALSE)\t\d{1,12}\t\S{1,128}\t(\S{6,4096})$"
)
_FORM_END = re.compile(r"\r?\n-{2,}")


def http(text: str, found: list[Anchor]) -> Iterator[Span | Pair]:
    """Credentials, cookies and forms."""
    for scheme in _SCHEME.finditer(text) if _MENTIONED.search(text) else ():
        bearer, basic, secret = scheme.groups()
        if _is_credential(secret, basic=bool(basic)):
            yield Span(*scheme.span(3), "bearer" if bearer else "basic")
    done = 0
    for anchor in found:
        said = words(anchor.name)
        if anchor.start < done:
            continue
        if said[-2:] in _HEADERS or said[-1:] in _HEADERS:
            value = _value(text, anchor, cookies=said[-1] in _COOKIES)
            if value is not None:
                done = value[1]
                yield from _header(text, value, cookies=said[-1] in _COOKIES)
    if "\tTRUE\t" in text or "\tFALSE\t" in text:
        for jar in _JAR.finditer(text):
            yield Span(*jar.span(1), "key")
    if "form-data" in text:
        for part in _PART.finditer(text):
            yield from _form_part(text, part)


def _is_credential(secret: str, *, basic: bool) -> bool:
    if _CHALLENGE.fullmatch(secret) or (basic and secret.isalpha() and secret[1:].islower()):
        return False
    shape = looks(secret)
    return shape not in (Looks.PLACEHOLDER, Looks.REFERENCE, Looks.EMPTY)


def _value(text: str, anchor: Anchor, *, cookies: bool) -> tuple[int, int] | None:
    """Where the value of a header stands, behind its name."""
    sign = _SIGN.match(text, anchor.end)
    if sign is None:
        return None
    at, mark = sign.end(), sign[0].strip()
    if literal := quoted(text, at):
        if not sign[0].strip(" \t:=,>") and in_string(text, anchor.start, text[literal.start - 1]):
            return None
        value = text[literal.start : literal.end]
        if mark[-1:] == "," and " " not in value and not (mixed(value) or random(value)):
            return None  # the next word of a list
        return literal.start, literal.end
    if mark[-1:] == ":" or (cookies and mark == "="):
        return at, _line_end(text, anchor.start, at)
    return None


def _header(text: str, span: tuple[int, int], *, cookies: bool) -> Iterator[Span]:
    value = text[slice(*span)]
    if value[:1] == "[" and value.rstrip()[-1:] == "]" and not only_placeholders(value):
        span = span[0] + 1, span[0] + len(value.rstrip()) - 1  # a list of one
        value = text[slice(*span)]
    if not value.strip() or only_placeholders(value) or looks(value) in NO_VALUE:
        return
    bare = text[span[0] - 1] not in "\"'`"
    yield from _cookies(value, span[0]) if cookies else _credentials(value, span[0], bare=bare)


_END = re.compile(r"[\r\n`]|\\[nr\"]|\x1b|[ ]-[A-Za-z-]")


def _line_end(text: str, name: int, at: int) -> int:
    """Where a header ends: with its line, or with the string that it stands in."""
    found = _END.search(text, at, at + 16384)
    end = found.start() if found else min(len(text), at + 16384)
    for mark in "\"'":
        close = text.find(mark, at, end)
        if close >= 0 and in_string(text, name, mark):
            end = close
    return end


def _credentials(value: str, offset: int, *, bare: bool) -> Iterator[Span]:
    """What stands behind a scheme; all of it where that cannot be told."""
    if found := _CREDENTIALS.fullmatch(value.strip()):
        token = found["token"]
        if looks(token) in NO_SECRET or _CHALLENGE.fullmatch(token):
            return
        at = offset + value.index(token, len(found["scheme"]))
        yield Span(at, at + len(token), "key")
        return
    parameters = list(_PARAMETER.finditer(value))
    if parameters and " " in value.strip():
        for one in parameters:
            if one[1].lower() not in _PUBLIC:
                group = 3 if one[3] is not None else 2
                yield Span(offset + one.start(group), offset + one.end(group), "key")
    elif _whole(value.strip(), bare=bare):
        yield Span(offset, offset + len(value.rstrip()), "key")


def _whole(value: str, *, bare: bool) -> bool:
    """Whether a header whose parts cannot be told apart holds credentials."""
    if " " in value:
        return value.split(maxsplit=1)[0].lower() in ("digest", "bearer", "basic", "negotiate")
    return not bare or mixed(value) or random(value)


def _cookies(value: str, offset: int) -> Iterator[Span]:
    """Each cookie by itself, where each can be told; otherwise all of them."""
    found = [one for one in _COOKIE.finditer(value) if one[0].strip()]
    secrets: list[Span] = []
    for one in found:
        if one[3] is not None or _HARMLESS.fullmatch(one[1]):
            continue
        if len(one[2]) < 6 or looks(one[2]) in (Looks.WORD, Looks.PHRASE):
            secrets = []
            break
        if looks(one[2]) not in NO_SECRET:
            secrets.append(Span(offset + one.start(2), offset + one.end(2), "key"))
    named = [one for one in found if one[1] and not _HARMLESS.fullmatch(one[1])]
    if secrets or not named or all(looks(one[2]) in NO_SECRET for one in named):
        yield from secrets
    elif "=" in value:
        yield Span(offset, offset + len(value.rstrip()), "key")


def _form_part(text: str, part: re.Match[str]) -> Iterator[Pair]:
    end = _FORM_END.search(text, part.end(), part.end() + 8192)
    stop = end.start() if end else min(len(text), part.end() + 8192)
    yield Pair(part.end(), stop, part[1].rstrip("]").rpartition("[")[2], "", Place.FIELD)

"""Secrets that a text assigns to a name: `password=…`, `"apiKey": "…"`, `--token …`, `Cookie: …`,
`<password>…</password>`, lines of an environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .names import SECRETS, words
from .spans import PLACEHOLDER, Span, only_placeholders

_HEADERS = {("authorization",), ("proxy", "authorization"), ("cookie",), ("set", "cookie")}
_PLAIN = {"none", "null", "true", "false", "str", "string", "undefined", "required", "optional"}
_PLAIN |= {"int", "float", "bool", "bytes", "any", "list", "dict", "set", "tuple", "object", "self"}
_PLAIN |= {"a", "an", "the", "this", "that", "your", "my", "our", "its", "secretstr", "secretbytes"}
_PLAIN |= {"bearer", "basic", "digest"}
# A place for a value, or where to find it: `?`, `$2`, `%s`, `%(token)s`, `$TOKEN`, `env:TOKEN`.
_ELSEWHERE = re.compile(r"\?|\$\d{1,2}|%s|%|\$[A-Z][A-Z0-9_]*|\$|env:[A-Z0-9_]+")
# What code puts there instead of a secret: a call, an item of something, a field of something.
_CODE = re.compile(r"[A-Za-z_][A-Za-z_.]*+(?=[(\[])")
_DOTTED = re.compile(r"(?:[A-Za-z_]\w*+\.)*+([A-Za-z_]\w*+)(?![\w.-])")
_FIELD = re.compile(
    r"(?:self|cls|this|os|sys|settings|config|conf|env|process|request|args|options|ctx|kwargs)"
    r"\.[A-Za-z_][\w.]*+(?![^\s,;:)}\]])"
)

# A run that can be long is possessive, and none can begin inside itself.
_NAMED = re.compile(
    r"(?<![\w-])(--)?-*+([^\W\d][\w-]*+)"
    r"(?:\\{0,3}[\"']?\]?\s{0,4}+(?:[:=]=?>?)\s{0,4}+|(?(1)[ ]{1,4}+|(?!)))"
)
_QUOTED = re.compile(
    r"""(?:[bBrRuUfF]{1,2}(?=["'])|[A-Z]\w{0,63}+\((?=[bru]{0,2}["'])[bru]{0,2})?"""
    r"""(\\{0,3})(["'])"""
)
_MASKED = PLACEHOLDER.pattern
_UNQUOTED = re.compile(rf"""(?:[^\s"'`&,;<>()\[\]{{}}\\]|{_MASKED})*+""")
_BRACED = re.compile(r"""\{[^{}\r\n"':]{1,256}\}""")
_LINE = re.compile(r"""[^\r\n"'`\\]*+""")
_WHOLE = re.compile(r"[^\r\n]*+")
_LINE_START = re.compile(r"(?:\A|\n)(?:export )?\Z")
_VARIABLE = re.compile(r"(?m)^(?:export )?[A-Z][A-Z0-9_]{1,127}=")
_FOLDED = re.compile(
    r"[|>][+-]?[ \t]{0,4}(?:"
    r"\r?\n(?P<by>[ \t]{1,64}+)(?P<lines>[^\r\n]*+(?:\r?\n(?P=by)[^\r\n]*+)*+)"
    r"|\\{1,3}n[ ]{1,64}(?P<escaped>[^\\\"'\r\n]++))"
)
_ELEMENT = re.compile(r"<([A-Za-z][\w:.-]{0,63})(?:\s[^<>]{0,256})?>([^<>]++)</")
_DUMP = 3  # lines of variables that make a text an environment

Find = Callable[[str], str | None]


def assignments(text: str, find: Find) -> Iterator[Span]:
    """What stands behind a name that `find` knows as a secret's."""
    dump = "=" in text and len(_VARIABLE.findall(text[:65_536])) >= _DUMP
    at = 0
    while found := _NAMED.search(text, at):
        at = found.end()
        named = find(found[2]) if len(found[2]) <= 128 else None
        if named is None or found[2].lower() == "tokens":  # in a text these are counted
            continue
        if text[max(0, found.start(2) - 10) : found.start(2)].endswith(
            ("[redacted:", "[withheld:")
        ):
            continue
        spoken = named not in SECRETS or text[found.end(2) : at].strip() == ":="
        if spoken and not _QUOTED.match(text, at):
            continue  # what it is called ends where prose goes on; a finder may know where
        start, at = _assigned(text, found, dump=dump)
        if not _spared(text[start:at], named) and not (start == found.end() and _code(text, found)):
            yield Span(start, at, "key" if named in ("token", "tokens") else named)


def elements(text: str, find: Find) -> Iterator[Span]:
    """What stands in an element of XML that is called like a secret."""
    if "</" in text:
        for found in _ELEMENT.finditer(text):
            named = find(found[1].rpartition(":")[2])
            if named is not None and not _spared(found[2], named):
                yield Span(*found.span(2), "key" if named in ("token", "tokens") else named)


def _code(text: str, found: re.Match[str]) -> bool:
    """Whether it is a name that code gives to the value of another one."""
    at = found.end()
    if _CODE.match(text, at) or _FIELD.match(text, at):
        return True
    other = _DOTTED.match(text, at)
    return other is not None and other[1].lower() == found[2].lower()


def _spared(secret: str, named: str) -> bool:
    if secret.lower() in _PLAIN or not secret.strip(" \\*.…"):
        return True
    if named == "tokens" and secret.replace(".", "").isdigit():
        return True
    if _ELSEWHERE.fullmatch(secret) or (named == "token" and secret.isdigit() and len(secret) < 5):
        return True
    return only_placeholders(secret.rstrip(".,;:!?"))


def _assigned(text: str, found: re.Match[str], *, dump: bool) -> tuple[int, int]:
    """From where to where the value goes; a quoted one to its closing quote, or to the end if
    there is none."""
    at = found.end()
    quote = _QUOTED.match(text, at)
    if quote is None:
        return _plain(text, found, dump=dump)
    start, escapes, mark = quote.end(), quote[1], quote[2]
    end = start
    while (end := text.find(mark, end)) >= 0:
        before = 0
        while end - before > start and text[end - before - 1] == "\\":
            before += 1
        if before <= len(escapes) or (not escapes and before % 2 == 0):
            return start, end - min(before, len(escapes))
        end += 1
    return start, len(text)


def _plain(text: str, found: re.Match[str], *, dump: bool) -> tuple[int, int]:
    """A value without quotes: to where a word, a line of a header or a variable ends."""
    at, before = found.end(), found.start(2)
    lead = text[max(0, before - 4) : before].rstrip(" ")[-1:]
    if words(found[2]) in _HEADERS and lead not in ("(", ",", "["):
        pattern = _LINE
    elif folded := _FOLDED.match(text, at):
        return folded.span("lines" if folded["lines"] else "escaped")
    elif braced := _BRACED.match(text, at) if text[at - 1] == "=" else None:
        return braced.start() + 1, braced.end() - 1
    elif dump and found[2].isupper() and _LINE_START.search(text[max(0, before - 8) : before]):
        pattern = _WHOLE
    else:
        pattern = _UNQUOTED
    span = pattern.match(text, at)
    return span.span() if span else (at, at)

"""Finds secrets whose name is itself written as a value: `- name: DB_PASSWORD` with `value: …` on
the next line, `<add key="SmtpPassword" value="…"/>`, `variable "password" { default = "…" }`, JSON
Patch, property lists, XML elements, and Kubernetes Secrets, whose values are secret under any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..names import listed
from ..spans import Span
from ..values import UNRESOLVED, looks
from ..verdict import Syntax
from .keywords import Candidates, Pair, SecretName
from .literals import line_start, quoted, rest_of_line, run
from .pairs import BLOCK

# ruff: noqa: E501 - a pattern is easier to read in one piece

_FIELDS = listed(
    "name key path field header variable option param property parameter id label setting env output type k n"
)
_SIGNS = " \t\r\n:=\\\"'"
_NAMING = re.compile(
    rf"(?:^|[\s{{,<\[\"'(+-])(?:variable_name|{'|'.join(_FIELDS)})"
    r"\\{0,2}[\"']?(?:\s{0,16}[:=]\s{0,4}|\s)\\{0,2}[\"']?\Z",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"[\"'\s{,;(-]\\{0,2}[\"']?(?:value|val|default|defaultvalue|default_value|stringvalue|content|contents"
    r"|plaintext|secretstring|secret_string|v)(?:\\{0,2}[\"']?\s{0,16}[:=]\s{0,8}|(?<=--value)\s(?=\S))",
    re.IGNORECASE,
)
_ABOVE = re.compile(r"[ \t+]{0,32}- [\"']?(?:value|default)[\"']?:[ ]{1,4}", re.IGNORECASE)
_OPENED = re.compile(r"\\{0,2}[\"']?\]?\s{0,4}[:=]?\s{0,4}\{")
_ANOTHER = re.compile(
    r"(?i:\bname\b|\bkey\b|\bvariable\b|[\"']path[\"'])[\"']?\s{0,4}[:=]|\}|/>|\n\s{0,8}\n"
)
_ELEMENT = re.compile(
    r"<([A-Za-z][\w:.-]{0,63})(?P<attributes>\s[^<>]{0,512})?>\s{0,64}"
    r"(?:<!\[CDATA\[(?P<data>(?:[^\]]|\](?!\]>)){0,4096})\]\]>|(?P<text>[^<>]{1,4096}))\s{0,64}</"
)
_CALLED = re.compile(r"\b(?:name|key|id|property)=[\"']([\w.:-]{1,128})[\"']")
# An XML element with a name, and the next element with its value.
_BESIDE = re.compile(
    r">\s{0,16}([^<>\n]{1,64}?):?\s{0,16}</[\w:.-]{1,64}>:?\s{0,64}(?:<[\w:.-]{1,64}(?:\s[^<>]{0,256})?>\s{0,64}){1,3}"
    r"([^<>]{1,4096}?)\s{0,64}</"
)
# An XML element with a name, and the element inside it with the value.
_INSIDE = re.compile(
    r"<[\w:.-]{1,64}\s[^<>]{0,256}?(?i:name|key|id|property)=[\"']([\w.:-]{1,128})[\"'][^<>]{0,256}>\s{0,64}"
    r"<(?:[\w:.-]{1,64})>([^<>]{1,4096})</"
)
# A name in bold type, and the value after it.
_BOLD = re.compile(
    r">([^<>\n]{1,64}?)\s{0,4}:?\s{0,4}</(?:b|strong|em|i|span|label|dt|th|td)>\s{0,4}:?\s{0,4}([^\s<>]{6,256})"
)
_KIND = re.compile(r"(?m)^[ +-]{0,8}kind:[ ]{0,4}[\"']?Secret[\"']?[ ]{0,4}\r?$")
_DATA = re.compile(r"(?m)^([ +-]{0,16})(?:stringData|data):[ ]{0,4}\r?$")
_ENTRY = re.compile(r"([ +-]{1,32})[\"']?[\w./-]{1,253}[\"']?:[ ]{1,4}(?=\S)")
_TAG = re.compile(r"<[A-Za-z][\w:.-]{0,63}\s[^<>]{0,512}>")
_GIVEN = re.compile(r"\bvalue=[\"']([^\"'<>]{1,4096})[\"']")
_WINDOW = 320  # characters between a name and its value
_CALLED_SO = re.compile(r"[\w .:/()-]{1,64}")
_PAGE = re.compile(r"</(?:dt|dd|td|th|label|b|strong|em|i|span|li|p|div|a|h\d|button|option)>")


def named_values(text: str, names: list[SecretName]) -> Candidates:
    """Find values whose name is written as the value of another field."""
    for name in names:
        if _OPENED.match(text, name.end) or _is_value(text, name.start):
            yield from _apart(text, name)
    if "</" in text:
        yield from _elements(text)
    for tag in _TAG.finditer(text) if "value=" in text else ():
        called, value = _CALLED.search(tag[0]), _GIVEN.search(tag[0])
        if called and value:
            at = tag.start()
            yield Pair(at + value.start(1), at + value.end(1), called[1], "", Syntax.QUOTED)
    if "Secret" in text and "kind:" in text:
        yield from _kubernetes(text)


def _is_value(text: str, at: int) -> bool:
    """Return whether the name is the value of a field such as `name:`."""
    start = at
    while (
        start > 0 and at - start < 128 and (text[start - 1].isalnum() or text[start - 1] in "/._:-")
    ):
        start -= 1
    lead = text[max(0, start - 40) : start].rstrip(_SIGNS).lower()
    return lead.endswith(_FIELDS) and _NAMING.search(text, max(0, start - 40), start) is not None


def _apart(text: str, name: SecretName) -> Iterator[Pair]:
    value = _line_before(text, name) or _VALUE.search(text, name.end, name.end + _WINDOW)
    if value is None or (
        value.start() > name.end and _ANOTHER.search(text, name.end, value.start())
    ):
        return
    at = value.end()
    if block := BLOCK.match(text, at):
        yield name.pair(block.span("lines"), Syntax.FIELD)
    elif literal := quoted(text, at):
        yield name.pair(literal.span, Syntax.QUOTED)
    elif not text.startswith(("{", "["), at):
        span = rest_of_line(text, at) if "\n" in text[name.end : at] else run(text, at)
        yield name.pair(span, Syntax.LINE)


def _line_before(text: str, name: SecretName) -> re.Match[str] | None:
    """Find the value on the line before its name: `- value: …` and then `name: PASSWORD`."""
    line = line_start(text, name.start, 128) - 1
    if line <= 0 or "- " in text[line : name.start]:
        return None
    return _ABOVE.match(text, line_start(text, line, 512), line)


def _elements(text: str) -> Iterator[Pair]:
    for found in _ELEMENT.finditer(text):
        group = "data" if found["data"] is not None else "text"
        name = found[1].rpartition(":")[2]
        called = _CALLED.search(found["attributes"] or "")
        if name not in ("key", "code"):
            yield Pair(*found.span(group), called[1] if called else name, "", Syntax.QUOTED)
    at = 0
    while beside := _BESIDE.search(text, at):
        at = text.rfind(">", at, beside.start(2))  # this value may be the name of the next pair
        page = _PAGE.search(beside[0])  # configuration has values here, but a web page has any text
        if _CALLED_SO.fullmatch(beside[1]) and not (page and " " in beside[2]):
            syntax = Syntax.CALL if page else Syntax.QUOTED
            yield Pair(*beside.span(2), beside[1], "", syntax)
    for pattern, syntax in ((_INSIDE, Syntax.QUOTED), (_BOLD, Syntax.CALL)):
        for found in pattern.finditer(text):
            yield Pair(*found.span(2), found[1], "", syntax)


def _kubernetes(text: str) -> Iterator[Span]:
    """Find every value in documents that are Kubernetes Secrets."""
    done = -1
    for kind in _KIND.finditer(text):
        if kind.start() < done:
            continue
        start = max(text.rfind("\n---", 0, kind.start()), 0)
        end = text.find("\n---", kind.end())
        done = len(text) if end < 0 else end
        for data in _DATA.finditer(text, start, done):
            yield from _entries(text, data, done)


def _entries(text: str, data: re.Match[str], end: int) -> Iterator[Span]:
    at = text.find("\n", data.end() - 1) + 1
    while 0 < at < end:
        entry = _ENTRY.match(text, at)
        if entry is None or len(entry[1]) <= len(data[1]):
            return
        literal = quoted(text, entry.end())
        span = literal.span if literal else rest_of_line(text, entry.end())
        if looks(text[slice(*span)]) not in UNRESOLVED:
            yield Span(*span, "kubernetes")
        at = text.find("\n", span[1]) + 1

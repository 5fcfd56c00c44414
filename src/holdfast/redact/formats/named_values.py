"""Pairs in which the name is itself a value: `- name: DB_PASSWORD` and `value: …` on the next line,
`<add key="SmtpPassword" value="…"/>`, `variable "password" { default = "…" }`, a JSON Patch, a property
list, elements of XML, and Kubernetes Secrets, whose values are secret under any name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..judge import Place
from ..names import listed
from ..spans import Span
from ..values import Looks, looks
from .landmarks import Anchor
from .literal import quoted, rest_of_line, run
from .pairs import BLOCK, Pair

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
# An element that holds a name, and the next one, which holds its value.
_BESIDE = re.compile(
    r">\s{0,16}([^<>\n]{1,64}?):?\s{0,16}</[\w:.-]{1,64}>:?\s{0,64}(?:<[\w:.-]{1,64}(?:\s[^<>]{0,256})?>\s{0,64}){1,3}"
    r"([^<>]{1,4096}?)\s{0,64}</"
)
# An element with a name, and the one inside it, which holds the value.
_INSIDE = re.compile(
    r"<[\w:.-]{1,64}\s[^<>]{0,256}?(?i:name|key|id|property)=[\"']([\w.:-]{1,128})[\"'][^<>]{0,256}>\s{0,64}"
    r"<(?:[\w:.-]{1,64})>([^<>]{1,4096})</"
)
# A name in bold, and the value behind it.
_BOLD = re.compile(
    r">([^<>\n]{1,64}?)\s{0,4}:?\s{0,4}</(?:b|strong|em|i|span|label|dt|th|td)>\s{0,4}:?\s{0,4}([^\s<>]{6,256})"
)
_KIND = re.compile(r"(?m)^[ +-]{0,8}kind:[ ]{0,4}[\"']?Secret[\"']?[ ]{0,4}\r?$")
_DATA = re.compile(r"(?m)^([ +-]{0,16})(?:stringData|data):[ ]{0,4}\r?$")
_ENTRY = re.compile(r"([ +-]{1,32})[\"']?[\w./-]{1,253}[\"']?:[ ]{1,4}(?=\S)")
_JWK = re.compile(r"[\"'](?:d|p|q|dp|dq|qi|k)\\{0,2}[\"']\s{0,4}:\s{0,4}\\{0,2}[\"']([\w-]{16,}+)")
_TAG = re.compile(r"<[A-Za-z][\w:.-]{0,63}\s[^<>]{0,512}>")
_GIVEN = re.compile(r"\bvalue=[\"']([^\"'<>]{1,4096})[\"']")
_WINDOW = 320  # characters between a name and its value


def named_values(text: str, found: list[Anchor]) -> Iterator[Pair | Span]:
    """Values of names that stand apart from them."""
    for anchor in found:
        if _OPENED.match(text, anchor.end) or _is_value(text, anchor.start):
            yield from _apart(text, anchor)
    if "</" in text:
        yield from _elements(text)
    if "value=" in text:
        yield from _attributes(text)
    if "Secret" in text and "kind:" in text:
        yield from _kubernetes(text)
    if "kty" in text:
        yield from (Span(*key.span(1), "jwk") for key in _JWK.finditer(text))


def _is_value(text: str, at: int) -> bool:
    """Whether the name is the value of a field that holds names."""
    start = at
    while (
        start > 0 and at - start < 128 and (text[start - 1].isalnum() or text[start - 1] in "/._:-")
    ):
        start -= 1
    lead = text[max(0, start - 40) : start].rstrip(_SIGNS).lower()
    return lead.endswith(_FIELDS) and _NAMING.search(text, max(0, start - 40), start) is not None


def _apart(text: str, anchor: Anchor) -> Iterator[Pair]:
    value = _before(text, anchor) or _VALUE.search(text, anchor.end, anchor.end + _WINDOW)
    if value and value.start() > anchor.end and _ANOTHER.search(text, anchor.end, value.start()):
        value = None
    if value is None:
        return
    at = value.end()
    if block := BLOCK.match(text, at):
        yield Pair(*block.span("lines"), anchor.name, anchor.says, Place.FIELD)
    elif literal := quoted(text, at):
        yield Pair(literal.start, literal.end, anchor.name, anchor.says, Place.QUOTED)
    elif text[at : at + 1] not in ("{", "["):
        start, end = rest_of_line(text, at) if "\n" in text[anchor.end : at] else run(text, at)
        yield Pair(start, end, anchor.name, anchor.says, Place.LINE)


def _before(text: str, anchor: Anchor) -> re.Match[str] | None:
    """The value on the line before: `- value: …` and then `name: PASSWORD`."""
    line = text.rfind("\n", max(0, anchor.start - 128), anchor.start)
    above = text.rfind("\n", max(0, line - 512), max(line, 0)) + 1
    if line <= 0 or "- " in text[line : anchor.start]:
        return None
    return _ABOVE.match(text, above, line)


def _attributes(text: str) -> Iterator[Pair]:
    """Tags that hold a name and a value, in any order."""
    for tag in _TAG.finditer(text):
        name, value = _CALLED.search(tag[0]), _GIVEN.search(tag[0])
        if name and value:
            start = tag.start()
            yield Pair(start + value.start(1), start + value.end(1), name[1], "", Place.QUOTED)


def _elements(text: str) -> Iterator[Pair]:
    for found in _ELEMENT.finditer(text):
        group = "data" if found["data"] is not None else "text"
        name = found[1].rpartition(":")[2]
        called = _CALLED.search(found["attributes"] or "")
        if name not in ("key", "code"):
            yield Pair(*found.span(group), called[1] if called else name, "", Place.QUOTED)
    at = 0
    while beside := _BESIDE.search(text, at):
        at = text.rfind(">", at, beside.start(2))  # the value may be the name of the next
        place = _beside(beside[0])
        if not _CALLED_SO.fullmatch(beside[1]):
            continue
        if place is Place.QUOTED or " " not in beside[2]:
            yield Pair(*beside.span(2), beside[1], "", place)
    for pattern, place in ((_INSIDE, Place.QUOTED), (_BOLD, Place.CALL)):
        for found in pattern.finditer(text):
            yield Pair(*found.span(2), found[1], "", place)


_CALLED_SO = re.compile(r"[\w .:/()-]{1,64}")
_PAGE = re.compile(r"</(?:dt|dd|td|th|label|b|strong|em|i|span|li|p|div|a|h\d|button|option)>")


def _beside(markup: str) -> Place:
    """A configuration writes values so; on a page it may be any text."""
    return Place.CALL if _PAGE.search(markup) else Place.QUOTED


def _kubernetes(text: str) -> Iterator[Span]:
    """Every value of a Secret, in the document that says it is one."""
    done = -1
    for kind in _KIND.finditer(text):
        if kind.start() < done:
            continue
        start = max(text.rfind("\n---", 0, kind.start()), 0)
        end = text.find("\n---", kind.end())
        end = len(text) if end < 0 else end
        done = end
        for data in _DATA.finditer(text, start, end):
            yield from _entries(text, data, end)


def _entries(text: str, data: re.Match[str], end: int) -> Iterator[Span]:
    at = text.find("\n", data.end() - 1) + 1
    while 0 < at < end:
        entry = _ENTRY.match(text, at)
        if entry is None or len(entry[1]) <= len(data[1]):
            return
        literal = quoted(text, entry.end())
        span = (literal.start, literal.end) if literal else rest_of_line(text, entry.end())
        if looks(text[slice(*span)]) not in (Looks.REFERENCE, Looks.PLACEHOLDER, Looks.EMPTY):
            yield Span(*span, "kubernetes")
        at = text.find("\n", span[1]) + 1

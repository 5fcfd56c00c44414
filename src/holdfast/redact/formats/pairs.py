"""Names and values with a sign between them, as most formats write them: `name = value`,
`"name": "value"`, `name: Type = "value"`, `--name value`, lists and blocks below a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..judge import Place
from ..names import SPOKEN, words
from ..spans import Span
from ..values import Looks, looks, mixed, random
from .landmarks import Anchor
from .literal import Literal, Runs, in_string, quoted, rest_of_line, run

# ruff: noqa: E501 - a pattern is easier to read in one piece


class Pair(NamedTuple):
    """A value of a text, from where to where, under a name that says it is secret."""

    start: int
    end: int
    name: str
    says: str
    place: Place
    rule: str = "key"


_TYPE = r"[A-Za-z_&*'\[(][\w&'<>\[\](){}.,:|?* ]{0,48}?"
_GAP = r"[ \t\u00a0\u202f]"
_SIGN = re.compile(
    r"(?P<close>\\{0,3}[\"'`]?(?:\)?\]|%5D|\*\*|__|`|</[a-z]{1,10}>)?[\"']?\]?)"
    rf"(?P<type>[ \t]{{0,4}}[?!]?[ \t]{{0,4}}:[ \t]{{0,4}}{_TYPE}[ \t]{{0,4}}(?=:?=[ \t]{{0,4}}[\"'`@(&A-Zbfr{{])"
    r"|\[[\w'\"-]{0,32}\]|[ ]{1,4}As[ ]\w{1,32}|[ ]{1,4}[A-Za-z][\w.<>\[\]()*&]{0,40}(?=[ ]{1,4}:?=[ ]?[N\"'`@]))?"
    rf"(?P<lead>{_GAP}{{0,32}}|{_GAP}?\.{{2,64}}{_GAP}?)"
    r"(?P<sign>:=|=>|->|~>|<-|\|\|=|\?\?=|\?=|\+=|={1,3}|!={1,2}|:{1,2}|：|＝|→|⇒)"
    rf"(?P<gap>{_GAP}{{0,32}})(?P<strong>\*\*|__)?{_GAP}?"
)
_OPTION = re.compile(r"[ \t]{1,4}(?![-=|&;><)])")
_WRAPPED = re.compile(
    r"\({0,2}(?:\([\w *]{1,32}\)|(?:new[ ])?[A-Za-z_&][\w.:]{0,48}(?:<[\w, ]{0,32}>)?!?\((?:default\s?=\s?)?){1,2}(?=[bBrRuU@]?[\"'`])"
    r"|&(?=\")|\{\s?(?=[\"'`])"
)
_ITEM = re.compile(r"[ \t]{0,64}(?:[-*•][ \t]{1,8}|\d{1,3}[.):][ \t]{1,4})?(?=\S)")
BLOCK = re.compile(
    r"[|>][+-]?\d?[ \t]{0,4}(?:"
    r"\r?\n(?P<by>[ \t]{1,64}+)(?P<lines>[^\r\n]*+(?:\r?\n(?P=by)[^\r\n]*+)*+)"
    r"|\\{1,3}n[ ]{1,64}(?P<escaped>[^\\\"'\r\n]++))"
)
_LINE_START = re.compile(
    r"[ \t>|+~#*$%-]{0,64}(?:(?:export|set|setx|declare|readonly|local|env|ENV|ARG|let|var"
    r"|const|val|final|my|our|global|static|SET|Set|put|\d{1,5}|#)[ \t]+(?:-\w[ \t]+)?)?"
    r"[$\"'\[@{(]{0,2}[ \t]{0,2}(?:[\w-]{1,32}[ \t]{1,8}){0,3}"
)
_CODE = re.compile(r"[(\[.]|[ ]?(?:\(|\[|=>|\?|\|\||&&|[+*/]\s|if\s|or\s|and\s|\|\s)")
_OPERATOR = re.compile(r"[ ](?:if|or|and)\s")
_COLUMNS = re.compile(r"(?:[ ]{2,64}|[ ]{0,8}\t[ \t]{0,8})(?=\S)")
_SETS = re.compile(r"(?:^|\s)(?:ENV|ARG|setx|set|export|setenv)(?:\s-\w{1,4})?\Z")
# Behind a name that begins its line: dots or a mark, or the next line, and one word.
_LEADER = re.compile(
    r"(?:[ ]{0,4}(?:\.{2,64}|[~>|–—-])[ ]{1,4}|[ \t]{0,8}\r?\n(?:[-=]{3,80}\r?\n)?[ \t]{0,8})([^\s|:=]{6,256})[ \t]{0,8}(?:\r?\n|\Z)"
)
_BLANK = re.compile(r"[ ](?=\S)")
_LABEL = re.compile(r"(?:[^\W\d_]{1,16}[ ]?){0,3}")
_YAML_ANCHOR = re.compile(r"&\w{1,64} (?=\S)")
_ODD = re.compile(r"[-_!@#$%^&*+=~\d]|[a-z][A-Z]")
_DEFAULT = re.compile(r"[^\r\n]{0,60}?[\[(]default:?[ ]")
_FOR = re.compile(
    r"[ ](?:for|of|für|pour|de|du)(?:[ ][\w'\"@.-]{1,40}){1,4}[ ]?(?=:[ ]\S)|[ ][\[(][^\])\r\n]{0,32}[\])](?=:[ ]\S)"
)
_DIFF = re.compile(r"\[-(.{1,256}?)-\]\{\+(.{1,256}?)\+\}")
_CHANGE = re.compile(r"[ ]?(?:->|=>|→)[ ]?(?=[\"'`])")
HEADERS = {"authorization", "cookie", "cookies"}  # `http` reads these
_PHRASE = re.compile(
    r"(?:\d{1,2}[.)]? ?)?[a-z]{3,8}(?:[ ,]{1,2}(?:\d{1,2}[.)]? ?)?[a-z]{3,8}){3,23}"
)
_CODES = re.compile(r"[\w-]{4,24}(?:[ ,;|]{1,3}[\w-]{4,24}){1,31}")
_PLUS = re.compile(r"\s{0,4}[+.&]\s{0,4}(?=[\"'])")
_IF = re.compile(r"\s{1,4}if\b[^\n\"']{0,60}\belse\s{1,4}(?=[\"'])|\s{1,4}:\s{1,4}(?=[\"'])")
_TERNARY = re.compile(r"[^\n\"'`?=;]{1,60}\?\s{0,4}(?=[\"'`])")
_ARGUMENT = re.compile(r"\s{0,4},\s{0,8}(?:\w{1,24}\s?=\s?)?(?=[bru]?[\"'])")
_PARALLEL = re.compile(r"\s{0,4},\s{0,4}(?=[\"'])")
# Functions that make a value of a literal, or a hash of it.
_MAKES = {
    "string",
    "some",
    "secret",
    "bytes",
    "str",
    "md5",
    "sha1",
    "sha256",
    "sha512",
    "password",
    "crypt",
}
KEY = re.compile(r"\s{0,8}(?:=>|:)")
_NAMED = re.compile(r"[\"'][\w.@ -]{1,64}[\"']\s{0,8}(?:=>|:)\s{0,8}(?=[\"'])")
_JOINED = re.compile(r"\(\s{0,64}(?=[bBrRuU]?[\"'])")
_NEXT_PIECE = re.compile(
    r"\s{0,4}[+.]?[ \t]{0,4}(?:\\[ \t]{0,4})?\r?\n[ \t]{0,64}[+.]?[ \t]{0,4}(?=[bBrRuU]?[\"'])"
)
_ITEMS, _BRACKET, _MORE = 32, 4096, 8


def pairs(text: str, found: list[Anchor]) -> Iterator[Pair | Span]:
    """The pairs that begin at these names."""
    runs = Runs(text)
    for anchor in found:
        if words(anchor.name)[-1] not in HEADERS and text[anchor.start - 3 : anchor.start] != "://":
            yield from _pair(text, anchor, runs)


def _pair(text: str, anchor: Anchor, runs: Runs) -> Iterator[Pair | Span]:
    behind = _FOR.match(text, anchor.end)
    sign = _SIGN.match(text, behind.end() if behind else anchor.end)
    if sign is None:
        yield from _without_sign(text, anchor)
        return
    at = sign.end()
    if sign["sign"] == ":" and sign["close"][:1] in ('"', "'") and not sign["close"][1:2]:
        at = _over_lines(text, at)  # a name in quotes: JSON, whose value may be on the next line
    elif at < len(text) and text[at] in "\r\n":
        yield from _below(text, anchor, at)
        return
    yield from _value(text, anchor, sign, at, runs)


def _over_lines(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _value(
    text: str, anchor: Anchor, sign: re.Match[str], at: int, runs: Runs
) -> Iterator[Pair | Span]:
    if diff := _DIFF.match(text, at):
        yield _made(anchor, *diff.span(1), Place.LINE)
        yield _made(anchor, *diff.span(2), Place.LINE)
    elif block := BLOCK.match(text, at):
        yield _made(anchor, *block.span("lines" if block["lines"] else "escaped"), Place.FIELD)
    elif text[at : at + 1] == "[" and sign["sign"] in (":", "=", "=>"):
        yield from _array(text, anchor, at)
    elif text[at : at + 1] == "{" and anchor.name.lower().endswith("s"):
        yield from _object(text, anchor, at)
    elif joined := _JOINED.match(text, at):
        yield from _pieces(text, anchor, joined.end())
    elif literal := quoted(text, at):
        yield from _literal(text, anchor, sign, at)
    elif ternary := _TERNARY.match(text, at):
        yield from _literal(text, anchor, sign, ternary.end())
    elif wrapped := _WRAPPED.match(text, at):
        at = wrapped.end()
        place = Place.QUOTED if set(words(wrapped[0])) & _MAKES else Place.CALL
        for _ in range(3):
            if (literal := quoted(text, at)) is None:
                return
            yield _made(anchor, literal.start, literal.end, place)
            more = _ARGUMENT.match(text, literal.after)
            at = more.end() if more else len(text)
    elif sign["sign"] not in ("!=", "!=="):
        yield from _plain(text, anchor, sign, at, runs)


def _literal(text: str, anchor: Anchor, sign: re.Match[str], at: int) -> Iterator[Pair]:
    literal = quoted(text, at)
    mark = text[literal.start - 1] if literal else ""
    if literal is None or (not sign["close"] and in_string(text, anchor.start, mark)):
        return  # the quote ends the string that the name stands in
    yield _made(anchor, literal.start, literal.end, Place.QUOTED)
    before = text[max(0, anchor.start - 2) : anchor.start].strip()
    follow = (
        (_CHANGE, _PLUS, _IF, _PARALLEL)
        if before == "," and sign["lead"]
        else (_CHANGE, _PLUS, _IF)
    )
    for _ in range(_MORE):
        more = next((found for one in follow if (found := one.match(text, literal.after))), None)
        literal = quoted(text, more.end()) if more else None
        if literal is None:
            return
        yield _made(anchor, literal.start, literal.end, Place.QUOTED)


def _plain(text: str, anchor: Anchor, sign: re.Match[str], at: int, runs: Runs) -> Iterator[Pair]:
    """A value without quotes: the rest of a line, or a run within one."""
    begun = text.rfind("\n", max(0, anchor.start - 96), anchor.start) + 1
    begins = (begun > 0 or anchor.start <= 96) and _LINE_START.fullmatch(text, begun, anchor.start)
    if yaml := _YAML_ANCHOR.match(text, at):
        at = yaml.end()
    start, end = runs.run(at)
    mark = text[anchor.start - 1 : anchor.start]
    if mark in ("'", '"') and text[end : end + 1] == mark:
        # All of a string, `"PASSWORD=…"`; or the name of something else, `"token:rotate": …`.
        if not KEY.match(text, end + 1):
            yield _made(anchor, start, end, Place.LINE)
        return
    line = runs.rest_of_line(at)
    if begins and anchor.name.isupper() and sign["sign"] == "=" and runs.environment:
        yield _made(anchor, *line, Place.LINE)
    elif begins and line[1] <= end + 1:
        yield _made(
            anchor, start, _trimmed(text, start, line[1]), _on_line(text, sign, end, ini=runs.ini)
        )
    elif begins and _whole_line(text, anchor, sign, start, end, line):
        yield _made(anchor, *line, Place.LINE)
    elif end > start and (not _CODE.match(text, end) or _is_said(text, start, end)):
        yield _made(anchor, start, end, _within(text, anchor, sign, start, end))


def _is_said(text: str, start: int, end: int) -> bool:
    """Whether a sentence goes on behind a value, and not an expression."""
    value = text[start:end]
    return _OPERATOR.match(text, end) is not None and (mixed(value) or random(value))


def _trimmed(text: str, start: int, end: int) -> int:
    while end > start and text[end - 1] in ",;" and end - start > 1:
        end -= 1
    return end


def _on_line(text: str, sign: re.Match[str], end: int, *, ini: bool) -> Place:
    """A line that is nothing but a name and a value. In code, `name = other` is no value; in a file
    with sections it is."""
    if _CODE.match(text, end) or sign["type"] or sign["sign"] == "->":
        return Place.BARE
    spaced = sign["sign"] in ("=", ":=", "==", "===", "<-") and sign["lead"]
    return Place.BARE if spaced and not ini else Place.LINE


def _whole_line(
    text: str, anchor: Anchor, sign: re.Match[str], start: int, end: int, line: tuple[int, int]
) -> bool:
    """Whether the value is all of the line: it goes on with marks that no run has, or it is a
    phrase of which the name says so."""
    if sign["sign"] == "=" and not sign["lead"] and text[end : end + 1] == " ":
        # A variable before a command, or one of several; a name with dots is a property.
        return "." in anchor.name and "=" not in text[end : line[1]]
    after = text[end : end + 1]
    if after and after not in " \t,;)]}>|&" and end > start:
        return not _CODE.match(text, end)
    if after == "&" or (
        after in ",;)]}>|" and line[1] - start < 64 and " " not in text[start : line[1]]
    ):
        return "=" not in text[end : line[1]] and not _CODE.match(text, end)
    named = set(words(anchor.name))
    return bool(SPOKEN & named) or bool(named & {"codes"} and _CODES.fullmatch(text, *line))


def _within(text: str, anchor: Anchor, sign: re.Match[str], start: int, end: int) -> Place:
    """Within a line: attached to its sign it is a word of a command or a log line, unless it
    stands in the parentheses of a call."""
    before, after = text[anchor.start - 1 : anchor.start], text[end : end + 1]
    if sign["sign"] != "=" or sign["lead"] or sign["gap"] or before == ".":
        return Place.BARE
    begun = text.rfind("\n", max(0, start - 512), start) + 1
    line = text[max(begun, start - 512) : start]
    if line.count("(") > line.count(")") and (after in (")", ",") or before == "("):
        return Place.BARE
    return (
        Place.OPTION
        if after in ("", " ", "\n", "\r", "&", ";", ",", '"', "'", "`", "|", "\t", "#", "<")
        else Place.BARE
    )


def _array(text: str, anchor: Anchor, at: int) -> Iterator[Pair]:
    """The texts of a list in brackets."""
    end = text.find("]", at, at + _BRACKET)
    at += 1
    for _ in range(_ITEMS if end > 0 else 0):
        while at < end and text[at] in " \t\r\n,":
            at += 1
        literal = quoted(text, at) if at < end else None
        if literal is None or literal.end > end or KEY.match(text, literal.after):
            return
        if looks(text[literal.start : literal.end]) is Looks.PLAIN:
            return  # rules for a value
        yield _made(anchor, literal.start, literal.end, Place.QUOTED)
        at = literal.after


def _object(text: str, anchor: Anchor, at: int) -> Iterator[Pair]:
    """The texts of an object, under names of their own: `PASSWORDS = {"anna": "…"}`."""
    end = text.find("}", at, at + _BRACKET)
    for _ in range(_ITEMS if end > 0 else 0):
        key = _NAMED.search(text, at, end)
        literal = quoted(text, key.end()) if key else None
        if literal is None or literal.end > end:
            return
        yield _made(anchor, literal.start, literal.end, Place.QUOTED)
        at = literal.after


def _pieces(text: str, anchor: Anchor, at: int) -> Iterator[Pair | Span]:
    """A literal in several pieces, one a line."""
    found: list[Literal] = []
    while len(found) < _ITEMS and (literal := quoted(text, at)):
        found.append(literal)
        more = _NEXT_PIECE.match(text, literal.after)
        at = more.end() if more else len(text)
    whole = looks("".join(text[one.start : one.end] for one in found))
    for one in found:
        if len(found) > 1 and whole in (Looks.RANDOM, Looks.MIXED):
            yield Span(one.start, one.end, "key")
        else:
            yield _made(anchor, one.start, one.end, Place.QUOTED)


def _below(text: str, anchor: Anchor, at: int) -> Iterator[Pair]:
    """A list on the lines below: `api_keys:` and then `- …`, one a line."""
    lead = text.rfind("\n", max(0, anchor.start - 256), anchor.start) + 1
    indent = len(text[lead : anchor.start]) - len(text[lead : anchor.start].lstrip())
    phrase = bool(SPOKEN & set(words(anchor.name)))
    if any(c in "(=.{" for c in text[lead : anchor.start]):
        return  # a line of code
    for n in range(_ITEMS):
        line = text.find("\n", at, at + 8)
        if line < 0:
            return
        if n == 0 and text[line + 1 : line + 2] == "\n":
            line += 1
        item = _ITEM.match(text, line + 1)
        if item is None or "\n" in item[0]:
            return
        start, end = rest_of_line(text, item.end())
        marked = item[0].strip() != "" or (len(item[0]) > indent)
        if phrase and text[start:end].islower() and _PHRASE.fullmatch(text, start, end):
            yield _made(anchor, start, end, Place.LINE)
            return
        if not marked or " " in text[start:end] or ":" in text[start:end]:
            return
        if literal := quoted(text, start):
            start, at = literal.start, literal.after
            yield _made(anchor, literal.start, literal.end, Place.LINE)
        else:
            yield _made(anchor, start, end, Place.LINE)
            at = end


def _without_sign(text: str, anchor: Anchor) -> Iterator[Pair]:
    """An option and its word, a column and its value, a variable and its value."""
    at, before = anchor.end, text[max(0, anchor.start - 3) : anchor.start]
    begun = text.rfind("\n", max(0, anchor.start - 64), anchor.start) + 1
    lead = text[max(begun, anchor.start - 64) : anchor.start].strip(" \t$>+|")
    if before.endswith("-") or _SETS.search(lead) or lead.startswith("set "):
        if default := _DEFAULT.match(text, at):
            yield _made(anchor, *run(text, default.end()), Place.QUOTED)
        elif gap := _OPTION.match(text, at):
            literal = quoted(text, gap.end())
            start, end = (literal.start, literal.end) if literal else _argument(text, gap.end())
            option = Place.OPTION if before.endswith("--") or lead else Place.BARE
            yield _made(anchor, start, end, option)
    elif _LABEL.fullmatch(lead) and (gap := _LEADER.match(text, at)):
        yield _made(anchor, *gap.span(1), Place.CALL)
    elif not lead and (gap := _COLUMNS.match(text, at) or _BLANK.match(text, at)):
        start, end = rest_of_line(text, gap.end())
        word = text[start:end].partition("\t")[0]
        end = start + len(word)
        if " " not in word and word[:1] not in "|{(" and not word.strip(",;").isupper():
            if anchor.says == "token":
                end = start + len(word.rstrip(".,;:!?"))
            firm = len(gap[0]) > 1 or (anchor.name[:1].islower() and _ODD.search(word))
            yield _made(anchor, start, end, Place.CELL if firm else Place.CALL)


_WORD = re.compile(r"[^\s\"'`|<>\]]{1,4096}+")


def _argument(text: str, at: int) -> tuple[int, int]:
    """A word of a command."""
    found = _WORD.match(text, at)
    return found.span() if found else (at, at)


def _made(anchor: Anchor, start: int, end: int, place: Place) -> Pair:
    return Pair(start, end, anchor.name, anchor.says, place)

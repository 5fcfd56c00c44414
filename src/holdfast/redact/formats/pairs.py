"""Finds secrets in pairs of a name and a value with a separator: `name = value`, `"name": "value"`,
`name: Type = "value"`, `--name value`, and lists and blocks below a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..names import HEADERS, SPOKEN, words
from ..spans import Bounds, Span
from ..values import Looks, looks, mixed, random
from ..verdict import Syntax
from .keywords import Candidates, Pair, SecretName
from .literals import Runs, in_string, line_start, literals, quoted, rest_of_line, run

# ruff: noqa: E501 - a pattern is easier to read in one piece

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
# After a name at the start of its line: dots, a separator or a line break, and one word.
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
_PHRASE = re.compile(
    r"(?:\d{1,2}[.)]? ?)?[a-z]{3,8}(?:[ ,]{1,2}(?:\d{1,2}[.)]? ?)?[a-z]{3,8}){3,23}"
)
_CODES = re.compile(r"[\w-]{4,24}(?:[ ,;|]{1,3}[\w-]{4,24}){1,31}")
# Between two literals that are both values of the same name: a change, a concatenation, a choice.
_ALSO = re.compile(
    r"[ ]?(?:->|=>|→)[ ]?(?=[\"'`])|\s{0,4}[+.&]\s{0,4}(?=[\"'])"
    r"|\s{1,4}if\b[^\n\"']{0,60}\belse\s{1,4}(?=[\"'])|\s{1,4}:\s{1,4}(?=[\"'])"
)
_ALSO_PARALLEL = re.compile(rf"{_ALSO.pattern}|\s{{0,4}},\s{{0,4}}(?=[\"'])")
_TERNARY = re.compile(r"[^\n\"'`?=;]{1,60}\?\s{0,4}(?=[\"'`])")
_ARGUMENT = re.compile(r"\s{0,4},\s{0,8}(?:\w{1,24}\s?=\s?)?(?=[bru]?[\"'])")
# Functions that wrap or hash a literal.
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
_LIST_GAP = re.compile(r"[ \t\r\n,]{0,256}")
_ENDS_OPTION = ("", " ", "\n", "\r", "&", ";", ",", '"', "'", "`", "|", "\t", "#", "<")
_WORD = re.compile(r"[^\s\"'`|<>\]]{1,4096}+")
_ITEMS, _BRACKET = 32, 4096


def pairs(text: str, names: list[SecretName]) -> Candidates:
    """Find the values that follow these names."""
    runs = Runs(text)
    for name in names:
        if name.words[-1] not in HEADERS and not text.endswith("://", 0, name.start):
            yield from _pair(text, name, runs)


def _pair(text: str, name: SecretName, runs: Runs) -> Candidates:
    detail = _FOR.match(text, name.end)
    sign = _SIGN.match(text, detail.end() if detail else name.end)
    if sign is None:
        yield from _without_sign(text, name)
        return
    at = sign.end()
    if sign["sign"] == ":" and sign["close"] in ('"', "'"):
        while at < len(text) and text[at] in " \t\r\n":  # JSON, whose value may be on the next line
            at += 1
    elif at < len(text) and text[at] in "\r\n":
        yield from _lines_below(text, name, at)
        return
    yield from _value(text, name, sign, at, runs)


def _value(text: str, name: SecretName, sign: re.Match[str], at: int, runs: Runs) -> Candidates:
    if diff := _DIFF.match(text, at):
        yield name.pair(diff.span(1), Syntax.LINE)
        yield name.pair(diff.span(2), Syntax.LINE)
    elif block := BLOCK.match(text, at):
        yield name.pair(block.span("lines" if block["lines"] else "escaped"), Syntax.FIELD)
    elif text.startswith("[", at) and sign["sign"] in (":", "=", "=>"):
        yield from _array(text, name, at)
    elif text.startswith("{", at) and name.name.lower().endswith("s"):
        yield from _object(text, name, at)
    elif joined := _JOINED.match(text, at):
        yield from _pieces(text, name, joined.end())
    elif quoted(text, at):
        yield from _literal(text, name, sign, at)
    elif ternary := _TERNARY.match(text, at):
        yield from _literal(text, name, sign, ternary.end())
    elif wrapped := _WRAPPED.match(text, at):
        syntax = Syntax.QUOTED if set(words(wrapped[0])) & _MAKES else Syntax.CALL
        for literal in literals(text, wrapped.end(), _ARGUMENT, 3):
            yield name.pair(literal.span, syntax)
    elif sign["sign"] not in ("!=", "!=="):
        yield from _unquoted(text, name, sign, at, runs)


def _literal(text: str, name: SecretName, sign: re.Match[str], at: int) -> Iterator[Pair]:
    parallel = sign["lead"] and text[max(0, name.start - 2) : name.start].strip() == ","
    for n, literal in enumerate(literals(text, at, _ALSO_PARALLEL if parallel else _ALSO, 9)):
        quote = text[literal.start - 1]
        if n == 0 and not sign["close"] and in_string(text, name.start, quote):
            return  # the quote closes the string that the name is in
        yield name.pair(literal.span, Syntax.QUOTED)


def _unquoted(
    text: str, name: SecretName, sign: re.Match[str], at: int, runs: Runs
) -> Iterator[Pair]:
    """Find a value without quotes: the rest of a line, or a word of it."""
    begun = line_start(text, name.start, 96)
    begins = (begun > 0 or name.start <= 96) and _LINE_START.fullmatch(text, begun, name.start)
    if yaml := _YAML_ANCHOR.match(text, at):
        at = yaml.end()
    start, end = runs.run(at)
    quote = text[name.start - 1 : name.start]
    if quote in ("'", '"') and text.startswith(quote, end):
        # A whole string, `"PASSWORD=…"`; or a longer name, `"token:rotate": …`.
        if not KEY.match(text, end + 1):
            yield name.pair((start, end), Syntax.LINE)
        return
    line = runs.rest_of_line(at)
    if begins and name.name.isupper() and sign["sign"] == "=" and runs.environment:
        yield name.pair(line, Syntax.LINE)
    elif begins and line[1] <= end + 1:
        stop = end if text[end : line[1]] in (",", ";") else line[1]
        yield name.pair((start, stop), _line_syntax(text, sign, end, ini=runs.ini))
    elif begins and _is_whole_line(text, name, sign, (start, end), line):
        yield name.pair(line, Syntax.LINE)
    elif end > start and (not _CODE.match(text, end) or _continues(text, start, end)):
        yield name.pair((start, end), _word_syntax(text, name, sign, start, end))


def _continues(text: str, start: int, end: int) -> bool:
    """Return whether the text after the value is the rest of a sentence, rather than of an
    expression.
    """
    value = text[start:end]
    return _OPERATOR.match(text, end) is not None and (mixed(value) or random(value))


def _line_syntax(text: str, sign: re.Match[str], end: int, *, ini: bool) -> Syntax:
    """Return the syntax of a line with only a name and a value. `name = other` is an expression in
    code, but a value in a file with sections.
    """
    spaced = sign["sign"] in ("=", ":=", "==", "===", "<-") and sign["lead"] and not ini
    code = _CODE.match(text, end) or sign["type"] or sign["sign"] == "->"
    return Syntax.BARE if spaced or code else Syntax.LINE


def _is_whole_line(
    text: str, name: SecretName, sign: re.Match[str], word: Bounds, line: Bounds
) -> bool:
    """Return whether the value is the whole line: it contains characters that usually end a word,
    or its name is the name of a phrase.
    """
    start, end = word
    after, rest = text[end : end + 1], text[end : line[1]]
    if sign["sign"] == "=" and not sign["lead"] and after == " ":
        # A variable before a command, or one of several; a name with dots is a property.
        return "." in name.name and "=" not in rest
    if after and after not in " \t,;)]}>|&" and end > start:
        return not _CODE.match(text, end)
    if after == "&" or (after in ",;)]}>|" and len(rest) < 64 and " " not in rest):
        return "=" not in rest and not _CODE.match(text, end)
    named = set(name.words)
    return bool(SPOKEN & named) or ("codes" in named and bool(_CODES.fullmatch(text, *line)))


def _word_syntax(text: str, name: SecretName, sign: re.Match[str], start: int, end: int) -> Syntax:
    """Return the syntax of a word within a line. A word directly after its separator belongs to a
    command or a log line, except among the arguments of a call.
    """
    before, after = text[name.start - 1 : name.start], text[end : end + 1]
    if sign["sign"] != "=" or sign["lead"] or sign["gap"] or before == ".":
        return Syntax.BARE
    line = text[max(line_start(text, start, 512), start - 512) : start]
    if line.count("(") > line.count(")") and (after in (")", ",") or before == "("):
        return Syntax.BARE
    return Syntax.OPTION if after in _ENDS_OPTION else Syntax.BARE


def _array(text: str, name: SecretName, at: int) -> Iterator[Pair]:
    """Find the literals of a list in brackets."""
    end = text.find("]", at, at + _BRACKET)
    first = _LIST_GAP.match(text, at + 1)
    for literal in literals(text, first.end(), _LIST_GAP, _ITEMS) if first else ():
        if literal.end > end or KEY.match(text, literal.after):
            return
        if looks(text[literal.start : literal.end]) is Looks.PLAIN:
            return  # validation rules
        yield name.pair(literal.span, Syntax.QUOTED)


def _object(text: str, name: SecretName, at: int) -> Iterator[Pair]:
    """Find the literals of an object whose names are not names of secrets: `PASSWORDS = {"anna":
    "…"}`.
    """
    end = text.find("}", at, at + _BRACKET)
    for _ in range(_ITEMS if end > 0 else 0):
        key = _NAMED.search(text, at, end)
        literal = quoted(text, key.end()) if key else None
        if literal is None or literal.end > end:
            return
        yield name.pair(literal.span, Syntax.QUOTED)
        at = literal.after


def _pieces(text: str, name: SecretName, at: int) -> Candidates:
    """Find a literal in several pieces, one per line."""
    found = list(literals(text, at, _NEXT_PIECE, _ITEMS))
    whole = looks("".join(text[one.start : one.end] for one in found))
    secret = len(found) > 1 and whole in (Looks.RANDOM, Looks.MIXED)
    for one in found:
        yield Span(*one.span, "key") if secret else name.pair(one.span, Syntax.QUOTED)


def _lines_below(text: str, name: SecretName, at: int) -> Iterator[Pair]:
    """Find items on the lines below a name: `api_keys:` and then `- …`."""
    lead = text[line_start(text, name.start, 256) : name.start]
    indent = len(lead) - len(lead.lstrip())
    if any(c in "(=.{" for c in lead):
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
        if SPOKEN & set(name.words) and _PHRASE.fullmatch(text, start, end):
            yield name.pair((start, end), Syntax.LINE)
            return
        marked = item[0].strip() != "" or len(item[0]) > indent
        if not marked or " " in text[start:end] or ":" in text[start:end]:
            return
        literal = quoted(text, start)
        yield name.pair(literal.span if literal else (start, end), Syntax.LINE)
        at = literal.after if literal else end


def _without_sign(text: str, name: SecretName) -> Iterator[Pair]:
    """Find values without a separator: of an option, a column or a variable."""
    at, before = name.end, text[max(0, name.start - 3) : name.start]
    begun = line_start(text, name.start, 64)
    lead = text[max(begun, name.start - 64) : name.start].strip(" \t$>+|")
    if before.endswith("-") or _SETS.search(lead) or lead.startswith("set "):
        if default := _DEFAULT.match(text, at):
            yield name.pair(run(text, default.end()), Syntax.QUOTED)
        elif gap := _OPTION.match(text, at):
            option = Syntax.OPTION if before.endswith("--") or lead else Syntax.BARE
            if argument := quoted(text, gap.end()):
                yield name.pair(argument.span, option)
            elif word := _WORD.match(text, gap.end()):
                yield name.pair(word.span(), option)
    elif _LABEL.fullmatch(lead) and (gap := _LEADER.match(text, at)):
        yield name.pair(gap.span(1), Syntax.CALL)
    elif not lead and (gap := _COLUMNS.match(text, at) or _BLANK.match(text, at)):
        start, end = rest_of_line(text, gap.end())
        value = text[start:end].partition("\t")[0]
        if " " not in value and value[:1] not in "|{(" and not value.strip(",;").isupper():
            firm = len(gap[0]) > 1 or (name.name[:1].islower() and _ODD.search(value))
            bare = value.rstrip(".,;:!?") if name.says == "token" else value
            span = start, start + len(bare)
            yield name.pair(span, Syntax.CELL if firm else Syntax.CALL)

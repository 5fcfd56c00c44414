"""Finds secrets in command lines: in short options whose meaning depends on the program (`commands`
lists them), and in arguments of programs. Long options such as `--password` are read by `pairs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..spans import Bounds, Span, trie
from ..values import NO_SECRET, Looks, is_strong, looks, mixed, random
from .commands import OPTIONS, PORTS, VERBS
from .keywords import Keywords

_WORD = re.compile(r"\"((?:[^\"\\\r\n]|\\.){0,4096})\"|'([^'\r\n]{0,4096})'|[^\s\"'|;<>&]{1,4096}+")
_LINE = re.compile(r"[^\r\n]{1,4096}")
_BREAK = re.compile(r"\|\|?|&&|;|(?:^|\s)[<>]")
_WORDS = 64  # words of a command that are read
_NOT = NO_SECRET | {Looks.NAME}
_PROGRAM = re.compile(rf"(?<![\w-])({trie(OPTIONS)})(?:\.exe)?(?=[ \t])")
_ABOUT = re.compile(rf"(?<=[ \t])(?:{trie(VERBS)})(?=[ \t])")
_GIVEN = {"--value", "--secret-string", "--secret-value", "--string-value", "--data-file-value"}
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/\S*)?|[\w.+-]+@[\w.-]+|/\S*|\w+:/\S*")


def shell(text: str, found: Keywords) -> Iterator[Span]:
    """Find secrets among the words of commands."""
    done = 0
    for keyword in found.programs:
        program = _PROGRAM.match(text, keyword.start - (keyword.text in ("z", "za")))
        if program and keyword.start >= done:
            words = _split(text, program.end())
            done = words[-1][1] if words else 0
            yield from _command(text, program[1], words)
    done = 0
    for keyword in found.verbs:
        verb = _ABOUT.match(text, keyword.start)
        if verb and keyword.start >= done:
            words = _split(text, verb.end())
            done = words[-1][1] if words else done
            yield from _about_secrets(text, words)


def _about_secrets(text: str, words: list[Bounds]) -> Iterator[Span]:
    """Find the words that look like a secret in a command that handles secrets."""
    before = ""
    for begin, stop in words:
        name, sign, _ = text[begin:stop].partition("=")
        start = begin + len(name) + 1 if sign and "://" not in name else begin
        value = text[start:stop]
        likely = is_strong(value) or (random(value) and "/" not in value)
        likely = likely or (before in _GIVEN and looks(value) not in _NOT)
        before = text[begin:stop]
        if likely and value[0] not in "-$" and "(" not in value and not _HOST.fullmatch(value):
            yield Span(start, stop, "shell")


def _command(text: str, program: str, words: list[Bounds]) -> Iterator[Span]:
    """Find the secrets among the words of one command."""
    options, plain = OPTIONS[program], 0
    for n, (begin, stop) in enumerate(words):
        word = text[begin:stop]
        option, sign, _ = word.partition("=")
        span: Bounds | None = None
        kind = "s"
        if sign and options.get(option, "n") != "n":
            kind = options[option]
            span = _value(text, kind, begin + len(option) + 1, stop)
        elif word in options and n + 1 < len(words) and options[word] != "a":
            kind = options[word]
            span = _value(text, kind, *(words[-1] if kind == "l" else words[n + 1]))
        elif attached := _attached(word, options):
            kind = options[attached]
            span = _value(text, kind, begin + len(attached), stop)
            span = span if span and span[1] - span[0] >= 3 else None
        elif not word.startswith("-"):
            plain += 1
            span = _value(text, kind, begin, stop) if options.get(str(plain)) == "s" else None
        if span and _is_secret(text[slice(*span)], kind, program):
            yield Span(*span, "curl" if program == "curl" else "shell")


def _split(text: str, at: int) -> list[Bounds]:
    """Return the positions of the words of a command, without the quotes around them."""
    line = _LINE.match(text, at)
    end = line.end() if line else at
    found: list[Bounds] = []
    while len(found) < _WORDS and at < end:
        while at < end and text[at] in " \t":
            at += 1
        word = None if _BREAK.match(text, at, end) else _WORD.match(text, at, end)
        if word is None:
            break
        begin, stop = word.span(word.lastindex or 0)
        at = word.end()
        # `-p'secret'` is one word in two pieces.
        if not word.lastindex and (more := _WORD.match(text, at, end)) and more.lastindex:
            stop, at = more.end() - 1, more.end()
        found.append((begin, stop))
    return found


def _attached(word: str, options: dict[str, str]) -> str | None:
    """Return the short option at the start of a word that contains its value."""
    for option, kind in options.items():
        short = (len(option) == 2 and "-passin" not in options) or "a" in kind
        if short and option[0] in "-/" and word.startswith(option) and len(word) > len(option):
            return option
    return None


def _value(text: str, kind: str, start: int, end: int) -> Bounds | None:
    """Return the span of the secret in the argument of an option of this kind (see `commands`)."""
    while start < end and text[start] in "\"'=:":
        start += 1
    if kind == "n":
        return None
    if kind in "u%,":
        colon = text.find({"u": ":"}.get(kind, kind), start, end)
        if colon < 0:
            return (start, end) if random(text[start:end]) and mixed(text[start:end]) else None
        # Without a password, the user name is a token.
        return (colon + 1, end) if colon + 1 < end else (start, colon)
    if kind == "p":
        return (start + 5, end) if text.startswith("pass:", start, end) else None
    if kind == "c" and "=" in text[start:end]:
        start = text.index("=", start, end) + 1
    return start, end


def _is_secret(value: str, kind: str, program: str) -> bool:
    shape = looks(value)
    made_up = shape is Looks.NAME and "-" in value and program not in PORTS
    if (shape in _NOT and not made_up) or (shape is Looks.NUMBER and kind != "u"):
        return False
    return program not in PORTS or kind == "u" or mixed(value) or random(value)

"""Personal data in texts: the kinds that a host opts into, and what it has registered."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Iterator

from ...errors import InvalidValue
from ...redact import Finder, Span
from .kinds import KINDS, NUMBERS, Called, Valid

PERSON = "person"  # the rule of what is registered
SHORTEST = 3  # characters of a registered text


def chosen(kinds: Iterable[str]) -> tuple[str, ...]:
    """The kinds that are opted into; `all` is every one."""
    wanted = set(kinds)
    if not wanted <= {*KINDS, "all"}:
        raise InvalidValue(
            field="personal",
            problem="names a kind of personal data that is not known",
            remedy=f"use all, or some of {', '.join(KINDS)}",
        )
    return tuple(kind for kind in KINDS if kind in wanted or "all" in wanted)


def labels(kinds: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of fields that hold them."""
    return {kind: KINDS[kind].names for kind in kinds}


def checks(kinds: Iterable[str]) -> list[str]:
    """What checks the numbers of persons, if they are looked for and it is installed."""
    if "national_id" not in kinds or not _numbers():
        return []
    return [f"python-stdnum {importlib.import_module('stdnum').__version__}"]


def finders(kinds: Iterable[str], people: Iterable[str]) -> list[Finder]:
    """What finds these kinds, and the registered texts, in a text."""
    names = tuple(people)
    for name in names:
        if len(name.strip()) < SHORTEST:
            raise InvalidValue(
                field="people",
                problem=f"hold a text of less than {SHORTEST} characters",
                remedy="register whole names; shorter ones would be found in any text",
                limit=SHORTEST,
            )
    found: list[Finder] = [functools.partial(_kind, kind) for kind in kinds]
    return [functools.partial(_people, _registered(names)), *found] if names else found


@functools.cache
def _registered(people: tuple[str, ...]) -> re.Pattern[str]:
    """Registered texts, in any case, with any blanks or marks between their words."""
    by = r"(?:[\s._+-]|%20){1,4}"
    told = {by.join(map(re.escape, re.split(r"[\s_]+", name.strip()))) for name in people}
    either = "|".join(sorted(told, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])", re.IGNORECASE)


def _people(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for found in pattern.finditer(text):
        yield Span(*found.span(), PERSON)


@functools.cache
def _patterns(kind: str) -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    """Each pattern, and words of which one must be there in small letters, if there are any."""
    return tuple(
        (re.compile(it.pattern), it.words) if isinstance(it, Called) else (re.compile(it), ())
        for it in KINDS[kind].patterns
    )


def _kind(kind: str, text: str) -> Iterator[Span]:
    valid, small = KINDS[kind].valid, text.lower()
    for pattern, heads in _patterns(kind):
        if heads and not any(head in small for head in heads):
            continue
        for found in pattern.finditer(text):
            if valid is None or valid(found[pattern.groups]):
                yield Span(*found.span(pattern.groups), kind)
    if kind == "national_id":
        for number, holds in _numbers():
            for found in number.finditer(text):
                if holds(found[0]):
                    yield Span(*found.span(), kind)


@functools.cache
def _numbers() -> tuple[tuple[re.Pattern[str], Valid], ...]:
    found = []
    for name, pattern in NUMBERS.items():
        try:
            module = importlib.import_module(f"stdnum.{name}")
        except ImportError:
            continue
        found.append((re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w-])"), module.is_valid))
    return tuple(found)

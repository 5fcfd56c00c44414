"""Implements the mode `sanitized`, which keeps all content except secrets, local paths and,
optionally, personal data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ...errors import InvalidValue
from ...redact import (
    CLASSES,
    DEFAULT_KEYS,
    Finder,
    Redactor,
    Span,
    encodings,
    is_distinct,
    only_placeholders,
)
from ...redact.spans import pattern_finder
from . import paths, personal
from .detector import detector
from .fields import BEFORE, BEHIND, What
from .manifest import HitCounter, Pseudonyms, distinct
from .review import Review

FOUND = 500  # secrets that are searched again in everything that was written
LARGEST = 16 << 20  # maximum size of a text blob, in bytes; larger ones are omitted

_CLASSES = {
    **CLASSES,
    **{rule: rule for rule in ("path", "host", personal.PERSON, *personal.KINDS)},
}
_BREAKS = re.compile(r"[^\w@.]+|_")
_CLASS = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_ID = re.compile(rf"({BEFORE})(.*?)({BEHIND})", re.DOTALL)
_HASH = re.compile(r"[0-9A-Za-z][\w:.+/=-]{6,127}")
_HOST = re.compile(r"(.+)(:\d+:[0-9a-f]{12})", re.DOTALL)
_MARKS = (("utf-8-sig", b"\xef\xbb\xbf"), ("utf-16", b"\xff\xfe"), ("utf-16", b"\xfe\xff"))


class ScrubConfig(Struct, frozen=True, kw_only=True):
    """What to replace in addition to the built-in rules.

    `secrets` are secret values, `keys` are names of secrets, and `patterns` are regular expressions
    by class; the first group of a pattern is replaced, or the whole match if it has no group.
    `personal` lists the kinds of personal data to replace, `people` lists names of people and other
    personal strings. `paths` replaces local paths, and `roots` are additional local folders.
    `detector` also uses detect-secrets. `binary` keeps binary blobs, which cannot be scanned as
    text, unless something is found in their bytes. `strict` also replaces possible secrets.

    See [redaction](../redaction.md).
    """

    secrets: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    patterns: dict[str, str] = {}
    personal: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    paths: bool = True
    roots: tuple[str, ...] = ()
    detector: bool = True
    binary: bool = False
    strict: bool = False


class Sanitizer:
    """Replaces secrets and private data in values, strings and ids.

    `kinds` are the kinds of personal data that it searches for, and `detectors` the libraries that
    it uses. The constructor may block while it imports them.
    """

    def __init__(
        self,
        config: ScrubConfig,
        hits: HitCounter,
        names: Pseudonyms,
        review: Review | None = None,
    ) -> None:
        self._config = config
        self._hits = hits
        self._names = names
        self.kinds = personal.chosen(config.personal)
        self._detector = detector() if config.detector else None
        checks = personal.checks(self.kinds)
        self.detectors = [*([self._detector.name] if self._detector else []), *checks]
        self._patterns = _patterns(config)
        self.found: dict[str, str] = {}  # secrets that cannot be words, and their rules
        finders = list(self._finders())
        self._silent = self._made(finders)
        self._redactor = self._made([*finders, self._encoded])
        self._redactor.on_hit = lambda rule, path: hits.add(rule, self._class(rule), path)
        if review is not None:
            self._redactor.on_seen = lambda seen: review.add(seen, self._class(seen.rule))

    def _made(self, finders: list[Finder]) -> Redactor:
        return Redactor(
            keys=[*DEFAULT_KEYS, *self._config.keys],
            values=self._config.secrets,
            replacement=self._instead,
            labels=personal.labels(self.kinds),
            finders=finders,
            strict=self._config.strict,
        )

    def _instead(self, rule: str, secret: str) -> str:
        if rule in ("email", personal.PERSON):  # in any notation
            secret = " ".join(_BREAKS.split(secret.casefold()))
        elif len(self.found) < FOUND and self._class(rule) != rule and is_distinct(secret):
            self.found.setdefault(secret, rule)
        return self._names.redacted(self._class(rule), secret)

    def _finders(self) -> Iterator[Finder]:
        for name, pattern in self._patterns.items():
            yield pattern_finder(name, pattern)
        yield from personal.finders(self.kinds, self._config.people)
        if self._config.paths:
            yield paths.finder(self._config.roots)
        if self._detector is not None:
            yield self._detector

    def _class(self, rule: str) -> str:
        if rule in self._patterns:
            return rule
        return _CLASSES.get(rule, "api_key")

    def field(self, what: What, value: Any, path: str) -> Any:
        """Redact one field of a payload, according to its role."""
        if what in ("keep", "value", "parts", "refs", "shape") or value is None:
            return value if what == "keep" else self.value(value, path)
        if isinstance(value, list):
            return [self.field(what, item, f"{path}[{n}]") for n, item in enumerate(value)]
        if isinstance(value, dict):  # keys are names or numbers
            inner: What = "text" if what == "numbered" else "keep"
            return distinct(
                (self.text(name, path), self.field(inner, item, f"{path}.{name}"))
                for name, item in value.items()
            )
        if what == "id" or (what == "hash" and _HASH.fullmatch(value)):
            return self.id(value, path)
        if what == "person":
            return self.person(value, path)
        return self.driver(value, path) if what == "driver" else self.text(value, path)

    def value(self, value: Any, path: str) -> Any:
        return self._redactor(value, path)

    def text(self, text: str, path: str) -> str:
        return self._redactor.text(text, path)

    def id(self, id: str, path: str) -> str:
        """Redact an id. Ids that are derived from the same id stay related afterwards."""
        found = _ID.fullmatch(id)
        if found is None:
            return self.text(id, path)
        return found[1] + self.text(found[2], path) + found[3]

    def person(self, who: str, path: str) -> str:
        """Redact the name of an actor. A `cli:` actor contains the user name of an account on this
        machine, which is replaced.
        """
        local = who.startswith("cli:") and self._config.paths
        at = len("cli:") if local else 0
        if (local or "user" in self.kinds) and who[at:] and not only_placeholders(who[at:]):
            self._hits.add("user", "user", path)
            return who[:at] + self._names.redacted("user", who[at:])
        return self.text(who, path)

    def driver(self, driver: str, path: str) -> str:
        """Return the name of a driver without its host."""
        found = _HOST.fullmatch(driver)
        if found is None or not self._config.paths or only_placeholders(found[1]):
            return self.text(driver, path)
        self._hits.add("host", "host", path)
        return self._names.redacted("host", found[1]) + found[2]

    def blob(self, data: bytes, path: str) -> bytes | None:
        """Redact the text of a blob; None if the blob cannot be scanned and must be omitted."""
        for code, mark in (*_MARKS, ("utf-8", b"")):
            if data.startswith(mark):
                return self._coded(data, code, path)
        return None

    def _coded(self, data: bytes, code: str, path: str) -> bytes | None:
        try:
            text = data.decode(code) if len(data) <= LARGEST else None
        except UnicodeDecodeError:
            text = None
        if text is not None and "\0" not in text:
            kept = self.text(text, path)
            return data if kept == text else kept.encode(code)
        plain = data.decode("latin-1")
        if self._config.binary and len(data) <= LARGEST and self.quiet(plain):
            return data
        self._hits.add("binary", "binary", path)
        return None

    def learn(self, *secrets: str, rule: str = "value") -> None:
        """Replace these secrets wherever they occur from now on."""
        for redactor in (self._redactor, self._silent):
            redactor.learn(*secrets, rule=rule)

    def spans(self, text: str) -> list[Span]:
        """Return the spans of the secrets in a string, recognized by their format or by the name
        before them.
        """
        return self._silent.found(text)

    def quiet(self, text: str) -> bool:
        """Return whether the text contains nothing to replace."""
        return self._silent.text(text) == text

    def _encoded(self, text: str) -> Iterator[Span]:
        """Find encoded strings that contain something to replace."""
        for start, end, inner in encodings.encoded(text):
            if not self.quiet(inner):
                yield Span(start, end, "base64")


def _patterns(config: ScrubConfig) -> dict[str, re.Pattern[str]]:
    found = {}
    for name, pattern in config.patterns.items():
        if not _CLASS.fullmatch(name):
            raise InvalidValue(
                field="patterns",
                problem=f"has the invalid name {name!r}",
                remedy="use at most 40 lower-case letters, digits, - and _",
            )
        try:
            found[name] = re.compile(pattern)
        except re.error as error:
            raise InvalidValue(
                field=f"patterns.{name}",
                problem=f"is not a valid regular expression: {error.msg}",
                remedy="correct the pattern",
            ) from None
    return found

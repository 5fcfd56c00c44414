"""Mode `sanitized`: all content stays, but for what is secret, local or, if wanted, personal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ...errors import InvalidValue
from ...redact import DEFAULT_KEYS, Finder, Redactor, Span, decode, is_distinct, only_placeholders
from . import detect, paths, personal
from .fields import BEFORE, BEHIND, What
from .kinds import KINDS
from .manifest import Pseudonyms, Tally, apart
from .review import Review

FOUND = 500  # secrets that are looked for once more, in all that was written
LARGEST = 16 << 20  # bytes of a text in a blob; a larger one is left out

_CLASSES = {
    **dict.fromkeys(("value", "key", "kubernetes", "otp", "license", "jwk", "unknown"), "secret"),
    **dict.fromkeys(
        [
            "url",
            "netrc",
            "curl",
            "shell",
            "redis",
            "chpasswd",
            "sql",
            "dsn",
            "pgpass",
            "crypt",
            "basic",
            "wifi",
            "net",
            "configure",
            "printenv",
            "redis-acl",
            "prompt",
            "expect",
            "snmp",
            "radius",
            "login",
            "given",
            "output",
            "passphrase",
            "imap",
            "ftp",
            "poetry",
            "router",
            "printed",
        ],
        "password",
    ),
    **dict.fromkeys(("bearer", "jwt", "paseto", "query"), "token"),
    **dict.fromkeys(("private-key", "ppk", "age"), "private_key"),
    **dict.fromkeys(("webhook", "path", "host", "base64", personal.PERSON), ""),
    **dict.fromkeys(KINDS, ""),
}
_BREAKS = re.compile(r"[^\w@.]+|_")
_CLASS = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_ID = re.compile(rf"({BEFORE})(.*?)({BEHIND})", re.DOTALL)
_HASH = re.compile(r"[0-9A-Za-z][\w:.+/=-]{6,127}")
_HOST = re.compile(r"(.+)(:\d+:[0-9a-f]{12})", re.DOTALL)
_MARKS = (("utf-8-sig", b"\xef\xbb\xbf"), ("utf-16", b"\xff\xfe"), ("utf-16", b"\xfe\xff"))


class ScrubConfig(Struct, frozen=True, kw_only=True):
    """What is secret or private beyond what the rules know.

    `secrets` are values, `keys` names under which they stand, `patterns` regular expressions by
    their class; what a pattern's first group finds is replaced, or without one all that it
    finds. `personal` are the kinds of personal data to replace, `people` names and other texts
    of persons. `paths` replaces local paths, and `roots` are more folders that are local.
    `detector` asks detect-secrets too. `binary` keeps blobs that are no text, and so cannot be
    looked through, unless something is found in their bytes. `strict` replaces values that are
    doubtful as well.
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
    """Takes out of values, texts and ids what must not leave. `kinds` of personal data are looked
    for, `detectors` look beside our own rules; to make one may block while they are imported."""

    def __init__(
        self, config: ScrubConfig, tally: Tally, names: Pseudonyms, review: Review | None = None
    ) -> None:
        self._config = config
        self._tally = tally
        self._names = names
        self.kinds = personal.chosen(config.personal)
        self._found = detect.detector() if config.detector else None
        checks = personal.checks(self.kinds)
        self.detectors = [*([self._found.name] if self._found is not None else []), *checks]
        self._patterns = _patterns(config)
        self.found: dict[str, str] = {}  # secrets that are told apart from words, and their rules
        finders = list(self._finders())
        self._silent = self._made(finders)
        self._redactor = self._made([*finders, self._encoded])
        self._redactor.on_hit = lambda rule, path: tally.hit(rule, self._class(rule), path)
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
        if rule in ("email", personal.PERSON):  # however it is written
            secret = " ".join(_BREAKS.split(secret.casefold()))
        elif len(self.found) < FOUND and self._class(rule) != rule and is_distinct(secret):
            self.found.setdefault(secret, rule)
        return self._names.redacted(self._class(rule), secret)

    def _finders(self) -> Iterator[Finder]:
        for name, pattern in self._patterns.items():
            yield _custom(name, pattern)
        yield from personal.finders(self.kinds, self._config.people)
        if self._config.paths:
            yield paths.finder(self._config.roots)
        if self._found is not None:
            yield self._found

    def _class(self, rule: str) -> str:
        if rule in self._patterns:
            return rule
        return _CLASSES.get(rule, "api_key") or rule

    def field(self, what: What, value: Any, path: str) -> Any:
        """One field of a payload, by what it is."""
        if what in ("keep", "value", "parts", "refs", "shape") or value is None:
            return value if what == "keep" else self.value(value, path)
        if isinstance(value, list):
            return [self.field(what, item, f"{path}[{n}]") for n, item in enumerate(value)]
        if isinstance(value, dict):  # names or numbers, and what stands under them
            inner: What = "text" if what == "numbered" else "keep"
            return apart(
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
        """An id; those that derive from another one still do."""
        found = _ID.fullmatch(id)
        if found is None:
            return self.text(id, path)
        return found[1] + self.text(found[2], path) + found[3]

    def person(self, who: str, path: str) -> str:
        """Who did something. The user of a command line is one of this machine."""
        local = who.startswith("cli:") and self._config.paths
        at = len("cli:") if local else 0
        if (local or "user" in self.kinds) and who[at:] and not only_placeholders(who[at:]):
            self._tally.hit("user", "user", path)
            return who[:at] + self._names.redacted("user", who[at:])
        return self.text(who, path)

    def driver(self, driver: str, path: str) -> str:
        """A process: its host is not told."""
        found = _HOST.fullmatch(driver)
        if found is None or not self._config.paths or only_placeholders(found[1]):
            return self.text(driver, path)
        self._tally.hit("host", "host", path)
        return self._names.redacted("host", found[1]) + found[2]

    def blob(self, data: bytes, path: str) -> bytes | None:
        """A text scrubbed; None for what cannot be looked through, and is to be left out."""
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
        self._tally.hit("binary", "binary", path)
        return None

    def learn(self, *secrets: str, rule: str = "value") -> None:
        """Replace these wherever they stand."""
        for redactor in (self._redactor, self._silent):
            redactor.learn(*secrets, rule=rule)

    def spans(self, text: str) -> list[Span]:
        """Where a text holds a secret by its shape or its name."""
        return self._silent.found(text)

    def quiet(self, text: str) -> bool:
        """Whether there is nothing to take out of it."""
        return self._silent.text(text) == text

    def _encoded(self, text: str) -> Iterator[Span]:
        """Base64 and the like of a text in which there is something to take out."""
        for start, end, inner in decode.encoded(text):
            if not self.quiet(inner):
                yield Span(start, end, "base64")


def _patterns(config: ScrubConfig) -> dict[str, re.Pattern[str]]:
    found = {}
    for name, pattern in config.patterns.items():
        if not _CLASS.fullmatch(name):
            raise InvalidValue(
                field="patterns",
                problem="have a name that is no class",
                remedy="use small letters, digits, - and _, 40 at most",
            )
        try:
            found[name] = re.compile(pattern)
        except re.error as error:
            raise InvalidValue(
                field=f"patterns.{name}",
                problem=f"is no regular expression ({error.msg})",
                remedy="correct it",
            ) from None
    return found


def _custom(name: str, pattern: re.Pattern[str]) -> Finder:
    group = 1 if pattern.groups else 0

    def find(text: str) -> Iterator[Span]:
        for found in pattern.finditer(text):
            if found.start(group) >= 0:
                yield Span(*found.span(group), name)

    return find

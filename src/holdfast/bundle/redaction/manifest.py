"""The manifest of a redaction: which rules hit where, and how often; never a value."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

Mode = Literal["local", "sanitized", "replay_only"]

POLICY, POLICY_VERSION = "holdfast", 1
KNOWN = 100_000  # values with a number of their own in one bundle
ENTRIES = 20_000  # places that a manifest lists; the totals count all


class Redacted(Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """The hits of one rule at one place; `path` is the place in the bundle."""

    rule: str
    kind: str
    path: str
    count: int


class Redaction(Struct, frozen=True, kw_only=True):
    """The manifest. `totals` counts hits by class and `rules` by rule, including those that
    `entries` has no room for; `omitted` counts these. `detectors` are the libraries that were
    used."""

    mode: Mode = "local"
    policy: str = "none"
    version: int = POLICY_VERSION
    placeholder: str = ""
    detectors: list[str] = []
    personal: list[str] = []
    entries: list[Redacted] = []
    totals: dict[str, int] = {}
    rules: dict[str, int] = {}
    omitted: int = 0


class HitCounter:
    """Counts hits by rule, class and path."""

    def __init__(self, limit: int = ENTRIES) -> None:
        self._limit = limit
        self._entries: dict[tuple[str, str, str], int] = {}
        self._totals: dict[str, int] = {}
        self._rules: dict[str, int] = {}
        self._omitted = 0

    def add(self, rule: str, kind: str, path: str, times: int = 1) -> None:
        self._totals[kind] = self._totals.get(kind, 0) + times
        self._rules[rule] = self._rules.get(rule, 0) + times
        at = (rule, kind, path)
        if at in self._entries or len(self._entries) < self._limit:
            self._entries[at] = self._entries.get(at, 0) + times
        else:
            self._omitted += times

    def redaction(
        self, mode: Mode, placeholder: str, detectors: Iterable[str], personal: Iterable[str]
    ) -> Redaction:
        """The manifest of all hits so far."""
        entries = [
            Redacted(rule=rule, kind=kind, path=path, count=count)
            for (rule, kind, path), count in self._entries.items()
        ]
        return Redaction(
            mode=mode,
            policy=POLICY,
            placeholder=placeholder,
            detectors=list(detectors),
            personal=sorted(personal),
            entries=entries,
            totals=dict(sorted(self._totals.items())),
            rules=dict(sorted(self._rules.items())),
            omitted=self._omitted,
        )


class Pseudonyms:
    """Numbered placeholders: the same for the same value, counted by class in the order of first
    appearance, so that a number reveals nothing about its value. Values beyond `limit` have no
    number; ids always have one, since they pair events."""

    def __init__(self, limit: int = KNOWN) -> None:
        self._limit = limit
        self._known: dict[tuple[str, str | bytes], str] = {}
        self._last: dict[str, int] = {}

    def redacted(self, kind: str, value: str) -> str:
        """The placeholder of a secret, or of private data."""
        return self._of(f"redacted:{kind}", value)

    def withheld(self, value: str, *, pairs: bool = False) -> str:
        """The placeholder of content, or of an id that `pairs` events."""
        return self._of("withheld", value, pairs=pairs)

    def _of(self, what: str, value: str, *, pairs: bool = False) -> str:
        # Long texts are kept as a hash, in memory only.
        long = len(value) > 64
        known = hashlib.sha256(value.encode(errors="surrogatepass")).digest() if long else value
        at = (what.partition(":")[0], known)
        if (found := self._known.get(at)) is not None:
            return found
        if len(self._known) >= self._limit and not pairs:
            return f"[{what}]"
        number = self._last[what] = self._last.get(what, 0) + 1
        found = self._known[at] = f"[{what}:{number}]"
        return found


def distinct(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object from names that may be equal after redaction; repeated ones get a suffix."""
    found: dict[str, Any] = {}
    for name, item in entries:
        free = name
        while free in found:
            free += "′"
        found[free] = item
    return found

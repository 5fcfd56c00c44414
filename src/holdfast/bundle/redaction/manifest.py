"""The manifest of a redaction: which rules matched, at which paths, and how often. It never
contains a redacted value.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from ..json_values import JsonObject

Mode = Literal["local", "sanitized", "replay_only"]

POLICY, POLICY_VERSION = "holdfast", 1
KNOWN = 100_000  # values that get a number in one bundle
ENTRIES = 20_000  # maximum number of entries in a manifest; the totals count all matches


class Redacted(Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """The matches of one rule at one location; `path` is the location in the bundle."""

    rule: str
    kind: str
    path: str
    count: int


class Redaction(Struct, frozen=True, kw_only=True):
    """The manifest of a redaction. `totals` counts matches by class and `rules` counts them by
    rule, including matches that do not fit into `entries`; `omitted` is the number of omitted
    matches. `detectors` are the libraries that were used.

    See [redaction](../redaction.md).
    """

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
    """Counts matches by rule, class and path."""

    def __init__(self, limit: int = ENTRIES) -> None:
        self._limit = limit
        self._entries: Counter[tuple[str, str, str]] = Counter()
        self._totals: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()
        self._omitted = 0

    def add(self, rule: str, kind: str, path: str) -> None:
        self._totals[kind] += 1
        self._rules[rule] += 1
        at = (rule, kind, path)
        if at in self._entries or len(self._entries) < self._limit:
            self._entries[at] += 1
        else:
            self._omitted += 1

    def redaction(
        self, mode: Mode, placeholder: str, detectors: Iterable[str], personal: Iterable[str]
    ) -> Redaction:
        """Return the manifest of all matches so far."""
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
    """Numbered placeholders. Equal values get the same placeholder. Numbers are assigned per class
    in the order of first appearance, so they reveal nothing about the values. Values beyond `limit`
    get no number; ids always get one, since they are used to match events.
    """

    def __init__(self, limit: int = KNOWN) -> None:
        self._limit = limit
        self._known: dict[tuple[str, str | bytes], str] = {}
        self._last: Counter[str] = Counter()

    def redacted(self, kind: str, value: str) -> str:
        """Return the placeholder of a secret or of personal data."""
        return self._of(f"redacted:{kind}", value)

    def withheld(self, value: str, *, pairs: bool = False) -> str:
        """Return the placeholder of content, or of an id that is used to match events (`pairs`)."""
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
        self._last[what] += 1
        found = self._known[at] = f"[{what}:{self._last[what]}]"
        return found


def distinct(entries: Iterable[tuple[str, Any]]) -> JsonObject:
    """Build an object from names that may be equal after redaction; repeated names get a suffix."""
    found: JsonObject = {}
    for name, item in entries:
        free = name
        while free in found:
            free += "′"
        found[free] = item
    return found

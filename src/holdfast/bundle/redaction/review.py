"""A review before a bundle is written: every replacement and every doubtful value, with its reason.

Of a replaced value it shows only the beginning and the length. A doubtful value stays in the bundle
and is shown as it is.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...redact import Seen

SHOWN = 120  # characters of a doubtful value
ENTRIES = 20_000  # entries that are kept; the rest are counted


class Reviewed(Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """One value: `what` happens to it, by which `rule`, and why; `text` is what to show."""

    what: Literal["replaced", "doubtful"]
    rule: str
    kind: str
    path: str
    reason: str
    text: str


class Review:
    """Collects the values that one export replaces or doubts; `omitted` counts those beyond the
    limit."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all entries."""
        self.entries: list[Reviewed] = []
        self.omitted = 0
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, seen: Seen, kind: str) -> None:
        at = (seen.path, seen.rule, seen.value)
        if not seen.secret and at in self._seen:
            return  # texts are searched again after a replacement
        if len(self.entries) >= ENTRIES:
            self.omitted += 1
            return
        self._seen.add(at)
        self.entries.append(
            Reviewed(
                what="replaced" if seen.secret else "doubtful",
                rule=seen.rule,
                kind=kind,
                path=seen.path,
                reason=seen.reason,
                text=_shortened(seen.value) if seen.secret else seen.value[:SHOWN],
            )
        )


def _shortened(value: str) -> str:
    """The beginning and the length of a secret, so that its owner can recognise it."""
    if len(value) < 12:
        return f"({len(value)} characters)"
    return f"{value[:2]}… ({len(value)} characters)"

"""A review before a bundle is written: every replacement and every possible secret, with its
reason.

Only the beginning and the length of a replaced value are shown. A possible secret stays in the
bundle and is shown unchanged.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...redact import Seen

SHOWN = 120  # characters of a doubtful value that are shown
ENTRIES = 20_000  # maximum number of entries; further ones are only counted


class Reviewed(Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """One reviewed value. `what` says whether it is replaced or doubtful, `rule` and `reason` say
    why, and `text` is the text to show.

    See [redaction](../redaction.md).
    """

    what: Literal["replaced", "doubtful"]
    rule: str
    kind: str
    path: str
    reason: str
    text: str


class Review:
    """Collects the values that an export replaces or considers doubtful; `omitted` counts the
    values beyond the limit.

    See [redaction](../redaction.md).
    """

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
    """Return the beginning and the length of a secret, so that its owner can recognize it."""
    if len(value) < 12:
        return f"({len(value)} characters)"
    return f"{value[:2]}… ({len(value)} characters)"

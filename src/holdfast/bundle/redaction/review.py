"""What a person is shown before a bundle is written: every replacement and every doubtful place,
with its reason. Of a value that is replaced, it shows no more than the beginning and the length; a
doubtful one stays in the bundle, and is shown as it is."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...redact import Seen

SHOWN = 120  # characters of a doubtful value
ENTRIES = 20_000  # places that are kept; the rest are counted


class Reviewed(Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """One place: `what` is done with it, by which `rule`, and why; `text` is what is shown."""

    what: Literal["replaced", "doubtful"]
    rule: str
    kind: str
    path: str
    reason: str
    text: str


class Review:
    """Collects what one export sees; `omitted` counts places that there was no room for."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.entries: list[Reviewed] = []
        self.omitted = 0
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, seen: Seen, kind: str) -> None:
        at = (seen.path, seen.rule, seen.value)
        if not seen.secret and at in self._seen:
            return  # a text is looked at again after something in it was replaced
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
    """How a secret begins and how long it is, for whoever knows it."""
    if len(value) < 12:
        return f"({len(value)} characters)"
    return f"{value[:2]}… ({len(value)} characters)"

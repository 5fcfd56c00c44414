"""All cases, in one list."""

from __future__ import annotations

from tests.redaction.corpus import code, encodings, formats, names, prose, shell, vendors
from tests.redaction.corpus.make import Case

__all__ = ["AREAS", "CASES", "Case"]

AREAS: dict[str, list[Case]] = {
    "names": names.CASES,
    "formats": formats.CASES,
    "shell": shell.CASES,
    "code": code.CASES,
    "prose": prose.CASES,
    "encodings": encodings.CASES,
    "vendors": vendors.CASES,
}
CASES: tuple[Case, ...] = tuple(case for area in AREAS.values() for case in area)

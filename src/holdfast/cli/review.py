"""What `holdfast export --review` shows: each replacement and each doubtful value, with reasons."""

from __future__ import annotations

from collections import Counter

from ..bundle.redaction.review import Review, Reviewed
from .output import Output, plain
from .render import number


def show_review(out: Output, review: Review) -> None:
    """The places in order: doubtful ones first, since somebody has to decide about them."""
    counts = Counter(entry.what for entry in review.entries)
    if out.json:
        out.emit(
            {
                "replaced": counts["replaced"],
                "doubtful": counts["doubtful"],
                "omitted": review.omitted,
                "entries": review.entries,
            }
        )
        return
    for entry in sorted(review.entries, key=lambda entry: entry.what == "replaced"):
        out.print(plain(_line(entry)))
    counted = f"{number(counts['replaced'], 'replacement')}, {counts['doubtful']:,} doubtful"
    out.remark(f"{counted}; nothing was written")
    if counts["doubtful"]:
        out.remark(
            "register values with --secrets-file, or replace the doubtful ones with --strict"
        )


def _line(entry: Reviewed) -> str:
    return f"{entry.what:8}  {entry.path}  {entry.rule}  {entry.text}  ({entry.reason})"

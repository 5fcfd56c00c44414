"""How much the engine finds, and how often it is wrong: `python -m tests.redaction.score`.

Each case goes through the path that bundles take (`Scrub`, mode `sanitized`), or with `--log`
through the one that logs take (`Redactor`). A case is found if none of its secrets is left; it is
kept whole if everything that must survive has survived. In ordinary text, every replacement is a
mistake.

The cases are in two halves by a hash of their names. Look at the failures of `dev` alone (`--show`)
when you change the engine; the figures of `held` then say whether the change is more than a special
case.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
from holdfast.redact import PLACEHOLDER, Redactor
from tests.redaction.corpus import field as field_sets
from tests.redaction.corpus.cases import CASES, Case
from tests.redaction.corpus.ordinary import ordinary

Half: TypeAlias = Literal["dev", "held"]
Clean: TypeAlias = Callable[[str], str]

AROUND = 60  # characters that are shown around a mistake


@dataclass
class Score:
    """What was found of some cases, and what was lost that should have survived."""

    cases: int = 0
    missed: list[tuple[Case, str]] = field(default_factory=list)
    damaged: list[tuple[Case, str]] = field(default_factory=list)

    @property
    def found(self) -> int:
        return self.cases - len(self.missed)

    @property
    def recall(self) -> float:
        return self.found / self.cases if self.cases else 1.0


def half_of(case: Case) -> Half:
    """The half that a case belongs to."""
    digest = hashlib.sha256(f"{case.family}/{case.name}".encode()).digest()
    return "dev" if digest[0] % 2 else "held"


def bundles() -> Clean:
    """The path of bundles. Local paths are a matter of their own, and stay."""
    config = ScrubConfig(paths=False, detector=False)
    return lambda text: Scrub("sanitized", config).text(text, "$")


def logs() -> Clean:
    """The path of logs, errors and audit records."""
    return Redactor(replacement=lambda rule, secret: "[redacted]").text


def by_family(cases: Iterable[Case], clean: Clean) -> dict[str, Score]:
    scores: dict[str, Score] = defaultdict(Score)
    for case in cases:
        score, left = scores[case.family], clean(case.text)
        score.cases += 1
        if any(secret in left for secret in case.secrets):
            score.missed.append((case, left))
        if not all(keep in left for keep in case.keeps):
            score.damaged.append((case, left))
    return scores


def total(scores: Iterable[Score]) -> Score:
    whole = Score()
    for score in scores:
        whole.cases += score.cases
        whole.missed += score.missed
        whole.damaged += score.damaged
    return whole


@dataclass
class Mistake:
    """A replacement in ordinary text."""

    kind: str
    name: str
    around: str


def mistakes(
    clean: Clean, texts: Iterable[tuple[str, str, str]] | None = None
) -> tuple[list[Mistake], int]:
    """Every replacement in ordinary text, and how many bytes that has."""
    found, size = [], 0
    for kind, name, text in ordinary() if texts is None else texts:
        size += len(text.encode())
        left = clean(text)
        for hole in PLACEHOLDER.finditer(left):
            around = left[max(0, hole.start() - AROUND) : hole.end() + AROUND]
            found.append(Mistake(kind, name, around))
    return found, size


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--family", help="only this family, or those that begin so")
    asked.add_argument("--half", choices=("dev", "held"))
    asked.add_argument("--show", action="store_true", help="print what failed in `dev`")
    asked.add_argument("--log", action="store_true", help="the path of logs")
    asked.add_argument("--ordinary", action="store_true", help="only the ordinary text")
    asked.add_argument("--set", choices=field_sets.SETS, help="one of the sets of `corpus.field`")
    args = asked.parse_args()
    clean = logs() if args.log else bundles()
    if not args.ordinary:
        _print_recall(args, clean)
    if not args.family:
        _print_mistakes(args, clean)
    if not (args.set or args.family or args.ordinary):
        for name in field_sets.SETS:
            whole = total(by_family(field_sets.cases(name), clean).values())
            wrong, size = mistakes(clean, field_sets.ordinary(name))
            print(
                f"{name}: {whole.recall:.1%} of {whole.cases} cases; {len(wrong)} replaced in"
                f" {size:,} bytes of ordinary text, {len(wrong) * 10_240 / size:.2f} per 10 KB"
            )


def _print_recall(args: argparse.Namespace, clean: Clean) -> None:
    chosen = field_sets.cases(args.set) if args.set else CASES
    cases = [c for c in chosen if c.family.startswith(args.family or "")]
    halves: tuple[Half, ...] = (args.half,) if args.half else ("dev", "held")
    scores = {half: by_family((c for c in cases if half_of(c) == half), clean) for half in halves}
    for family in dict.fromkeys(c.family for c in cases):
        rows = (scores[half].get(family, Score()) for half in halves)
        print(f"{family:24}", *(f"{s.found:4}/{s.cases:<4}" for s in rows))
    for half in halves:
        whole = total(scores[half].values())
        print(
            f"{half}: {whole.recall:.1%} of {whole.cases} cases,"
            f" {len(whole.damaged)} lose something that must survive"
        )
    if args.show and "dev" in scores:
        whole = total(scores["dev"].values())
        for title, failed in (("MISSED", whole.missed), ("DAMAGED", whole.damaged)):
            for case, left in failed:
                lost = [k for k in case.keeps if k not in left] if title == "DAMAGED" else ""
                print(f"\n{title} {case.family}/{case.name} {lost or case.secrets}\n{case.text}")
                print(f"  ->\n{left}")


def _print_mistakes(args: argparse.Namespace, clean: Clean) -> None:
    begun = time.perf_counter()
    wrong, size = mistakes(clean, field_sets.ordinary(args.set) if args.set else None)
    took = time.perf_counter() - begun
    if args.show:
        for mistake in wrong:
            print(f"\nMISTAKE {mistake.kind}/{mistake.name}: {mistake.around!r}")
    print(
        f"ordinary text: {len(wrong)} replaced in {size:,} bytes, {len(wrong) * 10_240 / size:.2f}"
        f" per 10 KB; {size / took / (1 << 20):.2f} MiB/s"
    )


if __name__ == "__main__":
    main()

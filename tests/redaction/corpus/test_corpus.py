"""The corpus keeps its own promises: enough cases and ordinary text, each case consistent, all of
it the same on every run. Nothing here redacts anything."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.redaction.corpus.cases import AREAS, CASES, Case
from tests.redaction.corpus.ordinary import ordinary


def digest() -> str:
    whole = hashlib.sha256()
    for part in ordinary():
        whole.update("\0".join(part).encode())
    return whole.hexdigest()


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 260
    assert len({case.family for case in CASES}) >= 60


def test_each_case_has_its_own_name() -> None:
    counts = Counter((case.family, case.name) for case in CASES)
    assert [name for name, count in counts.items() if count > 1] == []


def faults(case: Case) -> Iterator[str]:
    """What is wrong with a case."""
    if not case.secrets:
        yield "has no secret"
    rest = case.text
    for secret in sorted(case.secrets, key=len, reverse=True):
        if len(secret) < 4:
            yield f"{secret!r} is too short to tell"
        if secret not in case.text:
            yield f"{secret!r} is not in the text"
        rest = rest.replace(secret, "\0")
    for keep in case.keeps:
        if keep not in rest:
            yield f"{keep!r} is not in the text, or a secret overlaps it"


def test_each_case_holds_its_secrets_and_what_it_keeps() -> None:
    assert [f"{c.family}/{c.name}: {fault}" for c in CASES for fault in faults(c)] == []


def test_a_fault_is_found() -> None:
    good = Case("a", "b", "password=tulip", ("tulip",), ("password",))
    assert list(faults(good)) == []
    for wrong in (
        replace(good, secrets=()),
        replace(good, secrets=("tu",)),
        replace(good, secrets=("lemon",)),
        replace(good, keeps=("user",)),
        replace(good, keeps=("=tulip",)),
    ):
        assert len(list(faults(wrong))) == 1


def test_there_is_enough_ordinary_text() -> None:
    texts = list(ordinary())
    assert sum(len(text.encode()) for _, _, text in texts) >= 220_000
    assert len({kind for kind, _, _ in texts}) >= 10
    assert len({(kind, name) for kind, name, _ in texts}) == len(texts)
    assert all(text.strip() for _, _, text in texts)


def test_ordinary_text_is_the_same_each_time() -> None:
    assert digest() == digest()


def test_no_ordinary_text_holds_a_secret_of_a_case() -> None:
    texts = "\n".join(text for _, _, text in ordinary())
    assert [s for case in CASES for s in case.secrets if len(s) >= 10 and s in texts] == []


def test_the_readme_lists_the_families() -> None:
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = [
        f"| {area} | {family} | {count} |"
        for area, cases in AREAS.items()
        for family, count in Counter(case.family for case in cases).items()
    ]
    assert [line for line in readme.splitlines() if line.endswith(" |")][1:] == rows

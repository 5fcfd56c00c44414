"""The corpus, through the paths of bundles and logs: what must be found, and what must stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
from holdfast.events import NewEvent
from holdfast.redact import Redactor
from tests.bundle.redaction.places import UUID, stored
from tests.redaction.corpus import field
from tests.redaction.corpus.cases import CASES, Case
from tests.redaction.score import bundles, by_family, logs, mistakes, total

RECALL = 0.96
MISTAKES = 1.0  # in 10 KB of ordinary text
KEPT = 0.97
FIELD = {"everyday": 0.96, "incidents": 0.9}  # of cases, each with up to eight secrets

CONFIG = ScrubConfig(paths=False, detector=False)


@pytest.mark.parametrize("path", [bundles, logs])
def test_enough_of_the_corpus_is_found_and_what_is_beside_it_survives(
    path: Callable[[], Callable[[str], str]],
) -> None:
    scores = by_family(CASES, path())
    for family, score in scores.items():
        print(f"{family:24}{score.found:4}/{score.cases}")
    whole = total(scores.values())
    assert whole.recall >= RECALL, [f"{c.family}/{c.name}" for c, _ in whole.missed]
    lost = [f"{c.family}/{c.name}" for c, _ in whole.damaged]
    assert len(lost) <= whole.cases * (1 - KEPT), lost


@pytest.mark.parametrize("path", [bundles, logs])
def test_ordinary_text_stays(path: Callable[[], Callable[[str], str]]) -> None:
    wrong, size = mistakes(path())
    for mistake in wrong:
        print(mistake)
    assert len(wrong) * 10_240 / size <= MISTAKES


@pytest.mark.parametrize("name", field.SETS)
def test_enough_is_found_of_cases_that_were_written_without_the_engine(name: str) -> None:
    whole = total(by_family(field.cases(name), bundles()).values())
    missed = [f"{c.family}/{c.name}" for c, _ in whole.missed]
    print(f"{name}: {whole.recall:.1%} of {whole.cases}")
    assert whole.recall >= FIELD[name], missed
    assert len(whole.damaged) <= whole.cases * (1 - KEPT)
    wrong, size = mistakes(bundles(), field.ordinary(name))
    assert len(wrong) * 10_240 / size <= MISTAKES, wrong


def event(kind: str, data: dict[str, Any]) -> str:
    kept = Scrub("sanitized", CONFIG).event(stored(NewEvent.of(kind, data)), "$")
    return json.dumps(kept.json(), ensure_ascii=False)


def call(text: str) -> dict[str, Any]:
    return {"calls": [{"id": UUID, "name": "run", "arguments": {"command": text}}]}


def blob(name: str) -> dict[str, Any]:
    part = {"type": "blob", "sha256": "ab" * 32, "size": 3, "name": name, "media_type": "text/x"}
    return {"parts": [part], "text": "see"}


PLACES: dict[str, Callable[[str], str]] = {
    "message": lambda text: event("message.received", {"text": text}),
    "tool argument": lambda text: event("message.completed", call(text)),
    "nested JSON": lambda text: event("app.noted", {"a": [{"b": json.dumps({"c": [text]})}]}),
    "tool result": lambda text: event("tool.finished", {"call": UUID, "result": {"out": text}}),
    "metadata": lambda text: event("message.received", {"text": "x", "metadata": {"note": text}}),
    "title": lambda text: event("session.created", {"title": text}),
    "blob name": lambda text: event("message.received", blob(text)),
    "error": lambda text: event("tool.finished", {"call": UUID, "error": text}),
    "log line": lambda text: Redactor()({"message": text, "level": "info"})["message"],
}


def shown(case: Case, left: str) -> bool:
    """Whether a secret is still there, as it is or as JSON writes it, once or twice."""
    once = {json.dumps(s, ensure_ascii=False)[1:-1] for s in case.secrets}
    twice = {json.dumps(s, ensure_ascii=False)[1:-1] for s in once}
    return any(form in left for form in {*case.secrets, *once, *twice})


@pytest.mark.parametrize("place", PLACES)
def test_each_case_in_every_place(place: str) -> None:
    missed = [f"{c.family}/{c.name}" for c in CASES if shown(c, PLACES[place](c.text))]
    assert 1 - len(missed) / len(CASES) >= RECALL, missed

"""A sample of the tests that the SDKs publish, on a local, a shared and an encrypted store. All of
them run in `scripts/soak --only published`, on every kind."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from .conftest import URLS
from .published import sources
from .published.runs import LANGGRAPH, OPENAI, Suite, run


@pytest.mark.parametrize("suite", [OPENAI, LANGGRAPH], ids=lambda suite: suite.project)
def test_published_tests_pass(suite: Suite, tmp_path: Path) -> None:
    stores = {kind: URLS[kind](tmp_path) for kind in ("sqlite", "postgres")}
    stores["vault"] = f"sqlite:{tmp_path}/vault.db"
    report = run(suite, stores, tmp_path / "suite", sample=True)
    assert report.failed == []
    assert report.passed > 20 * len(stores)


def test_published_tests_are_those_of_the_installed_versions() -> None:
    assert sources.pins() == {project: version(project) for project in sources.pins()}

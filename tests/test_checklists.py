"""The checklists of CONTRIBUTING.md: a step that is forgotten fails here, if no test of its own
area names it. What needs nothing is listed, so that leaving it out is a decision."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest

from holdfast import Harness
from holdfast.events import KINDS
from holdfast.log.state.fold import STEPS
from holdfast.stores.registry import SCHEMES
from tests import servers, test_architecture
from tests.contract import test_stores
from tests.harness import test_settings

ROOT = Path(__file__).parent.parent
ADAPTERS = [path.parent.name for path in sorted(ROOT.glob("src/holdfast/adapters/*/__init__.py"))]

# Kinds that change a row, the display or nothing, but not the state of a log.
CHANGE_NO_STATE = {
    "label.added",
    "label.removed",
    "progress.reported",
    "session.held",
    "session.moved",
    "session.pinned",
    "session.resumed",
    "session.suspended",
    "session.timed",
    "session.touched",
    "surface.attached",
    "surface.detached",
    "thread.renamed",
}

# Settings of a harness of which every value is right, or that are checked by a test of their own.
UNCHECKED = {"agent", "default_model", "resources"}
OLD = {"storage"}  # another name of a setting, from an earlier version


def test_every_kind_changes_the_state_or_is_listed() -> None:
    assert KINDS.keys() - STEPS.keys() == CHANGE_NO_STATE
    assert STEPS.keys() <= KINDS.keys()


def test_the_contract_runs_on_every_kind_of_store() -> None:
    assert {*test_stores.URLS, *servers.KINDS} >= SCHEMES.keys()


def test_every_setting_of_a_harness_is_refused_with_a_bad_value_and_documented() -> None:
    settings = inspect.signature(Harness).parameters.keys() - OLD
    cases = next(
        mark.args[1]
        for mark in vars(test_settings.test_a_setting_that_cannot_work_is_refused)["pytestmark"]
        if mark.name == "parametrize"
    )
    assert {name for name, _ in cases} == settings - UNCHECKED
    page = (ROOT / "docs" / "harness.md").read_text()
    assert [name for name in sorted(settings) if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_has_an_extra_a_page_and_public_names(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert name in project["optional-dependencies"]
    assert (ROOT / "docs" / f"{name}.md").exists()
    assert f"holdfast.adapters.{name}" in test_architecture.IMPORTED.split()


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            if "://" not in link and (target := (page.parent / link).resolve()).exists():
                waiting.append(target)
    assert [page for page in sorted(ROOT.glob("docs/**/*.md")) if page not in reached] == []

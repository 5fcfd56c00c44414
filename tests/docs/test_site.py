"""What the site needs that can be checked without building it: every page is in the navigation,
every link and anchor exists, and every public name is in the API reference. `scripts/docs` builds
the site and checks the rest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.test_architecture import IMPORTED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
PAGES = sorted(DOCS.rglob("*.md"))
MODULES = [*IMPORTED.split(), "holdfast.sessions", "holdfast.store", "holdfast.transcript"]
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.M)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)


def pages_of(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for target in entry.values():
            if isinstance(target, list):
                yield from pages_of(target)
            else:
                yield target


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(pages_of(SITE["nav"]))
    assert len(listed) == len({*listed})
    found = {str(page.relative_to(DOCS)) for page in PAGES}
    records = {name for name in found if re.match(r"decisions/\d", name)}  # their index lists them
    assert {*listed} == found - records


def test_the_site_loads_nothing_from_other_servers() -> None:
    assert SITE["theme"]["font"] is False
    loaded = [*SITE.get("extra_css", ()), *SITE.get("extra_javascript", ())]
    assert [name for name in loaded if not (DOCS / name).exists()] == []


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title).replace("`", "")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchors(page: Path) -> set[str]:
    text = FENCED.sub("", page.read_text())
    return {slug(title) for title in re.findall(r"^#+ (.+?)(?: #+)?$", text, re.M)}


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_anchor_of_a_link_exists(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([\w-]+)\)", text):
        found = (page.parent / target).resolve() if target else page
        assert anchor in anchors(found), f"{target}#{anchor}"


def test_no_page_links_out_of_the_folder_of_the_site() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)", FENCED.sub("", page.read_text())):
            assert (page.parent / target).resolve().is_relative_to(DOCS), f"{page.name}: {target}"


def test_every_public_name_is_in_the_api_reference() -> None:
    shown = {name for page in DOCS.glob("api/*.md") for name in DIRECTIVE.findall(page.read_text())}
    whole = [import_module(name) for name in MODULES if name in shown]
    known = {id(getattr(module, name)) for module in whole for name in module.__all__}
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name in import_module(module).__all__
        if f"{module}.{name}" not in shown
        if f"holdfast.{name}" not in shown
        if id(getattr(import_module(module), name)) not in known
    ]
    assert missing == []

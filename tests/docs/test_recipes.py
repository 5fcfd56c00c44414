"""The recipes show the programs in `examples/`, whole, and the programs stay small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/recipes").glob("*.md"))
SHOWN = re.compile(r'^```\w+ title="(examples/[\w./-]+)"\n(.*?)^```$', re.M | re.S)
MOST = 60  # lines of a program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_recipe_shows_its_programs_as_they_are(page: Path) -> None:
    for name, text in SHOWN.findall(page.read_text()):
        assert text == (ROOT / name).read_text(), f"run: python -m tests.docs.test_recipes ({name})"


def test_a_program_of_a_recipe_is_small() -> None:
    names = {name for page in PAGES for name, _ in SHOWN.findall(page.read_text())}
    sizes = {name: (ROOT / name).read_text().count("\n") for name in names}
    assert {name: lines for name, lines in sizes.items() if lines > MOST} == {}


def test_every_recipe_is_in_the_list() -> None:
    listed = (ROOT / "docs/recipes/README.md").read_text()
    others = [page.name for page in PAGES if page.name != "README.md"]
    assert [name for name in others if f"]({name})" not in listed] == []


if __name__ == "__main__":  # writes the programs into the pages
    for page in PAGES:
        old = page.read_text()
        new = SHOWN.sub(
            lambda found: (
                found[0].removesuffix(f"{found[2]}```") + f"{(ROOT / found[1]).read_text()}```"
            ),
            old,
        )
        page.write_text(new)

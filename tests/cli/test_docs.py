"""`docs/cli.md` names every verb and every option, and its examples are real."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from holdfast.cli.app import build, options_behind_verb
from holdfast.cli.verbs import VERBS

from .conftest import Cli

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SECTIONS = dict(re.findall(r"^## `holdfast (\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
EXAMPLES = re.findall(r"^\$ (holdfast [^|&<>\n]*)", PAGE, re.M)
COMMON = {"--store", "--tenant", "--json"}


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_a_section_with_an_example(verb: str) -> None:
    assert f"$ holdfast {verb}" in SECTIONS[verb]


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_option_is_explained(cli: Cli, verb: str) -> None:
    names = set(re.findall(r" (--[a-z][a-z-]+)", cli(verb, "--help").out))
    assert [name for name in sorted(names - COMMON) if f"`{name}" not in SECTIONS[verb]] == []
    assert all(f"`{name}" in PAGE for name in COMMON)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_understood(example: str) -> None:
    build().parse_args(options_behind_verb(shlex.split(example)[1:]))

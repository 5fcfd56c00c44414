"""Every option of every store rejects a bad value by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import InvalidValue
from holdfast.stores.migrations import schema_of
from holdfast.stores.url_options import OPTIONS, read_option, read_options

URLS = {
    "memory": "memory:",
    "file": "file:{place}/folder",
    "sqlite": "sqlite:{place}/x.db",
    "postgres": "postgresql://127.0.0.1:1/db",
    "mongodb": "mongodb://127.0.0.1:1/db",
}
ALL = [(kind, name) for kind, options in OPTIONS.items() for name in options]


def test_every_kind_of_store_has_a_table() -> None:
    assert set(URLS) == set(OPTIONS)


@pytest.mark.parametrize(("kind", "name"), ALL)
@pytest.mark.parametrize("value", ["", "no such value", "-1", "1e9", "NaN", "1e999"])
async def test_a_bad_value_is_rejected_with_the_option_and_what_is_allowed(
    kind: str, name: str, value: str, tmp_path: Path
) -> None:
    url = f"{URLS[kind].format(place=tmp_path)}?{name}={value.replace(' ', '%20')}"
    with pytest.raises(InvalidValue) as caught:
        await holdfast.connect(url)
    assert caught.value.field == name
    assert caught.value.remedy == OPTIONS[kind][name].remedy
    assert name == "listen_url" or repr(value) in caught.value.problem
    assert os.listdir(tmp_path) == [], "nothing was opened"


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite", "mongodb"])
async def test_an_unknown_option_is_rejected_by_name(kind: str, tmp_path: Path) -> None:
    url = f"{URLS[kind].format(place=tmp_path)}?cache=abc"
    with pytest.raises(InvalidValue, match="cache"):
        await holdfast.connect(url)


def test_options_that_are_not_given_have_their_defaults() -> None:
    for kind, options in OPTIONS.items():
        assert read_options(kind, {}) == {name: option.default for name, option in options.items()}


def test_the_value_of_an_option_is_read() -> None:
    assert read_option("sqlite", "mode", "0640") == 0o640
    assert read_option("postgres", "connections", "3") == 3
    assert read_option("mongodb", "patience", "2.5") == 2.5


@pytest.mark.parametrize("url", ["sqlite:", "file:", "sqlite:?durability=process", "sqlite:%00"])
async def test_a_url_without_a_path_is_rejected_before_anything_is_opened(url: str) -> None:
    with pytest.raises(InvalidValue, match="url has no path: write it as sqlite:PATH or file:DIR"):
        await schema_of(url)
    with pytest.raises(InvalidValue, match="url has no path"):
        await holdfast.connect(url)


async def test_memory_database_of_sqlite_is_rejected_with_the_url_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=r"url is 'sqlite::memory:'.*use memory:"):
        await holdfast.connect("sqlite::memory:")
    assert os.listdir(tmp_path) == []


# On Windows, two slashes at the beginning of a path name a host.
@pytest.mark.parametrize("slashes", ["", "//", "///"] if os.sep == "/" else [""])
async def test_absolute_path_may_have_the_slashes_that_other_libraries_want(
    tmp_path: Path, slashes: str
) -> None:
    async with holdfast.connect(f"sqlite:{slashes}{tmp_path}/x.db") as store:
        await store.append(holdfast.key("s"), [holdfast.NewEvent.of("a.b")], create=True)
    async with holdfast.connect(f"sqlite:{tmp_path}/x.db") as store:
        assert (await store.row(holdfast.key("s"))) is not None


@pytest.mark.parametrize("url", [None, Path("x.db"), b"memory:"])
def test_url_of_another_type_is_rejected(url: Any) -> None:
    with pytest.raises(InvalidValue, match=f"url is {type(url).__name__}: pass a str"):
        holdfast.connect(url)


@pytest.mark.parametrize("url", ["agents.db", ":memory:"])
def test_url_without_a_scheme_is_rejected_with_the_form_of_a_sqlite_url(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"url has no scheme.*sqlite:PATH"):
        holdfast.connect(url)

"""`holdfast export --review` and `--strict`: what would be replaced, what is doubtful, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Scope, Store, connect, key
from holdfast.bundle import ScrubConfig, export_bundle, review_bundle
from tests.cli.conftest import Cli, created, said, write

PASSWORD = "Tiger!Lemon!42"
UNNAMED = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW"  # random, and nothing says what it is
TEXT = f"the password is {PASSWORD}, and the other one {UNNAMED} as well"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", url)

    async def work(store: Store) -> None:
        await store.append(key("s"), [created(agent="shop"), said(TEXT)], create=True)

    write(url, work)


def test_a_review_shows_each_replacement_and_each_doubt_and_writes_nothing(cli: Cli) -> None:
    ended = cli("export", "s", "--review")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert any(line.startswith("doubtful") and UNNAMED in line for line in lines)
    replaced = [line for line in lines if line.startswith("replaced")]
    assert any(
        "$.threads[0].events[1].data.text" in line and "password" in line for line in replaced
    )
    assert PASSWORD not in ended.out + ended.err
    assert "no file was written" in ended.err
    assert list(Path().glob("*.zip")) == []


def test_a_review_is_one_document_for_tools(cli: Cli) -> None:
    found = cli("export", "s", "--review", "--json").json
    assert found["replaced"] >= 1
    assert found["doubtful"] >= 1
    assert {entry["what"] for entry in found["entries"]} == {"replaced", "doubtful"}
    assert all(entry["reason"] and entry["path"].startswith("$") for entry in found["entries"])
    assert PASSWORD not in str(found)


def test_strict_replaces_what_is_doubtful(cli: Cli) -> None:
    usual = cli("export", "s", "--out", "-")
    strict = cli("export", "s", "--out", "-", "--strict")
    assert UNNAMED in usual.out
    assert UNNAMED not in strict.out
    assert PASSWORD not in usual.out + strict.out
    again = cli("export", "s", "--review", "--strict", "--json").json
    assert again["doubtful"] == 0


@pytest.mark.parametrize("mode", ["local", "replay-only"])
def test_a_review_is_of_a_sanitized_bundle(cli: Cli, mode: str) -> None:
    ended = cli("export", "s", "--review", "--mode", mode)
    assert ended.code == 2
    assert "--review" in ended.err


async def test_a_review_changes_nothing_and_the_manifest_shows_no_value() -> None:
    async with connect("memory:") as store:
        await store.append(key("r"), [created(agent="shop"), said(TEXT)], create=True)
        origin = (store, Scope("main", "r"))
        before = await store.row(key("r"))
        review = await review_bundle(origin)
        assert await store.row(key("r")) == before
        bundle = await export_bundle(origin, scrub=ScrubConfig(strict=True))
    manifest = str(bundle.document.redaction)
    assert PASSWORD not in manifest
    assert UNNAMED not in manifest
    assert [entry.what for entry in review.entries].count("doubtful") >= 1

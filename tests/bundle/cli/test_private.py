"""`holdfast export --secret-env` and `--secrets-file`: values that only their owner knows go
nowhere, neither into a bundle nor into what is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import Store, key
from tests.cli.conftest import Cli, created, said, write

# Nothing that a rule would know for a secret.
FIRST, SECOND, THIRD = "correct horse battery", "the cellar door", "blue monday nine"
TEXT = f"Say {FIRST!r}, then {SECOND!r}, then {THIRD!r}."


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    monkeypatch.setenv("FIRST_SECRET", f"{FIRST}\n")
    monkeypatch.setenv("SECOND_SECRET", SECOND)

    async def work(store: Store) -> None:
        events = [created(agent="shop", title=TEXT), said(TEXT)]
        await store.append(key("s"), events, create=True)

    write(url, work)


def exported(cli: Cli, *options: str) -> str:
    ended = cli("export", "s", "--out", "-", *options)
    assert ended.code == 0, ended.err
    return ended.out + ended.err


def test_without_them_such_values_are_in_the_bundle(cli: Cli) -> None:
    found = exported(cli)
    assert all(value in found for value in (FIRST, SECOND, THIRD))


@pytest.mark.parametrize("mode", ["sanitized", "replay-only"])
@pytest.mark.parametrize("format", ["holdfast", "harn"])
def test_values_of_the_environment_are_replaced(cli: Cli, mode: str, format: str) -> None:
    options = ("--secret-env", "FIRST_SECRET", "--secret-env", "SECOND_SECRET")
    found = exported(cli, *options, "--mode", mode, "--format", format)
    assert FIRST not in found
    assert SECOND not in found
    assert (THIRD in found) == (mode == "sanitized")


def test_values_of_a_file_are_replaced(cli: Cli) -> None:
    Path("secrets").write_bytes(f"\ufeff{FIRST}\r\n\n  {THIRD} \n".encode())
    found = exported(cli, "--secrets-file", "secrets", "--secret-env", "SECOND_SECRET")
    assert not any(value in found for value in (FIRST, SECOND, THIRD))
    archive = cli("export", "s", "--secrets-file", "secrets", "--json")
    assert archive.json["redaction"]["secret"] >= 2
    shown = cli("bundle", "inspect", "s.zip", "--json")
    assert FIRST not in shown.out
    assert SECOND in shown.out


@pytest.mark.parametrize(
    ("options", "content"),
    [
        (["--secret-env", SECOND], None),  # the value, where its name belongs
        (["--secret-env", "EMPTY"], None),
        (["--secret-env", "SHORT"], None),
        (["--secrets-file", "secrets"], None),
        (["--secrets-file", "."], None),
        (["--secrets-file", "secrets"], b"\n \n"),
        (["--secrets-file", "secrets"], f"{SECOND}\nabc\n".encode()),
        (["--secrets-file", "secrets"], SECOND.encode() + b"\xff\n"),
        (["--secrets-file", "secrets"], f"{SECOND}\n".encode() * 80_000),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_is_no_secret_is_refused_without_being_shown(
    cli: Cli,
    options: list[str],
    content: bytes | None,
    form: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("SHORT", "zqx")
    if content is not None:
        Path("secrets").write_bytes(content)
    ended = cli("export", "s", *options, *form)
    assert ended.code == 1
    assert options[0] in ended.err
    assert not any(value in ended.out + ended.err for value in (SECOND, "zqx", "'abc'"))
    assert not os.path.exists("s.zip")


@pytest.mark.parametrize(
    "options", [["--secret-env", "FIRST_SECRET"], ["--secrets-file", "x"], ["--personal", "email"]]
)
def test_where_nothing_is_replaced_they_are_refused(cli: Cli, options: list[str]) -> None:
    ended = cli("export", "s", "--mode", "local", *options)
    assert ended.code == 2
    assert "--mode local" in ended.err
    assert not os.path.exists("s.zip")

"""What holds for every verb: where the store is, how errors are told, how output ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import pytest

import holdfast
from holdfast import StoreUnavailable
from holdfast.cli import sessions
from holdfast.cli.app import options_behind_verb
from holdfast.cli.options import data_folder, default_store
from holdfast.cli.verbs import GROUPS, VERBS
from holdfast.stores.memory import MemoryStore
from holdfast.stores.url_display import place

from .conftest import Cli, sample, write
from .programs import ARGUMENTS, append, start, without

NAMES = list(VERBS)
STORELESS = ("doctor", "demo", "chat", "mcp", "new", "serve", "token")
NEEDS_STORE = [name for name in NAMES if name not in STORELESS]


@pytest.mark.parametrize("verb", NEEDS_STORE)
def test_no_verb_makes_a_store(tmp_path: Path, cli: Cli, verb: str) -> None:
    for url in (f"sqlite:{tmp_path}/typo.db", f"file:{tmp_path}/typo"):
        ended = cli(verb, *ARGUMENTS.get(verb, []), "--store", url)
        assert ended.code == 1
        assert ended.err.startswith("error: store: there is no store at ")
        assert "--store URL or HOLDFAST_STORE" in ended.err
    assert list(tmp_path.glob("typo*")) == []


def test_the_default_store_is_in_the_data_folder(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "data" / "holdfast"
    assert str(folder / "holdfast.db") in cli("sessions").err
    folder.mkdir(parents=True)
    write(f"sqlite:{folder}/holdfast.db", sample)
    assert len(cli("sessions", "--json").json["items"]) == 2


def test_the_environment_names_the_store_and_an_option_wins(
    shop: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:/nowhere/at/all.db")
    assert cli("sessions").code == 1
    assert cli("sessions", "--store", shop).code == 0
    monkeypatch.setenv("HOLDFAST_STORE", "")
    assert "data/holdfast/holdfast.db" in cli("sessions").err


@pytest.mark.parametrize(
    ("platform", "environ", "folder"),
    [
        ("linux", {}, "/h/.local/share/holdfast"),
        ("linux", {"XDG_DATA_HOME": "/d"}, "/d/holdfast"),
        ("darwin", {"XDG_DATA_HOME": "/d"}, "/h/Library/Application Support/holdfast"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/holdfast"),
        ("win32", {}, "/h/AppData/Local/holdfast"),
    ],
)
def test_each_platform_has_its_data_folder(
    platform: str, environ: dict[str, str], folder: str
) -> None:
    assert PurePosixPath(data_folder(platform, environ, Path("/h"))) == PurePosixPath(folder)


def test_a_path_with_odd_characters_survives_the_url(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "100% odd? #1"
    monkeypatch.setenv("XDG_DATA_HOME", str(odd))
    assert place(default_store()) == odd / "holdfast" / "holdfast.db"
    (odd / "holdfast").mkdir(parents=True)
    write(default_store(), sample)
    assert cli("show", "customer-42").code == 0
    assert cli("show", "customer-42", "--store", f"sqlite://{quote(str(odd))}/x.db").code == 1


@pytest.mark.parametrize("verb", NAMES)
def test_every_verb_has_help_with_an_example(cli: Cli, verb: str) -> None:
    ended = cli(verb, "--help")
    assert ended.code == 0
    assert f" holdfast {verb}" in ended.out.partition("\n")[2]
    assert "--json" in ended.out
    assert verb in cli("--help").out


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").out.strip() == holdfast.__version__


@pytest.mark.parametrize(
    "wrong", [["nosuchverb"], ["--nosuch"], ["show"], ["sessions", "--nosuch"], ["purge", "extra"]]
)
def test_wrong_usage_is_one_line_and_exit_code_2(cli: Cli, wrong: list[str]) -> None:
    ended = cli(*wrong)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("--help\n")
    told = json.loads(cli(*wrong, "--json").err)
    assert told["code"] == "usage"
    assert told["fields"] == {}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("show a b", "unexpected argument 'b'; see: holdfast show --help"),
        ("export a b.zip", "unexpected argument 'b.zip'; name the file with --out FILE; see: "),
        ("search a b", "unexpected argument 'b'; put the whole query in quotes; see: "),
        ("show", "show needs SESSION; see: holdfast show --help"),
        ("copy", "copy needs --to; see: holdfast copy --help"),
    ],
)
def test_wrong_arguments_are_named(cli: Cli, words: str, told: str) -> None:
    assert cli(*words.split()).err.startswith(f"error: {told}")


@pytest.mark.parametrize("verb", [*VERBS, *GROUPS])
def test_the_first_line_of_help_is_that_of_the_list(cli: Cli, verb: str) -> None:
    if verb in VERBS:
        assert VERBS[verb][2] in " ".join(cli(verb, "--help").out.split())
        return
    for function, summary in GROUPS[verb][2].items():
        assert summary in " ".join(cli(verb, function.rstrip("_"), "--help").out.split())
        assert summary in " ".join(cli(verb, "--help").out.replace("│", " ").split())


def test_a_mistyped_verb_gets_a_suggestion(cli: Cli) -> None:
    assert 'Did you mean "sessions"? See: holdfast --help\n' in cli("sesions").err


def test_an_error_in_json_has_code_message_and_fields(shop: str, cli: Cli) -> None:
    ended = cli("show", "nobody", "--json")
    assert (ended.code, ended.out) == (1, "")
    assert json.loads(ended.err) == {
        "code": "session_not_found",
        "message": "no thread 'main' of session 'nobody' in tenant 'main': "
        "check the id, or create the session first",
        "fields": {"tenant": "main", "session": "nobody", "thread": "main"},
        "docs": "docs/errors#session_not_found",
    }


def test_an_argument_that_is_not_unicode_is_an_error_like_any_other(shop: str, cli: Cli) -> None:
    assert cli("show", "x\udcff").err.startswith("error: SESSION contains a lone surrogate")
    assert json.loads(cli("show", "x", "y\udcff", "--json").err)["code"] == "usage"


def test_a_store_that_fails_is_told_in_one_line(
    memory: MemoryStore, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> Any:
        raise StoreUnavailable(problem="the disk\nis full")

    monkeypatch.setattr(memory, "find", fails)
    assert cli("sessions").err == (
        "error: the disk is full; try again; `holdfast doctor` checks the store "
        "(docs/errors#store_unavailable)\n"
    )


def test_a_fault_of_ours_keeps_its_traceback(
    shop: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sessions, "rows_text", lambda *_, **__: fails())
    with pytest.raises(ZeroDivisionError):
        cli("sessions")


def test_the_common_options_may_stand_before_the_verb(shop: str, cli: Cli) -> None:
    assert options_behind_verb(["--json", "--store", "x", "--tenant=t", "show", "--", "-s"]) == [
        "show",
        "--json",
        "--store",
        "x",
        "--tenant=t",
        "--",
        "-s",
    ]
    assert options_behind_verb(["--store"]) == ["--store"]
    assert len(cli("--json", "--tenant", "other", "sessions").json["items"]) == 1


def test_what_another_process_wrote_is_shown(url: str) -> None:
    append(url, "s", "from\x1b[2Jafar")
    with start("show", "s", "--store", url) as show:
        out, err = show.communicate()
    assert (show.returncode, err) == (0, "")
    assert "from\\x1b[2Jafar" in out


def test_output_ends_quietly_when_its_reader_leaves(url: str) -> None:
    append(url, "s", *("x" * 100_000 for _ in range(5)))
    with start("show", "s", "--json", "--store", url) as show:
        assert show.stdout is not None
        assert show.stdout.read(7) == '{"row":'
        show.stdout.close()
        assert show.stderr is not None
        assert show.stderr.read() == ""
    assert show.returncode == 141


def test_output_is_utf_8_in_json_and_never_fails_in_text(url: str) -> None:
    import os

    append(url, "s", "ü 👩‍👧")
    latin = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with start("tail", "s", "--no-follow", "--json", "--store", url, env=latin) as tail:
        assert json.loads(tail.communicate()[0])["data"]["text"] == "ü 👩‍👧"
    with start("tail", "s", "--no-follow", "--store", url, env=latin) as tail:
        assert "\\xfc \\U0001f469" in tail.communicate()[0]
    assert tail.returncode == 0


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_extra_the_command_says_what_to_install(missing: str) -> None:
    program = "from holdfast.cli import main\nsys.exit(main(['sessions']))"
    ended = without({missing}, program)
    assert ended.returncode == 1
    assert ended.stderr == (
        "error: holdfast needs an optional package: pip install 'holdfast[cli]' "
        "(docs/errors#missing_extra)\n"
    )


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        ("sesions", 'Unknown command "sesions". Did you mean "sessions"? See: holdfast --help'),
        (
            "mcp",
            "holdfast mcp needs an optional package: pip install 'holdfast[mcp]' "
            "(docs/errors#missing_extra)",
        ),
    ],
)
def test_without_optional_packages_every_verb_loads(verb: str, message: str) -> None:
    program = f"from holdfast.cli import main\nsys.exit(main(['{verb}']))"
    ended = without({"httpx", "mcp"}, program)
    assert ended.stderr == f"error: {message}\n"
    assert ended.stdout == ""


def test_importing_the_command_costs_nothing() -> None:
    program = "import holdfast.cli\nprint({'cyclopts', 'rich', 'sqlite3'} & set(sys.modules))"
    assert without(set(), program).stdout == "set()\n"


def test_this_suite_runs_the_command_that_is_installed() -> None:
    assert Path(holdfast.__file__).parent == Path(sessions.__file__).parent.parent
    assert sys.version_info >= (3, 11)

"""A store on a server, as far as the command line goes without one: it is named everywhere, an
unreachable one is told at once, and no password comes out."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from holdfast.cli.verbs import VERBS
from holdfast.stores.url_display import shown

from .conftest import Cli
from .programs import ARGUMENTS, start

SECRET = "s3cr3t"
URLS = {
    "postgres": "postgresql://ann:{}@127.0.0.1:{}/shop?patience=1",
    "mongodb": "mongodb://ann:{}@127.0.0.1:{}/shop?patience=1",
}
STORELESS = ("demo", "doctor", "mcp", "new", "serve", "token")
VERB_NAMES = [verb for verb in VERBS if verb not in STORELESS]


@pytest.fixture
def port() -> Iterator[int]:
    """A port where nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def away(port: int) -> str:
    return URLS["postgres"].format(SECRET, port)


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_the_help_names_the_kinds(cli: Cli, verb: str) -> None:
    said = " ".join(cli(verb, "--help").out.replace("│", " ").split())
    for scheme in ("sqlite:PATH", "file:DIR", "postgresql://", "mongodb://"):
        assert scheme in said


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_a_server_that_is_away_is_told_without_its_password(cli: Cli, away: str, verb: str) -> None:
    ended = cli(verb, *ARGUMENTS.get(verb, []), "--store", away, "--json")
    assert ended.code == 1
    assert json.loads(ended.err)["code"] == "store_unavailable"
    assert SECRET not in ended.out + ended.err


def test_a_target_that_is_away_is_told_too(shop: str, cli: Cli, away: str) -> None:
    ended = cli("copy", "--to", away)
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert ended.err.count("again") == 1
    assert SECRET not in ended.out + ended.err


@pytest.mark.parametrize("kind", URLS)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_process_of_its_own_gives_no_password_away(port: int, kind: str, form: list[str]) -> None:
    url = URLS[kind].format(SECRET, port)
    for verb in ("doctor", "migrate"):
        with start(verb, "--store", url, *form) as process:
            out, err = process.communicate()
        assert process.returncode == 1
        assert SECRET not in out + err
        assert "Traceback" not in err
        if verb == "doctor":
            assert "127.0.0.1" in out
        elif form:
            assert json.loads(err)["code"] == "store_unavailable"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("memory:", "memory:"),
        ("sqlite:shop@home.db", "sqlite:shop@home.db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://ann:s3cr3t@host:5432/db?sslmode=x", "postgresql://host:5432/db"),
        ("postgresql://[::1]:5432/db?password=s3cr3t", "postgresql://[::1]:5432/db"),
        ("mongodb://ann:s3cr3t@a:1,b.c:2/db", "mongodb://a:1,b.c:2/db"),
        ("postgresql://ann:s3/cr3t@host/db", "postgresql:…"),
        ("postgresql://ann:s3?cr3t@host/db", "postgresql:…"),
        ("postgresql://ann:s3@cr3t@host/db", "postgresql:…"),
        ("postgresql://host/db?user=a@b&password=s3cr3t", "postgresql:…"),
        ("postgresql:ann:s3cr3t@host", "postgresql:…"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, seen: str) -> None:
    assert shown(url) == seen


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "wrong",
    [
        ["sessions", f"--stor=postgresql://ann:{SECRET}@host/db"],
        ["sessions", f"postgresql://ann:{SECRET}@host/db"],
        [f"postgresql://ann:{SECRET}@host/db"],
        ["sessions", "--store", f"postgrsql://ann:{SECRET}@host/db"],
        ["doctor", "--store", f"postgrsql://ann:{SECRET}@host/db"],
    ],
)
def test_a_mistyped_command_gives_no_secret_away(
    cli: Cli, wrong: list[str], form: list[str]
) -> None:
    ended = cli(*wrong, *form)
    assert ended.code in (1, 2)
    assert SECRET not in ended.out + ended.err

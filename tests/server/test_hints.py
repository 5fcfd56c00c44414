"""How a key is made for a server that has none: the command that it names does it, in the store
that it serves from, and shows nobody a password."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest

from holdfast.cli.agents import Choice
from holdfast.cli.options import Common
from holdfast.cli.serve import _Messages
from holdfast.server.preflight import ServerStarted
from holdfast.server.processes import ServePlan
from tests import forks
from tests.cli.conftest import _far_from_home  # noqa: F401 - far from the user's files
from tests.servers.process import free_port

from .scene import PATIENCE
from .test_serve import PROGRAM

TABLES = '[agents]\nshop = "shop:shop"\n[stores]\n'


def hint(said: str) -> str:
    found = re.search(r"`(holdfast keys create [^`]*)`", said)
    assert found is not None, said
    return found[1]


def test_the_command_that_is_named_makes_a_key_for_this_server(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "server.toml").write_text(f'{TABLES}sqlite = "sqlite:my shop.db"\n')
    port, run = free_port(), ("-m", "holdfast.cli")
    process = forks.popen(
        *(*run, "serve", "--config", "server.toml", "--port", str(port)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving")
        assert process.stdout.readline().startswith("console: ")
        words = shlex.split(hint(process.stdout.readline()).replace("NAME", "ann"))
        made = forks.run(*run, *words[1:], cwd=tmp_path, capture_output=True, text=True, check=True)
        key = {"authorization": f"Bearer {made.stdout.strip()}"}
        url = f"http://127.0.0.1:{port}/v1/sessions"
        assert httpx.get(url, headers=key, timeout=PATIENCE).status_code == 200
    finally:
        process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize(
    ("stores", "server", "words"),
    [
        ('sqlite = "sqlite:x.db"', "", "--store sqlite:x.db"),
        ('pg = {url = "env:DATABASE_URL"}', "", '--store "$DATABASE_URL"'),
        ('a = "sqlite:a.db"\nb = "file:b"', 'default_store = "b"', "--store file:b"),
        ('postgres = "postgresql://ann:pass%40word@db/x"', "", "--store URL"),
        ('postgres = "postgresql://db/x?password=pass%40word"', "", "--store URL"),
    ],
)
def test_the_store_of_a_file_is_named(
    stores: str, server: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f"{TABLES}{stores}\n[server]\n{server}\n")
    _Messages(Common(), ServePlan(config=str(file)), Choice()).begun(
        ServerStarted(port=1, kept=True, known=False)
    )
    said = capsys.readouterr().err
    assert hint(said) == f"holdfast keys create NAME {words}"
    assert "pass%40word" not in said
    assert ("[stores] postgres in" in said) == (words == "--store URL")


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (None, ""),
        ("sqlite:x.db", " --store sqlite:x.db"),
        ("mongodb://ann:pass%40word@db/x", " --store URL"),
    ],
)
def test_so_is_that_of_the_command_line(
    store: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    began = ServerStarted(port=1, kept=True, known=False)
    _Messages(Common(store=store), ServePlan(store=store), Choice()).begun(began)
    said = capsys.readouterr().err
    assert hint(said) == f"holdfast keys create NAME{words}"
    assert "pass%40word" not in said

"""A later version opens what an earlier one wrote: in place, once, however many processes begin
at the same moment, and a gate can ask beforehand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.stores.postgres import schema as postgres
from holdfast.stores.sqlite import schema as sqlite
from tests.compat.test_corpus import CORPORA
from tests.compat.write import STORES, copy
from tests.crash.children import ROOT
from tests.sessions import places

PROCESSES = 4

# A program whose schema is one version further. Its migration can be carried out only once.
LATER = """
import asyncio, sys
import holdfast
from holdfast.cli import main as cli
from holdfast.stores.{kind} import schema

schema.MIGRATIONS = (*schema.MIGRATIONS, "CREATE TABLE {prefix}later (n integer)")
schema.VERSION = len(schema.MIGRATIONS)

async def main(url):
    async with holdfast.connect(url) as store:
        note = holdfast.NewEvent.of("note.made", {{"by": "the later version"}})
        await store.append(holdfast.key("later"), [note], create=True)
        print(store.info().schema, [damage async for damage in store.verify()])

if sys.argv[2:]:
    sys.exit(cli([*sys.argv[2:], "--store", sys.argv[1]]))
else:
    asyncio.run(main(sys.argv[1]))
"""


def begin(kind: str, url: str, *verb: str) -> subprocess.Popen[str]:
    code = LATER.format(kind=kind, prefix="hf." if kind == "postgres" else "")
    command = [sys.executable, "-c", code, url, *verb]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    out, words = child.communicate(timeout=120)
    return child.returncode, out or words


def gate(kind: str, url: str) -> int:
    return ended(begin(kind, url, "migrate", "--check"))[0]


def upgraded(kind: str, url: str, version: int) -> None:
    """All who come at once find it done, and it was done once."""
    assert gate(kind, url) == 1
    children = [begin(kind, url) for _ in range(PROCESSES)]
    assert [ended(child) for child in children] == [(0, f"{version} []\n")] * PROCESSES
    assert gate(kind, url) == 0


@pytest.mark.parity("user-demand", 49)
@pytest.mark.parametrize("corpus", CORPORA[:1], ids=lambda path: str(path.name))
def test_a_file_of_an_earlier_version_is_migrated_once_where_it_is(
    corpus: Path, tmp_path: Path
) -> None:
    copy(corpus / STORES["sqlite"], tmp_path / STORES["sqlite"])
    upgraded("sqlite", f"sqlite:{tmp_path / STORES['sqlite']}", sqlite.VERSION + 1)


@pytest.mark.parity("user-demand", 49)
def test_so_is_a_schema_of_a_database(tmp_path: Path) -> None:
    url = places.url("postgres", tmp_path)
    made = "import asyncio, sys, holdfast\n"
    made += "async def main(url):\n    async with holdfast.connect(url): pass\n"
    made += "asyncio.run(main(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", made, url], check=True, timeout=60)
    upgraded("postgres", url, postgres.VERSION + 1)

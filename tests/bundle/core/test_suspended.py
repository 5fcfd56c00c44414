"""A run that waits for a person goes on elsewhere: exported here, imported into another store,
approved there by another process's harness, and finished; what it asked about happens once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast import Agent, Harness, SessionMoved, connect, export_bundle, import_bundle, key, tool
from holdfast.models.scripted import Say, ScriptedModel, Use
from tests.harness.kernel.scene import PATIENCE, kinds, only, script

from .scene import KINDS, new


def bursar(ledger: Path) -> Agent:
    @tool(approval="ask")
    def pay(cents: int) -> str:
        """Pay."""
        with ledger.open("a") as book:
            book.write(f"{cents}\n")
        return f"paid {cents}"

    return Agent("bursar", instructions="Pay what is asked.", tools=[pay])


def asks() -> ScriptedModel:
    return script(Say(calls=[Use("pay", cents=500)]), "It is paid.")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["json", "zip"])
@pytest.mark.parity("user-demand", 55)
async def test_a_run_that_waits_for_an_approval_finishes_elsewhere(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    ledger, file = tmp_path / "ledger", tmp_path / f"case.{suffix}"
    async with connect(f"sqlite:{tmp_path}/here.db") as here:
        async with Harness(bursar(ledger), store=here, default_model=asks()) as harness:
            session = await harness.get_or_create("case")
            assert (await session.send("Pay 5 euros.")).status == "waiting"
        written = await export_bundle(
            (here, key("case").scope), "local", purpose="move", to=file, move_to="the office"
        )
        assert [item.what for item in written.document.pending] == ["approval"]
        assert written.document.liveness == "continuable"
        with pytest.raises(SessionMoved):
            await here.append(key("case"), [new("session.touched")])
    (tmp_path / "there").mkdir()
    async with connect(KINDS[kind](tmp_path / "there")) as there:
        done = await import_bundle(there, file)
        async with Harness(bursar(ledger), store=there, default_model=asks()) as harness:
            session = await harness.get_or_create(done.session)
            (item,) = await session.pending()
            assert not ledger.exists()
            await session.approve(item.id, actor="the bursar")
            result = await session.wait()
            assert (result.status, result.text) == ("done", "It is paid.")
            told = await session.events()
            assert only(told, "tool.finished")[0]["result"] == "paid 500"
            assert len(only(told, "tool.started")) == 1
            assert (await kinds(session)).count("run.started") == 1
    assert ledger.read_text() == "500\n"


CHILD = """
import asyncio, sys
from pathlib import Path
from holdfast import Harness, connect, import_bundle
from tests.bundle.core.test_suspended import asks, bursar

async def main(file, url, ledger):
    async with connect(url) as store:
        done = await import_bundle(store, file)
        async with Harness(bursar(Path(ledger)), store=store, default_model=asks()) as harness:
            session = await harness.get_or_create(done.session)
            await session.approve()
            result = await session.wait()
            print(done.fresh, result.status, result.text)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_it_finishes_in_a_process_that_knows_only_the_file(tmp_path: Path) -> None:
    ledger, file = tmp_path / "ledger", tmp_path / "case.zip"
    async with Harness(
        bursar(ledger), store=f"sqlite:{tmp_path}/here.db", default_model=asks()
    ) as harness:
        session = await harness.get_or_create("case")
        assert (await session.send("Pay 5 euros.")).status == "waiting"
        await session.close()
        await export_bundle(session, "local", purpose="move", to=file)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, str(file), f"file:{tmp_path}/there", str(ledger)),
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await child.communicate()
    assert (child.returncode, out.decode().strip()) == (0, "True done It is paid.")
    assert ledger.read_text() == "500\n"

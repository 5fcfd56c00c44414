"""The benchmark: its statistics, its counting, and that each workload runs."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from bench import floors, written, written_shared
from bench.__main__ import WORKLOADS, holds, main
from bench.entries import TURNS
from bench.measure import Absent, Bar, Figure, Result, race, ratios, spread
from bench.report import keep, machine, markdown
from bench.servers import Servers, check_postgres
from bench.settings import Settings, Sizes
from pymongo import AsyncMongoClient
from tests.servers import shared
from tests.servers.process import ServerFailed

from holdfast.adapters import adk, langgraph, openai  # noqa: F401 - imported before a loop runs

TINY = Sizes(
    turns=3,
    together=4,
    turns_together=2,
    early=4,
    late=12,
    window=3,
    counted=4,
    events=60,
    tail=10,
    entries=200,
    entries_shared=200,
    tails=2,
    few=40,
    many=80,
    queries=2,
    rounds=1,
    served=4,
    sent=2,
    turns_mongodb=3,
    late_mongodb=12,
    turns_pushed=3,
    shorter=4,
    longer=8,
    window_pushed=2,
    turns_harness=3,
    late_harness=12,
    window_harness=3,
    left=5,
    streams=3,
    chunks=5,
    spacing=0.001,
    answer=2_000,
    speaking=0.6,
    deltas=40,
    threads=4,
    forked=12,
    viewers=6,
    viewed=2,
    stalled=2,
    large=2,
    hops=5,
    posts=2,
    turns_adapter=3,
    turns_adapter_together=2,
    turns_adk=3,
    turns_langgraph=3,
    late_adapter=9,
    window_adapter=2,
    searched=6,
    turns_searched=2,
    appending=0.0,
    consoles=2,
)


@pytest.fixture(scope="module", autouse=True)
def _what_measurements_set_aside() -> Iterator[None]:
    """It is collected at the end. What was set aside before stays so: it is large."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as servers:
        yield servers


@pytest.fixture
def settings(tmp_path: Path, servers: Servers) -> Settings:
    return Settings(sizes=TINY, rounds=1, peers=False, place=str(tmp_path), servers=servers)


def test_quartiles_are_those_of_the_values() -> None:
    at = spread([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (at.q1, at.median, at.q3) == (2.0, 3.0, 4.0)
    assert spread([7.0]).median == 7.0


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_contestants_take_turns_and_the_first_lap_is_not_counted() -> None:
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return float(len(order))

    runs = {"a": lambda: contestant("a"), "b": lambda: contestant("b")}
    values, absent = race(runs, rounds=2)
    assert order == ["a", "b"] * 3
    assert values == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert absent == {}


def test_a_contestant_that_is_missing_or_fails_is_named_and_the_others_go_on() -> None:
    def missing() -> float:
        raise Absent("not installed")

    def failing() -> float:
        raise OSError("no disk")

    values, absent = race({"a": missing, "b": failing, "c": lambda: 1.0}, rounds=2)
    assert absent == {"a": "not installed", "b": "failed: OSError: no disk"}
    assert values == {"c": [1.0, 1.0]}


def test_a_bar_is_held_by_the_median() -> None:
    assert Bar(name="x", way="least", bar=0.6, values=[0.5, 0.7, 0.8]).met is True
    assert Bar(name="x", way="most", bar=0.6, values=[0.5, 0.7, 0.8]).met is False
    assert Bar(name="x", way="most", bar=0.6).met is None


def test_what_failed_is_not_passed_over_as_what_is_not_installed_is() -> None:
    assert holds(Bar(name="x", way="most", bar=1.0, values=[1.0]))
    assert holds(Bar(name="x", way="most", bar=1.0, absent="not installed (peer)"))
    assert not holds(Bar(name="x", way="most", bar=1.0, values=[2.0]))
    assert not holds(Bar(name="x", way="most", bar=1.0, absent="failed: OSError: no server"))


@pytest.mark.parametrize(
    ("name", "variable", "url"),
    [
        ("postgres-one", "HOLDFAST_TEST_POSTGRES_URL", "postgresql://127.0.0.1:1/none"),
        ("mongodb-one", "HOLDFAST_TEST_MONGODB_URL", "mongodb://127.0.0.1:1/?timeoutMS=200"),
    ],
)
def test_a_database_that_is_not_there_fails_the_run(
    name: str,
    variable: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, url)
    assert main(["--quick", "--no-peers", "--only", name]) == 1
    assert "failed: " in capsys.readouterr().out


def test_a_database_that_does_not_wait_for_its_disk_is_refused() -> None:
    with pytest.raises(ServerFailed, match="fsync"):
        check_postgres(shared.address("postgres"))


def test_a_report_says_what_is_not_installed() -> None:
    figures = [
        Figure(name="ours", unit="turns/s", values=[1.0]),
        Figure(name="peer", unit="turns/s", absent="not installed (peer)"),
    ]
    result = Result(name="w", title="W", figures=figures)
    result.compare("ours", "peer", "least", 1.1)
    text = markdown([result])
    assert text.count("not installed (peer)") == 2
    assert "not measured" in text


def test_results_are_kept_below_their_heading(tmp_path: Path, settings: Settings) -> None:
    page = tmp_path / "page.md"
    page.write_text("# How fast\n\n## Results\n\nold\n")
    result = Result(name="w", title="W", figures=[Figure(name="ours", unit="ms", values=[1.0])])
    keep(page, machine(settings), 9, [result], ["w"])
    text = page.read_text()
    assert text.startswith("# How fast\n\n## Results\n")
    assert "| ours | 1.00 ms |     |     |" in text
    assert "\nold\n" not in text


def test_results_of_other_workloads_stay(tmp_path: Path, settings: Settings) -> None:
    page, about = tmp_path / "page.md", machine(settings)
    page.write_text("## Results\n")

    def measured(name: str, value: float) -> Result:
        figure = Figure(name="ours", unit="ms", values=[value])
        bar = Bar(name="ours", way="most", bar=5.0, unit="ms", values=[value])
        return Result(name=name, title=name, figures=[figure], bars=[bar], notes=[f"at {value}"])

    for results in ([measured("b", 1.0), measured("a", 2.0)], [measured("b", 3.0)]):
        keep(page, about, 9, results, ["a", "b"])
    text = page.read_text()
    assert [line for line in text.splitlines() if line.startswith(("### ", "| ours", "- "))] == [
        *("### a", "| ours | 2.00 ms | ≤ 5 ms | met |", "| ours | 2.00 ms |     |     |"),
        *("- at 2.0", "### b", "| ours | 3.00 ms | ≤ 5 ms | met |"),
        *("| ours | 3.00 ms |     |     |", "- at 3.0"),
    ]


def test_a_turn_is_four_entries_of_three_kilobytes() -> None:
    for turn in TURNS:
        sizes = [len(bytes(event.data)) for event in turn.events()]
        assert len(sizes) == 4
        assert 2_900 <= sum(sizes) <= 3_200
        assert len(turn.items()) == 4


def test_rows_and_pages_are_counted_from_outside(tmp_path: Path) -> None:
    conn = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("CREATE TABLE t (a TEXT)")
    written.begin_wal_anew(tmp_path)
    assert written.wal_of(tmp_path).pages == 0
    for text in ("one", "two"):
        conn.execute("INSERT INTO t VALUES (?)", (text,))
    wal = written.wal_of(tmp_path)
    assert (wal.commits, wal.pages) == (2, 2)
    with written.counting_rows(tmp_path) as rows:
        conn.execute("INSERT INTO t VALUES ('three')")
        conn.execute("UPDATE t SET a = 'four' WHERE a = 'one'")
        conn.execute("DELETE FROM t WHERE a = 'two'")
    assert rows.counts == {"t insert": 1, "t update": 1, "t delete": 1}
    assert rows.bytes == len("three" + "four")
    assert [name for (name,) in conn.execute("SELECT name FROM sqlite_master")] == ["t"]
    conn.close()


def test_rows_of_postgres_are_counted_from_outside(servers: Servers) -> None:
    async def count() -> written.Rows:
        conn = await asyncpg.connect(place.plain)
        await conn.execute(f"CREATE SCHEMA {place.name}; SET search_path = {place.name}")
        await conn.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)")
        async with written_shared.postgres_rows(place) as rows:
            before = await written_shared.wal_position(place)
            await conn.execute("INSERT INTO t VALUES (3); UPDATE t SET a = 4 WHERE a = 1")
            await conn.execute("DELETE FROM t WHERE a > 2")
            assert await written_shared.wal_position(place) > before
        left = await conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", place.name)
        await conn.close()
        assert [name for (name,) in left] == ["t"]
        return rows

    with servers.postgres() as place:
        rows = asyncio.run(count())
    assert rows.counts == {"t insert": 1, "t update": 1, "t delete": 2}
    assert rows.bytes > 0


def test_documents_of_mongodb_are_counted_from_outside(servers: Servers) -> None:
    async def count() -> written.Rows:
        async with AsyncMongoClient[dict[str, object]](place.plain) as client:
            things = client[place.name].things
            await things.insert_one({"_id": 1})
            async with written_shared.mongodb_documents(place) as rows:
                await things.insert_many([{"_id": 2}, {"_id": 3}])
                await things.update_one({"_id": 1}, {"$set": {"a": "b"}})
                await things.delete_one({"_id": 2})
            await things.insert_one({"_id": 4})
        return rows

    with servers.mongodb() as place:
        rows = asyncio.run(count())
    assert rows.counts == {"things insert": 2, "things update": 1, "things delete": 1}
    assert rows.bytes > 0


def test_the_floor_writes_what_a_reader_of_the_same_tables_finds(tmp_path: Path) -> None:
    floors.sqlite_turns(tmp_path, 2, 3)
    conn = sqlite3.connect(tmp_path / "floor.db")
    assert len(floors.load(conn, floors.longest(conn))) == 12
    conn.close()


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_each_workload_runs(name: str, settings: Settings) -> None:
    result = WORKLOADS[name](settings)
    assert result.name == name
    assert result.bars
    assert [figure.absent for figure in result.figures if figure.absent] == []
    assert all(bar.met is not None for bar in result.bars)
    assert not list(Path(settings.place or "").iterdir())


def test_the_command_names_its_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(WORKLOADS)
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])

"""SQLite finds tenants with due logs by the index, however many logs wait for a later time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast import connect
from holdfast.stores.sqlite.queries import due_tenants_sql


async def test_tenants_with_due_logs_are_found_without_reading_waiting_logs(tmp_path: Path) -> None:
    async with connect(f"sqlite:{tmp_path}/h.db"):
        pass
    sql, values = due_tenants_sql(1_000, ["a", "b"], "", 100)
    link = sqlite3.connect(tmp_path / "h.db")
    try:
        plan = [row[3] for row in link.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    finally:
        link.close()
    searches = [step for step in plan if " logs " in step or " l " in step]
    assert searches
    assert all(step.startswith("SEARCH") for step in searches)
    assert any("(tenant=? AND agent=? AND wake<?)" in step for step in searches)

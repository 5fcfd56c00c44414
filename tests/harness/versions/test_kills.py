"""The process with the old version of an agent is killed at each append of a run; a process with a
new version continues the run, or leaves it to a third one that has the old version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import LogConfig, Store, connect, key
from holdfast.events import RunResumed, RunStarted
from holdfast.sessions.undriven import undriven
from holdfast.testing.samples import read_all
from tests.crash.places import url
from tests.harness.crash.nursery import Nursery

from .scene import AGENTS, LOOK, SESSION, row_when, served

PATIENCE = 60.0
AT_ONCE = 3
# Every append, before and after it; on a server every third of these places.
PLACES = {"sqlite": 1, "postgres": 3}
OLD, NEW = AGENTS["old"].version, AGENTS["new"].version


async def versions_of(store: Store, tenant: str) -> list[tuple[str, str | None]]:
    """What started and continued runs: a version, or the reason."""
    found = []
    for event in await read_all(store, key(SESSION, tenant=tenant)):
        if event.kind == "run.started":
            found.append(("started", event.payload(RunStarted).version))
        elif event.kind == "run.resumed":
            found.append(("resumed", event.payload(RunResumed).reason))
    return found


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("policy", ["float", "warn", "pin"])
async def test_a_run_of_another_version_is_continued_as_the_policy_says(
    kind: str, policy: str, tmp_path: Path
) -> None:
    at = url(kind, tmp_path)
    gate = asyncio.Semaphore(AT_ONCE)
    with Nursery(tmp_path, module="tests.harness.versions.life") as nursery:
        async with connect(at) as store:
            told = {"url": at, "versions": policy, "agent": "old", "text": "Look"}
            calm = nursery.bear(**told, tenant="calm")
            await calm.died()
            appends = calm.words["appends"]
            assert await versions_of(store, "calm") == [("started", OLD)]
            points = [(call, after) for call in range(2, appends + 1) for after in (False, True)]
            points = points[:: PLACES[kind]]
            resumed: list[bool] = []

            async def killed(call: int, after: bool) -> None:
                tenant = f"t{call}{'a' if after else 'b'}"
                async with gate:
                    victim = nursery.bear(**told, tenant=tenant, call=call, after=after)
                    await victim.died()
                    assert victim.words == {}  # it was killed
                    row = await store.row(key(SESSION, tenant=tenant))
                    open = row is not None and row.run == "running"
                    records: list[dict[str, Any]] = []
                    log = LogConfig(level="warning", sinks=[records.append], propagate=False)
                    given = {"tenant": tenant, "versions": policy, "logging": log}
                    async with served("new", store, **given) as new:
                        if open and policy == "pin":
                            await _left_alone(store, tenant, records)
                            third = nursery.bear(url=at, tenant=tenant, agent="old", versions="pin")
                            await third.died()
                            assert "appends" in third.words, third.words
                        session = await new.get_or_create(SESSION)
                        await session.send("Look", key="first")
                        await session.send("Hello", key="second")
                    found = await versions_of(store, tenant)
                    reason = "version" if policy == "warn" else "driver_lost"
                    if open:
                        first = [("started", OLD), ("resumed", reason)]
                    else:  # it had not begun, or had ended already
                        first = [("started", OLD if row and row.run == "done" else NEW)]
                    assert found == [*first, ("started", NEW)]
                    resumed.append(open)

            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(killed(*point) for point in points))
            assert any(resumed)


async def _left_alone(store: Store, tenant: str, records: list[dict[str, Any]]) -> None:
    """Wait until the new version has found the run of the process that was killed: it is listed as
    waiting for its version, has no lease, and nothing was written."""
    head = (await row_when(store, tenant, lambda row: row.run == "running")).head
    async with asyncio.timeout(PATIENCE):
        while [record["event"] for record in records] != ["run_pinned"]:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        # The lease of the killed process has to expire first.
        while not (found := await undriven(store, tenant)):  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
    assert [(run.agent, run.version, run.session) for run in found] == [("desk", OLD, SESSION)]
    assert (await row_when(store, tenant, lambda row: True)).head == head

"""Kill the driver before and after each of its appends: the next process probes what was lost, and
a person is asked only what a probe does not know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import BlobRef, Event, Store, connect
from holdfast.bundle import replay
from holdfast.errors import AlreadyDecided
from holdfast.harness.live.decisions import settle_pending
from holdfast.log.state import fold
from holdfast.testing.samples import read_all
from tests.crash.outcome import Outcome
from tests.crash.places import url

from ..crash.nursery import Child, Nursery
from ..crash.scene import ENDED, Effects, doubled, illegal, said
from .story import ANSWER, ASKED, LOOK, REPORT, RESULTS, agent, place

WHOLE = [
    ("user", ASKED, []),
    ("assistant", "First.", [("pay", {"cents": 5}, "ok", "paid 5")]),
    ("assistant", "Then.", [("mail", {"to": "ann"}, "ok", "mailed ann")]),
    ("assistant", "Last.", [("report", {}, "ok", None)]),  # the whole result is a blob
    ("assistant", ANSWER, []),
]
EVERY = {"sqlite": 1, "postgres": 3}  # each place, or one of three
PATIENCE = 60.0
AT_ONCE = 4


@pytest.mark.parametrize("kind", EVERY)
def test_a_run_with_probes_survives_a_kill_at_any_append(kind: str, tmp_path: Path) -> None:
    outcome = Outcome()
    module = "tests.harness.probes.story"
    with Nursery(tmp_path, module=module) as nursery:
        asyncio.run(_Kills(kind, tmp_path, nursery, outcome).all())
    assert outcome.problems == []
    assert outcome.counts["kills"] >= 4
    assert outcome.counts["probed"] >= 1


class _Kills:
    def __init__(self, kind: str, folder: Path, nursery: Nursery, outcome: Outcome) -> None:
        self.kind, self.url, self.folder = kind, url(kind, folder), folder
        self.nursery, self.outcome = nursery, outcome

    def child(self, tenant: str, **told: Any) -> Child:
        effects = str(self.folder / f"{tenant}.effects")
        return self.nursery.bear(url=self.url, tenant=tenant, effects=effects, **told)

    async def all(self) -> None:
        async with connect(self.url) as store, asyncio.timeout(PATIENCE * 4):
            child = self.child("whole")
            await self._answered(store, "whole", lambda: child.alive)
            await child.died()
            appends = child.words.get("appends", 0)
            await self._judged(store, "whole", "unharmed", lost=set())
            points = [(n, after) for n in range(1, appends + 1) for after in (False, True)]
            gate = asyncio.Semaphore(AT_ONCE)

            async def one(number: int, after: bool) -> None:
                async with gate, asyncio.timeout(PATIENCE):
                    await self._killed(store, number, after)

            points = points[:: EVERY[self.kind]]
            await asyncio.gather(*(one(number, after) for number, after in points))

    async def _killed(self, store: Store, call: int, after: bool) -> None:
        tenant = f"t{call}{'a' if after else 'b'}"
        child = self.child(tenant, call=call, after=after)
        await self._answered(store, tenant, lambda: child.alive)
        await child.died()
        self.outcome.counts["kills"] += not child.words
        left = await self._log(store, tenant)
        lost = {id for id, one in fold(left).calls.items() if one.probe == "due"}
        sent = any(event.kind == "message.received" for event in left)
        child = self.child(tenant, send=not sent)
        await self._answered(store, tenant, lambda: child.alive)
        await child.died()
        self.outcome.equal(child.words.get("run"), "done", f"{tenant}: {child.words}")
        await self._judged(store, tenant, tenant, lost)

    async def _answered(self, store: Store, tenant: str, alive: Callable[[], bool]) -> None:
        """Approve payments, and say of mails what the file says."""
        effects = Effects(self.folder / f"{tenant}.effects")
        while alive():
            row = await store.row(place(tenant))
            if row is not None and row.run in ENDED:
                return
            for id, item in list(row.pending.items()) if row is not None else ():
                made = [done for done in effects.all() if done.key == item["call"]]
                how: Any = "answered" if made and item["what"] == "external" else "approved"
                say: dict[str, Any] = {"answer": RESULTS["mail"]} if how == "answered" else {}
                with contextlib.suppress(AlreadyDecided):
                    await settle_pending(store, place(tenant), id, how, actor="ann", **say)
            await asyncio.sleep(LOOK)

    async def _judged(self, store: Store, tenant: str, when: str, lost: set[str]) -> None:
        events, outcome = await self._log(store, tenant), self.outcome
        effects = Effects(self.folder / f"{tenant}.effects").all()
        outcome.equal(said(events), WHOLE, f"{when}: the conversation")
        outcome.equal(illegal(events), None, f"{when}: the prompt")
        outcome.equal(doubled(events), [], f"{when}: twice")
        outcome.equal(sorted(e.tool for e in effects), sorted(RESULTS), f"{when}: effects")
        probed = [e.json() for e in events if e.kind == "tool.probed"]
        outcome.counts["probed"] += len(probed)
        outcome.expect(lost <= {one["call"] for one in probed}, f"{when}: lost, and not probed")
        unknown = [one["call"] for one in probed if one["outcome"] == "unknown"]
        asked = [e.json() for e in events if e.kind == "pending.opened"]
        external = [one["call"] for one in asked if one["what"] == "external"]
        outcome.equal(external, unknown, f"{when}: asked without need")
        approvals = [one for one in asked if one["what"] == "approval"]
        outcome.equal(len(approvals), 1, f"{when}: approvals")
        stored = [
            one for e in events if e.kind == "tool.finished" for one in e.json().get("stored", [])
        ]
        refs = [BlobRef(one["sha256"], one["size"]) for one in stored]
        whole = [(await store.get_blob(place(tenant).scope, ref)).decode() for ref in refs]
        outcome.equal(whole, [REPORT], f"{when}: the stored result")
        for known in (None, agent(Effects(Path("none")))):
            replayed = await replay((store, place(tenant).scope), known)
            outcome.equal(replayed.first, None, f"{when}: replayed with {known}")

    async def _log(self, store: Store, tenant: str) -> list[Event]:
        if await store.row(place(tenant)) is None:
            return []
        return await read_all(store, place(tenant))

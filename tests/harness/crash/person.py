"""The one who answers what waits, from outside; and what has to be so in the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from holdfast import Event, Store
from holdfast.errors import AlreadyDecided
from holdfast.harness.live.decisions import settle_pending

from ...crash.outcome import Outcome
from .scene import ENDED, REASON, RESULTS, WHOLE, Effects, doubled, illegal, place, said

LOOK = 0.02


class Person:
    """Answers what waits, from outside: no harness, only the store. Asked whether something
    happened, it looks."""

    def __init__(self, store: Store, tenant: str, effects: Effects) -> None:
        self._store, self._tenant, self.effects = store, tenant, effects
        self.asked = 0

    async def answer(self, alive: Callable[[], bool]) -> None:
        """Answer as long as the driver lives, or until the run has ended."""
        while alive():
            row = await self._store.row(place(self._tenant))
            if row is not None and row.run in ENDED:
                return
            if row is not None and row.run == "waiting":
                for item in list(row.pending):
                    with contextlib.suppress(AlreadyDecided):  # an abort was faster
                        await self._decide(item, row.pending[item])
            await asyncio.sleep(LOOK)

    async def _decide(self, item: str, about: dict[str, Any]) -> None:
        at, title = place(self._tenant), about.get("title", "")
        if about["what"] == "external":
            self.asked += 1
            tool = next(name for name in RESULTS if f" {name}(" in title)
            if any(done.key == about["call"] for done in self.effects.all()):
                await settle_pending(
                    self._store, at, item, "answered", answer=RESULTS[tool], actor="ann"
                )
            else:
                await settle_pending(self._store, at, item, "approved", actor="ann")
        elif title.startswith("refund"):
            await settle_pending(self._store, at, item, "approved", actor="ann")
        else:
            await settle_pending(self._store, at, item, "denied", actor="ann", reason=REASON)


def judge(outcome: Outcome, when: str, events: list[Event], person: Person) -> None:
    done = person.effects.all()
    outcome.equal(said(events), WHOLE, f"{when}: the conversation")
    outcome.equal(illegal(events), None, f"{when}: the prompt")
    outcome.equal(doubled(events), [], f"{when}: twice")
    outcome.equal(sorted(e.tool for e in done), sorted(RESULTS), f"{when}: effects")
    kinds = [event.kind for event in events]
    outcome.equal(kinds.count("run.started"), 1, f"{when}: runs")
    outcome.equal(kinds.count("run.finished"), 1, f"{when}: ends")
    keys = {e.json()["key"] for e in events if e.kind == "tool.started"}
    outcome.equal({e.key for e in done}, keys, f"{when}: keys of effects")

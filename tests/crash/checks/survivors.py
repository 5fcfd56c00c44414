"""A process that has the store open all along goes on rightly after another one died in the
middle of a change: it finishes the change or takes it back, and never writes to what is gone."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from holdfast import Key, NewEvent, SessionNotFound

from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import open_at
from ..scene import Scene, plant
from ..world import verified


def survivors(kind: str, folder: Path, *, count: int | None, tick: Tick = quiet) -> Outcome:
    """Cut a delete at `count` of its steps, or at every one, while another process has just
    appended to the same session and goes on to append to it."""
    outcome = Outcome()
    told = {"kind": kind, "do": "delete", "opening": False, "half": False}
    with asyncio.Runner() as runner, Child("cutter", patience=1_800) as cutter:
        place = _fresh(folder, "whole")
        runner.run(_plant(kind, place))
        whole = _ask(cutter, {**told, "folder": str(place), "step": 0})
        steps = list(range(1, len(whole["steps"]) + 1))
        if count is not None and count < len(steps):
            steps = sorted(random.sample(steps, count))
        for number, step in enumerate(steps):
            tick(number, len(steps))
            place = _fresh(folder, str(step))
            name = f"delete cut before step {step} ({whole['steps'][step - 1]})"
            ask = {**told, "folder": str(place), "step": step}
            runner.run(_survive(kind, place, cutter, ask, name, outcome))
            outcome.counts["cuts"] += 1
    return outcome


def _fresh(folder: Path, name: str) -> Path:
    # The scene of a store is in the folder above it.
    place = folder / name / "store"
    place.mkdir(parents=True)
    return place


def _ask(cutter: Child, told: dict[str, Any]) -> dict[str, Any]:
    cutter.tell(told)
    return cutter.hear()


async def _plant(kind: str, place: Path) -> Scene:
    store = await open_at(kind, place, durability="process")
    scene = await plant(store)
    await store.aclose()
    scene.save(place.parent)
    return scene


async def _survive(
    kind: str, place: Path, cutter: Child, told: dict[str, Any], name: str, outcome: Outcome
) -> None:
    scene = await _plant(kind, place)
    store = await open_at(kind, place, durability="process")
    keys = [scene.main, scene.side, scene.far]
    heads = {key: await _append(store, key, "before") for key in keys}
    done = await asyncio.to_thread(_ask, cutter, told)
    outcome.counts["came to their end"] += not done["killed"]
    accepted = {}
    for key in keys:
        try:
            accepted[key] = await _append(store, key, "after")
        except SessionNotFound:
            outcome.counts["refused"] += 1
    outcome.counts["accepted"] += len(accepted)
    for key, head in accepted.items():
        outcome.equal(head, heads[key] + 1, f"{name}: the next number of {key.thread}")
        try:
            ids = [event.id async for event in store.read(key, after=head - 1)]
        except SessionNotFound:
            ids = []
        outcome.equal(ids, [f"after {key.thread}"], f"{name}: what was accepted on {key.thread}")
    outcome.expect(len(accepted) in (0, len(keys)), f"{name}: only {accepted} is left")
    await verified(store, outcome, name)
    await store.aclose()


async def _append(store: Any, key: Key, word: str) -> int:
    event = NewEvent.of("note.made", id=f"{word} {key.thread}")
    return int((await store.append(key, [event])).head)

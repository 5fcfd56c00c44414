"""A lease that is acquired or released with an append is there if and only if its events are, also
for a process that had the store open when the other one died."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Store

from ..children import Child
from ..outcome import Outcome
from ..places import copy, open_at
from ..scene import OPS, Scene, driver_of, plant
from ..world import verified

OPERATIONS = ("append_and_acquire", "append_and_release")

Seen = tuple[str | None, list[str]]  # who drives, and the ids of the events


def leases(kind: str, folder: Path) -> Outcome:
    """Cut each operation at every step; then ask a process that has the store open."""
    outcome = Outcome()
    template = folder / "template"
    template.mkdir()
    with asyncio.Runner() as runner, Child("cutter", patience=600) as cutter:
        scene = runner.run(_planted(kind, template))
        for do in OPERATIONS:
            work = copy(template, folder / "work")
            before, after = runner.run(_states(kind, work, scene, do))
            step, killed = 0, True
            while killed:
                step += 1
                work = copy(template, folder / "work")
                name = f"{do} cut before step {step}"
                told = {"kind": kind, "do": do, "opening": False, "half": False}
                told |= {"folder": str(work), "step": step}
                seen, killed = runner.run(_survived(kind, work, scene, cutter, told))
                outcome.expect(seen in (before, after), f"{name}: {seen}")
                outcome.expect(killed or seen == after, f"{name}: it is not done")
                outcome.counts["cuts"] += 1
                outcome.counts["carried out"] += seen == after
                runner.run(_opened_again(kind, work, scene, do, seen, outcome, name))
    return outcome


async def _planted(kind: str, folder: Path) -> Scene:
    store = await open_at(kind, folder)
    scene = await plant(store)
    await store.aclose()
    scene.save(folder.parent)
    return scene


async def _states(kind: str, work: Path, scene: Scene, do: str) -> tuple[Seen, Seen]:
    store = await open_at(kind, work)
    before = await _look(store, scene, do)
    await OPS[do](store, scene)
    after = await _look(store, scene, do)
    await store.aclose()
    return before, after


async def _look(store: Store, scene: Scene, do: str) -> Seen:
    key = scene.child if do == "append_and_acquire" else scene.main
    # The lease first: to ask for it must be enough to learn of what the other process did.
    driver = await driver_of(store, key)
    return driver, [event.id async for event in store.read(key)]


async def _survived(
    kind: str, work: Path, scene: Scene, cutter: Child, told: dict[str, object]
) -> tuple[Seen, bool]:
    store = await open_at(kind, work)
    await _look(store, scene, str(told["do"]))
    cutter.tell(told)
    done = await asyncio.to_thread(cutter.hear)
    seen = await _look(store, scene, str(told["do"]))
    await store.aclose()
    return seen, done["killed"]


async def _opened_again(
    kind: str, work: Path, scene: Scene, do: str, seen: Seen, outcome: Outcome, name: str
) -> None:
    store = await open_at(kind, work)
    outcome.equal(await _look(store, scene, do), seen, f"{name}, opened again")
    await verified(store, outcome, name)
    await store.aclose()

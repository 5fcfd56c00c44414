"""An operation that is cut at any step was carried out or was not, and the next one, or a
purge, finishes it: nothing is lost, nothing comes back, nothing is left in the raw files."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import SessionExists, Store
from holdfast.stores.rules import RESTORE_MS

from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import copy, drop_index, holding, open_at
from ..scene import BYSTANDERS, OPS, Scene, durable, plant, view
from ..world import verified

# What must be gone from the raw files once the operation is done and the store was purged.
GONE = {
    "delete": ("shared", "own", "erased", "far", "session"),
    "delete_main": ("own", "erased"),
    "delete_far": ("far",),
    "erase": ("erased",),
}


class Setting(NamedTuple):
    """A store to copy for each cut, and what it shows before and after the operation."""

    kind: str
    do: str
    template: Path
    scene: Scene
    before: dict[str, Any]
    after: dict[str, Any]
    beside: list[dict[str, Any]]


def cuts(kind: str, folder: Path, do: str, *, count: int | None, tick: Tick = quiet) -> Outcome:
    """Cut the operation `do` at `count` of its steps, or at every one."""
    outcome = Outcome()
    template = folder / "template"
    template.mkdir(parents=True)
    setting = asyncio.run(_prepare(kind, do, template))
    with Child("cutter", patience=1_800) as cutter:
        told = {"kind": kind, "do": do, "opening": False, "half": False, "step": 0}
        work = copy(template, folder / "work")
        whole = _ask(cutter, {**told, "folder": str(work)})
        if "error" in whole:
            outcome.problems.append(f"{do} fails uncut: {whole['error']}")
            return outcome
        places = list(_places(whole["steps"]))
        if count is not None and count < len(places):
            places = sorted(random.sample(places, count))
        for number, (step, half) in enumerate(places):
            tick(number, len(places))
            work = copy(template, folder / "work")
            done = _ask(cutter, {**told, "folder": str(work), "step": step, "half": half})
            name = f"{do} cut {'in' if half else 'before'} step {step} ({whole['steps'][step - 1]})"
            # A run may have fewer steps than the first, by a folder that is there already.
            outcome.counts["came to their end"] += not done["killed"]
            asyncio.run(_judge(setting, work, name, outcome))
            outcome.counts["cuts"] += 1
    return outcome


def _places(steps: Sequence[str]) -> Iterable[tuple[int, bool]]:
    for number, step in enumerate(steps, 1):
        yield number, False
        if step in ("pwrite", "write"):
            yield number, True


def _ask(cutter: Child, told: dict[str, Any]) -> dict[str, Any]:
    cutter.tell(told)
    return cutter.hear()


async def _prepare(kind: str, do: str, template: Path) -> Setting:
    store = await open_at(kind, template)
    scene = await plant(store)
    await store.aclose()
    scene.save(template.parent)
    with tempfile.TemporaryDirectory() as other:
        store = await open_at(kind, copy(template, Path(other) / "copy"))
        before = await _seen(store, scene)
        beside = [await view(store, scope, scene) for scope in BYSTANDERS]
        await OPS[do](store, scene)
        after = await _seen(store, scene)
        await store.aclose()
    return Setting(kind, do, template, scene, before, after, beside)


async def _seen(store: Store, scene: Scene) -> dict[str, Any]:
    seen = await view(store, scene.doomed, scene)
    if restored := await view(store, scene.restored.scope, scene):
        seen["restored"] = restored
    return seen


async def _judge(setting: Setting, work: Path, name: str, outcome: Outcome) -> None:
    store = await open_at(setting.kind, work)
    at_once = await _look(setting, store, f"{name}, at once", outcome)
    await verified(store, outcome, name)
    seen = await _look(setting, store, name, outcome)
    outcome.expect(seen in (at_once, setting.after), f"{name}: it went back from done to not done")
    await store.aclose()
    if seen == setting.after:
        outcome.counts["carried out"] += 1
    # The next purge alone finishes what was begun …
    alone = copy(work, work.parent / "alone")
    await _purged(setting, alone, f"{name}, then purged", outcome, done=seen == setting.after)
    # … and so does the same operation again.
    store = await open_at(setting.kind, work)
    try:
        await OPS[setting.do](store, setting.scene)
    except SessionExists:
        outcome.equal(setting.do, "restore", f"{name}: who may find it done already")
    again = await _look(setting, store, f"{name}, then done again", outcome)
    outcome.expect(again == setting.after, f"{name}: a second time does not finish it")
    await store.aclose()
    await _purged(setting, work, f"{name}, done again and purged", outcome, done=True)


async def _look(
    setting: Setting, store: Store, name: str, outcome: Outcome, *, index: bool = True
) -> dict[str, Any]:
    """What is seen; which must be the session before or after, and the others as ever."""
    pick = dict if index else durable
    seen = await _seen(store, setting.scene)
    for state in (setting.before, setting.after):
        kept = state.get("snapshots", {})
        if _but_snapshots(seen) == _but_snapshots(state) and (
            seen.get("snapshots", {}).items() <= kept.items()
        ):
            seen = state  # any snapshot may be gone
    if pick(seen) not in (pick(setting.before), pick(setting.after)):
        outcome.problems.append(f"{name}: neither before nor after: {_apart(seen, setting)}")
    for scope, wanted in zip(BYSTANDERS, setting.beside, strict=True):
        found = await view(store, scope, setting.scene)
        outcome.expect(pick(found) == pick(wanted), f"{name}: it changed {scope}")
    return seen


def _but_snapshots(seen: dict[str, Any]) -> dict[str, Any]:
    return {part: found for part, found in seen.items() if part != "snapshots"}


def _apart(seen: dict[str, Any], setting: Setting) -> str:
    return " | ".join(
        f"not as {word}: "
        + ", ".join(part for part in {**seen, **state} if seen.get(part) != state.get(part))
        for word, state in (("before", setting.before), ("after", setting.after))
    )


async def _purged(setting: Setting, work: Path, name: str, outcome: Outcome, *, done: bool) -> None:
    """A purge leaves nothing that was removed, also for those who lose their index later; what
    a cut restore left counts as removed once nobody can be busy with it any more."""
    store = await open_at(setting.kind, work, later=2 * RESTORE_MS)
    await store.purge()
    await store.aclose()
    marks = GONE.get(setting.do, ()) if done else ()
    if setting.do == "restore" and not done:
        marks = ("restored",)
    for mark in marks:
        left = holding(work, getattr(setting.scene.marks, mark))
        outcome.expect(not left, f"{name}: {mark} is still in {left}")
    store = await open_at(setting.kind, work)
    await _look(setting, store, name, outcome)
    await store.aclose()
    if setting.kind == "file":
        drop_index(work)
        store = await open_at(setting.kind, work)
        seen = await _look(setting, store, f"{name}, index lost", outcome, index=False)
        wanted = setting.after if done else setting.before
        outcome.expect(
            durable(seen) == durable(wanted), f"{name}: the lost index brought something back"
        )
        await verified(store, outcome, f"{name}, index lost")
        await store.aclose()


def opening_cuts(kind: str, folder: Path, *, count: int | None, tick: Tick = quiet) -> Outcome:
    """Cut the making of a new store at `count` of its steps, or at every one: it opens all the
    same."""
    outcome = Outcome()
    with Child("cutter", patience=600) as cutter:
        told = {"kind": kind, "do": "", "opening": True, "half": False, "step": 0}
        whole = _ask(cutter, {**told, "folder": str(_fresh(folder))})
        places = list(_places(whole["steps"]))
        if count is not None and count < len(places):
            places = sorted(random.sample(places, count))
        for number, (step, half) in enumerate(places):
            tick(number, len(places))
            work = _fresh(folder)
            done = _ask(cutter, {**told, "folder": str(work), "step": step, "half": half})
            name = f"opening cut at step {step} ({whole['steps'][step - 1]})"
            outcome.counts["came to their end"] += not done["killed"]
            try:
                asyncio.run(_open_and_plant(kind, work, name, outcome))
            except Exception as error:
                outcome.problems.append(f"{name}: {error!r}")
            outcome.counts["cuts"] += 1
    return outcome


def _fresh(folder: Path) -> Path:
    work = Path(tempfile.mkdtemp(dir=folder)) / "work"
    work.mkdir()
    return work


async def _open_and_plant(kind: str, work: Path, name: str, outcome: Outcome) -> None:
    store = await open_at(kind, work)
    await plant(store)
    await verified(store, outcome, name)
    await store.aclose()

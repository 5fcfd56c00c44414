"""At `durability=machine` what was acknowledged is on the disk, names and all.

With strace every system call is seen: that each log is fsynced between a write and its
acknowledgement, and, played on a model of a disk, that a power cut at any moment leaves all that
was acknowledged. Without strace `audited` shows less: the calls that the file store makes from
Python, and for SQLite only that the writer's connection is set to sync each commit.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import PLACES, open_at, url
from ..trace import Call, Disk, calls, said, strace
from ..world import Op, World, after, carry_on, settle, verified

# The log of each kind of store: what must be fsynced before anything is acknowledged.
LOGS = {"sqlite": "-wal", "file": ".jsonl"}


def _trace(kind: str, folder: Path, operations: int) -> Path:
    output = folder / "trace.txt"
    place = folder / "traced"
    place.mkdir()
    arguments = (url(kind, place), str(random.random()), str(operations))
    with Child("traced", *arguments, under=strace(output), patience=1_800) as child:
        child.finish()
    return output


def fsyncs(kind: str, folder: Path, *, operations: int) -> Outcome:
    """Between each write to a log and its acknowledgement stands an fsync of that log, and
    between the making of a file and the next acknowledgement one of its folder. A purge writes
    nothing that was not there: SQLite empties a log whose content is safe elsewhere."""
    outcome = Outcome()
    disk = Disk(folder / "traced")
    do = ""
    for call in calls(_trace(kind, folder, operations)):
        for line in said(call):
            if "done" not in line:
                do = line["op"]["do"]
                continue
            outcome.counts["acknowledgements"] += 1
            unsafe = [] if do == "purge" else disk.unsafe(LOGS[kind])
            outcome.expect(not unsafe, f"{unsafe} when {line} was acknowledged")
            if kind == "sqlite":
                lost = [name for name in disk.unsafe(PLACES[kind]) if "its name" in name]
                outcome.expect(not lost, f"{lost} when {line} was acknowledged")
        outcome.counts["writes to a log"] += _about(call, "write", LOGS[kind])
        outcome.counts["fsyncs of a log"] += _about(call, "sync", LOGS[kind])
        disk.play(call)
    outcome.equal(outcome.counts["acknowledgements"], operations, "acknowledgements")
    outcome.expect(outcome.counts["fsyncs of a log"], "no log was fsynced at all")
    return outcome


def _about(call: Call, what: str, suffix: str) -> bool:
    return what in call.name and call.paths[0].endswith(suffix) and not call.began


def power_cuts(
    kind: str, folder: Path, *, operations: int, count: int, tick: Tick = quiet
) -> Outcome:
    """Cut the power at `count` moments of a trace: every other time the disk keeps only what
    was fsynced, otherwise also some of the rest."""
    outcome = Outcome()
    rng = random.Random()
    trace = list(calls(_trace(kind, folder, operations)))
    total = len(trace)
    moments = set(rng.sample(range(total), min(total, count - 1))) | {total - 1}
    disk = Disk(folder / "traced")
    for number, (at, state) in enumerate(_states(trace, disk, moments)):
        tick(number, len(moments))
        some = rng if number % 2 else None
        disk.cut(folder / "cut", some)
        when = f"power cut at call {at} ({'some' if some else 'nothing'} of the rest kept)"
        asyncio.run(judge(kind, folder / "cut", *state, outcome, when))
        outcome.counts["power cuts"] += 1
        if len(outcome.problems) > 20:
            break
    return outcome


def _states(
    trace: Sequence[Call], disk: Disk, moments: set[int]
) -> Iterator[tuple[int, tuple[World, list[Op]]]]:
    """The moments to cut at, each with what was acknowledged and what was under way."""
    world: World = {}
    under_way: list[Op] = []
    for at, call in enumerate(trace):
        disk.play(call)
        for line in said(call):
            if "op" in line:
                under_way = [msgspec.convert(line["op"], Op)]
            elif "done" in line:
                (op,) = under_way
                world[op.session] = after(world, op)
                under_way = []
        if at in moments:
            yield at, (world, under_way)


async def judge(
    kind: str, folder: Path, world: World, under_way: list[Op], outcome: Outcome, when: str
) -> None:
    """Open what a cut left: each session is as it was acknowledged, or as the operation under
    way leaves it, nothing is damaged, and every thread goes on."""
    model = {name: session for name, session in world.items() if session.threads}
    try:
        store = await open_at(kind, folder, durability="process")
    except Exception as error:
        outcome.problems.append(f"{when}: does not open: {error!r}")
        return
    try:
        await settle(store, model, under_way, outcome, when)
        await verified(store, outcome, when)
        await carry_on(store, model, "on", outcome)
    except Exception as error:
        outcome.problems.append(f"{when}: {error!r}")
    finally:
        await store.aclose()


def audited(kind: str, folder: Path, *, operations: int) -> Outcome:
    """Without strace: what the worker itself saw of its calls."""
    outcome = Outcome()
    with Child("audited", kind, str(folder), str(operations)) as child:
        report: dict[str, Any] = child.hear()
        child.finish()
    outcome.counts["acknowledgements"] = report["acknowledged"]
    outcome.equal(report["acknowledged"], operations, "acknowledgements")
    outcome.equal(report["unsafe"], [], "logs or folders not fsynced when acknowledged")
    if kind == "sqlite":
        outcome.equal(report["synchronous"], 2, "PRAGMA synchronous of the writer (FULL)")
        outcome.equal(report["journal"], "wal", "PRAGMA journal_mode of the writer")
    else:
        outcome.counts["fsyncs of a log"] = report["fsyncs"]
        outcome.expect(report["fsyncs"], "no log was fsynced at all")
    return outcome

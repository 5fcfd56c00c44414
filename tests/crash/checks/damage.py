"""A record in the middle of a file that somebody damaged, at every byte: every other record loads,
the damage is reported where it is, and `verify(repair=True)` mends it. Opening never fails, and no
other session is touched."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from holdfast import Damage, Event, Key, LogDamaged, NewEvent, Query, Store, key

from ..outcome import Outcome, Tick, quiet
from ..places import copy, drop_index, open_at

EVENTS = 9
MIDDLE = 5
LARGE = 7  # the event whose data is kept apart
HURT, OTHER = key("hurt"), key("other")


class Wound(NamedTuple):
    """What was done to the file, and the number of the event that it hurt."""

    name: str
    text: bytes
    seq: int


class Scene(NamedTuple):
    template: Path
    hurt: Path
    apart: Path
    lines: list[bytes]
    events: list[Event]
    others: list[Event]


def small(n: int) -> NewEvent:
    return NewEvent.of("note.made", {"n": n, "text": "grüße 👋"}, id=f"id{n}", actor="ann")


async def _prepare(folder: Path) -> Scene:
    template = folder / "template"
    template.mkdir()
    store = await open_at("file", template, durability="process")
    for log in (HURT, OTHER):
        await store.append(log, [small(1), small(2)], create=True)
        for n in range(3, EVENTS + 1):
            text = "x" * (70_000 if n == LARGE else 1)
            event = NewEvent.of("note.made", {"n": n, "t": text}, id=f"id{n}")
            await store.append(log, [event])
    events, others = await _all(store, HURT), await _all(store, OTHER)
    row = await store.row(HURT)
    await store.aclose()
    assert row is not None
    (hurt,) = template.rglob(f"{row.log}.jsonl")
    (apart,) = template.rglob(f"{row.log}.apart")
    return Scene(
        template, hurt, apart / f"{LARGE}.json", hurt.read_bytes().splitlines(True), events, others
    )


async def _all(store: Store, log: Key) -> list[Event]:
    return [event async for event in store.read(log)]


async def _readable(store: Store, log: Key) -> tuple[list[Event], list[int]]:
    """The events that can be read, and the numbers that cannot: reading goes on behind them."""
    events: list[Event] = []
    bad: list[int] = []
    after = 0
    while True:
        try:
            async for event in store.read(log, after=after):
                events.append(event)
            return events, bad
        except LogDamaged as damage:
            bad.append(damage.seq)
            after = damage.seq


# Corruption


def corruptions(folder: Path, *, count: int | None, tick: Tick = quiet) -> Outcome:
    """Damage a record in the middle in `count` ways, or in each: every byte flipped, the line
    end destroyed, ranges zeroed, torn out or doubled, data kept apart damaged or gone."""
    outcome = Outcome()
    scene = asyncio.run(_prepare(folder))
    wounds = list(_wounds(scene.lines))
    if count is not None and count < len(wounds):
        flips = [wound for wound in wounds if wound.name.startswith("flip")]
        others = [wound for wound in wounds if not wound.name.startswith("flip")]
        wounds = others + random.sample(flips, max(0, count - len(others)))
    for number, wound in enumerate(wounds):
        tick(number, len(wounds))
        for index in (True, False):
            hurt = _copied(scene, folder / "work")
            hurt.write_bytes(wound.text)
            name = f"{wound.name}, index {'kept' if index else 'lost'}"
            asyncio.run(_corrupted(scene, folder / "work", wound.seq, index, name, outcome))
    for name, hurt_apart in APART.items():
        for index in (True, False):
            _copied(scene, folder / "work")
            hurt_apart(folder / "work" / scene.apart.relative_to(scene.template))
            name_ = f"{name}, index {'kept' if index else 'lost'}"
            asyncio.run(_corrupted(scene, folder / "work", LARGE, index, name_, outcome))
    return outcome


def _wounds(lines: list[bytes]) -> Iterable[Wound]:
    """Line 0 is the header, line n event n."""
    line = lines[MIDDLE]

    def with_(*middle: bytes) -> bytes:
        return b"".join([*lines[:MIDDLE], *middle, *lines[MIDDLE + 1 :]])

    yield Wound("line end made a letter", with_(line[:-1] + b"x"), MIDDLE)
    yield Wound("line end made a blank", with_(line[:-1] + b" "), MIDDLE)
    yield Wound("line end torn out", with_(line[:-1]), MIDDLE)
    yield Wound("line emptied", with_(b"\n"), MIDDLE)
    yield Wound("line zeroed", with_(bytes(len(line) - 1) + b"\n"), MIDDLE)
    yield Wound("line zeroed with its end", with_(bytes(len(line))), MIDDLE)
    yield Wound("line torn out", with_(), MIDDLE)
    yield Wound("line broken in two", with_(line[:40] + b"\n" + line[40:]), MIDDLE)
    yield Wound("line replaced by another", with_(lines[MIDDLE - 1]), MIDDLE)
    for start in range(0, len(line) - 9, 16):
        text = line[:start] + bytes(8) + line[start + 8 :]
        yield Wound(f"bytes {start} to {start + 8} zeroed", with_(text), MIDDLE)
    for at in range(len(line) - 1):
        flipped = bytes([line[at] ^ random.choice([1, 2, 4, 8, 16, 32, 64, 128])])
        yield Wound(f"flip of byte {at}", with_(line[:at] + flipped + line[at + 1 :]), MIDDLE)


APART: dict[str, Callable[[Path], object]] = {
    "data kept apart is gone": lambda path: path.unlink(),
    "data kept apart is cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "data kept apart is changed": lambda path: path.write_bytes(
        b"y".join(path.read_bytes().split(b"x", 1))
    ),
}


async def _corrupted(
    scene: Scene, work: Path, seq: int, index: bool, name: str, outcome: Outcome
) -> None:
    outcome.counts["corruptions"] += 1
    if not index:
        drop_index(work)
    wanted = [event for event in scene.events if event.seq != seq]
    store = await open_at("file", work, durability="process")
    events, bad = await _readable(store, HURT)
    outcome.equal(events, wanted, f"{name}: what is read")
    outcome.equal(bad, [seq], f"{name}: what cannot be read")
    found = await _damages(store)
    outcome.expect(
        any((damage.key, damage.seq) == (HURT, seq) for damage in found),
        f"{name}: verify does not tell of event {seq}: {found}",
    )
    _only(found, [seq], name, outcome)
    outcome.equal(await _all(store, OTHER), scene.others, f"{name}: the other session")
    await _damages(store, repair=True)
    mended = await _all(store, HURT)
    outcome.equal([e for e in mended if e.seq != seq], wanted, f"{name}: what is read, repaired")
    outcome.equal([e.seq for e in mended], list(range(1, EVENTS + 1)), f"{name}: numbers")
    erased = [event.json() for event in mended if event.seq == seq]
    outcome.equal(erased, [{"erased": "damaged"}], f"{name}: what stands for the lost one")
    outcome.expect(not _unrepaired(await _damages(store)), f"{name}: not repaired")
    done = await store.append(HURT, [small(99)])
    outcome.equal(done.seqs, (EVENTS + 1,), f"{name}: the next append")
    await store.aclose()


def erasing_beside(folder: Path) -> Outcome:
    """A damaged event does not keep another one from being erased."""
    outcome = Outcome()
    scene = asyncio.run(_prepare(folder))
    line = scene.lines[MIDDLE]
    hurt = _copied(scene, folder / "work")
    hurt.write_bytes(hurt.read_bytes().replace(line, b"x" * (len(line) - 1) + b"\n"))

    async def check() -> None:
        store = await open_at("file", folder / "work", durability="process")
        await store.erase(HURT, [2], reason="asked")
        events, bad = await _readable(store, HURT)
        outcome.equal(bad, [MIDDLE], "what cannot be read")
        outcome.equal(events[1].json(), {"erased": "asked"}, "the erased event")
        outcome.equal(events[2:], scene.events[2:4] + scene.events[5:], "the others")
        outcome.counts["events erased"] += 1
        await store.aclose()

    asyncio.run(check())
    return outcome


# The first line


def headers(folder: Path, *, every: int = 1, tick: Tick = quiet) -> Outcome:
    """Flip every byte of a file's first line, or every `every`-th: the damage is reported, no
    session appears that never was, and nobody else is hurt."""
    outcome = Outcome()
    scene = asyncio.run(_prepare(folder))
    header = scene.lines[0]
    places = range(0, len(header) - 1, every)
    for number, at in enumerate(places):
        tick(number, len(places))
        flipped = bytes([header[at] ^ random.choice([1, 2, 4, 8, 16, 32, 64, 128])])
        for index in (True, False):
            hurt = _copied(scene, folder / "work")
            text = header[:at] + flipped + header[at + 1 :] + b"".join(scene.lines[1:])
            hurt.write_bytes(text)
            name = f"flip of byte {at} of the first line, index {'kept' if index else 'lost'}"
            asyncio.run(_headless(scene, folder / "work", hurt, index, name, outcome))
            outcome.counts["headers"] += 1
    return outcome


async def _headless(
    scene: Scene, work: Path, hurt: Path, index: bool, name: str, outcome: Outcome
) -> None:
    if not index:
        drop_index(work)
    store = await open_at("file", work, durability="process")
    outcome.equal(await _all(store, OTHER), scene.others, f"{name}: the other session")
    for tenant in (HURT.tenant, *{_near(HURT.tenant, n) for n in range(8)}):
        rows = (await store.find(Query(tenant=tenant))).items
        known = {HURT.session, OTHER.session} if tenant == HURT.tenant else set()
        outcome.expect({row.session for row in rows} <= known, f"{name}: nobody made {rows}")
    found = await _damages(store)
    told = any(damage.key == HURT or hurt.name in damage.detail for damage in found)
    outcome.expect(told, f"{name}: verify does not tell: {found}")
    if index:
        outcome.equal(await _all(store, HURT), scene.events, f"{name}: what is read")
    await store.aclose()


def _near(text: str, bit: int) -> str:
    """A name that one flipped bit makes of another."""
    return chr(ord(text[0]) ^ (1 << bit) & 0x7F) + text[1:]


# Helpers


def _copied(scene: Scene, work: Path) -> Path:
    copy(scene.template, work)
    return work / scene.hurt.relative_to(scene.template)


async def _damages(store: Store, *, repair: bool = False) -> list[Damage]:
    return [damage async for damage in store.verify(repair=repair)]


def _unrepaired(found: list[Damage]) -> list[Damage]:
    return [damage for damage in found if not damage.repaired]


def _only(found: list[Damage], seqs: list[int], name: str, outcome: Outcome) -> None:
    """Nothing but these events is reported of any log."""
    wrong = [d for d in found if d.key is not None and (d.key != HURT or d.seq not in seqs)]
    outcome.expect(not wrong, f"{name}: verify also reports {wrong}")

"""What must be so of the log of a session, whatever was done to it, and by how many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from holdfast import Event
from holdfast.log.state import fold
from holdfast.state import State

from ...crash.scene import illegal
from ...properties.test_cuts import paired

Told = list[dict[str, Any]]
TAKING = ("run.started", "model.called", "queue.changed")


def events_of(log: str) -> list[Event]:
    return msgspec.json.decode(log, type=list[Event])


def broken(events: list[Event], told: Told) -> list[str]:
    """Every promise that this log breaks to those who were told so."""
    state = fold(events)
    return [
        *_numbered(events),
        *_readable(events),
        *_kept(events, state, told),
        *_decided(events, told),
        *_allowed(events),
        *_written(events, state, told),
    ]


def _numbered(events: list[Event]) -> list[str]:
    ids = Counter(event.id for event in events)
    found = [f"{id} is there {times} times" for id, times in ids.items() if times > 1]
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        found.append("the numbers are not dense")
    return found


def _readable(events: list[Event]) -> list[str]:
    paired(events)
    problem = illegal(events)
    return [] if problem is None else [f"a model would refuse it: {problem}"]


def _kept(events: list[Event], state: State, told: Told) -> list[str]:
    """What was accepted is in the log once, and is taken up once, or waits, or was removed."""
    came = {event.seq: event.json()["text"] for event in events if event.kind == "message.received"}
    taken: dict[int, list[str]] = {seq: [] for seq in came}
    for event in events:
        data = event.json() if event.kind in TAKING else {}
        for seq in (*data.get("inputs", ()), *data.get("remove", ())):
            taken[seq].append(f"{event.seq} {event.kind}")
    for queued in state.queue:
        taken[queued.seq].append("the queue")
    found = [f"message {seq} is at {where}" for seq, where in taken.items() if len(where) != 1]
    for one in told:
        if "seq" in one and came.get(one["seq"]) != one["said"]:
            found.append(f"message {one['seq']} is {came.get(one['seq'])!r}, not {one['said']!r}")
    return found


def _decided(events: list[Event], told: Told) -> list[str]:
    """Each item is decided once, as the one was told who decided."""
    settled = [event for event in events if event.kind == "pending.settled"]
    times = Counter(event.json()["id"] for event in settled)
    found = [f"item {id} was settled {n} times" for id, n in times.items() if n > 1]
    made = {event.json()["id"]: (event.json()["outcome"], event.actor) for event in settled}
    for one in told:
        if "item" in one and made.get(one["item"]) != (one["outcome"], one["by"]):
            found.append(f"item {one['item']} is {made.get(one['item'])}, and not {one}")
    return found


def _allowed(events: list[Event]) -> list[str]:
    """Nothing began that a rule or a person forbade by then."""
    found, denied, yes = [], False, set[str]()
    for event in events:
        data = event.json()
        if event.kind == "permission.changed":
            denied = data["tools"]["fine"] == "deny"
        elif event.kind == "pending.settled" and data["outcome"] == "approved":
            yes.add(data["id"])
        elif event.kind == "tool.started":
            name = data["name"]
            unasked = name == "pay" and data.get("by") not in yes
            if unasked or name == "never" or (name == "fine" and denied):
                found.append(f"{event.seq}: {name} began against what was said")
    return found


def _written(events: list[Event], state: State, told: Told) -> list[str]:
    """Every change that somebody was told of is in what they add up to."""
    counts = [one["counted"] for one in told if "counted" in one]
    found = []
    if sorted(counts) != list(range(1, len(counts) + 1)) or state.data["n"] != len(counts):
        found.append(f"counted {counts}, and it is {state.data['n']}")
    values = {one["set"][1] for one in told if "set" in one}
    if lost := [value for value in state.settings.values() if value not in values]:
        found.append(f"settings that nobody made: {lost}")
    names = {one["set"][0] for one in told if "set" in one}
    if names != {*state.settings}:
        found.append(f"settings {names}, and there are {[*state.settings]}")
    return found

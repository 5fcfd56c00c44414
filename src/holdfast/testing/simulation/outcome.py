"""The outcome of a simulation, which the judges check."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

from msgspec import Struct

from ...harness import Tool
from ...log.catalog import Row
from ...log.codec import typed
from ...log.events import Event, Key
from .effects import Effect
from .faults import Strike
from .scenario import Scenario


class Told(Struct):
    """The reply to a user for one action."""

    action: str
    session: str
    tag: str
    at: float
    status: str  # a result's status, "accepted", "lost", or the code of an error
    seq: int = 0
    item: str = ""
    run: str = ""


class ReaderView(Struct):
    """The events that one reader received while it followed a log."""

    session: str
    after: int
    log: str
    seqs: list[int]


class SimulationOutcome(Struct, dict=True):
    """The outcome of a simulation: the logs, the effects, and the replies to users."""

    scenario: Scenario
    logs: dict[Key, list[Event]]
    rows: dict[Key, Row]
    effects: list[Effect]
    told: list[Told]
    readings: list[ReaderView]
    faults: Counter[str]
    checks: Counter[str]
    problems: list[str]
    deleted: list[str]  # sessions (`s0`) and threads (`s0/t1`) that users deleted
    strikes: list[Strike]
    texts: dict[tuple[Key, str], str]  # text streamed to the store, by log and message
    drafts: dict[Key, list[str]]  # messages whose drafts remain
    tools: list[Tool]  # of the agents
    seconds: float  # of virtual time
    calls: int  # of the store
    versions: dict[str, str] = {}  # the version of the agent that each process served

    @property
    def events(self) -> int:
        return sum(len(log) for log in self.logs.values())

    def was_deleted(self, effect: Effect) -> bool:
        """Return whether users deleted the thread in which an effect happened (even if it was
        created again later), or whether the thread is missing from a session whose threads users
        deleted."""
        if f"{effect.session}/{effect.thread}" in self.deleted:
            return True
        there = any(k.session == effect.session and k.thread == effect.thread for k in self.logs)
        return not there and any(name.startswith(f"{effect.session}/") for name in self.deleted)

    @cached_property
    def payloads(self) -> dict[Key, list[tuple[Event, Any]]]:
        """The events of each log with their payloads. The payload of an unknown kind is None."""
        return {key: [(e, typed(e)) for e in log] for key, log in self.logs.items()}

    @cached_property
    def whole(self) -> dict[Key, list[tuple[Event, Any]]]:
        """The logs that start with event 1, with payloads. Logs of deleted sessions and of copies
        are omitted.
        """
        steps = self.scenario.steps
        copies = {f"{step.session}-{step.tag}" for step in steps if step.action == "copy"}
        gone = {*self.deleted, *copies}
        logs = self.payloads.items()
        return {k: log for k, log in logs if log and log[0][0].seq == 1 and k.session not in gone}

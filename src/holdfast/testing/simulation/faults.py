"""The faults of a scenario (what fails, when and in which process), and the faults that are active
now.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal

from msgspec import Struct

from .loop import Scheduler

Kind = Literal[
    "crash", "pause", "restart", "lost_reply", "lost_request", "lost_process", "outage", "cut",
    "slow", "notices", "clock", "server_clock", "model_stall", "model_error", "model_limit",
    "model_cut", "model_repeat", "model_odd", "model_deaf",
]  # fmt: skip
MODEL = (
    "model_stall",
    "model_error",
    "model_limit",
    "model_cut",
    "model_repeat",
    "model_odd",
    "model_deaf",
)
WRITES = ("append", "acquire", "release", "renew", "fork")
READS = ("row", "read", "drafts")
LOSSES = ("append", "acquire", "renew", "release", "put_draft", "row", "read", "drafts")


class InjectedFault(Struct, frozen=True):
    """One planned fault, with its time (s) and the place of the affected process. `value` is its
    duration or its amount.
    """

    at: float
    kind: Kind
    place: int = 0
    value: float = 0.0


class Strike(Struct, frozen=True):
    """A fault that took effect: its start and end (s), and the place of the affected process (None:
    all processes).
    """

    begin: float
    end: float
    kind: str
    place: int | None = None


class ActiveFaults:
    """The active faults. A lost message affects the next matching call of the process at its place,
    and a model fault affects the next model call of that process.
    """

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self._scheduler, self._random = scheduler, random
        self.counts: Counter[str] = Counter()  # faults that took effect, by kind
        self.last = 0.0  # the time at which the last fault ends
        self.strikes: list[Strike] = []
        self._losses: dict[int, list[str]] = {}
        self._models: dict[int, list[str]] = {}
        self._away: dict[int | None, float] = {}
        self._slow = self._late = (0.0, 0.0)  # end time, maximum delay

    def begin(self, fault: InjectedFault) -> None:
        """Activate a fault of the network, the server or a model. `Simulation` handles faults of
        processes."""
        now = self._scheduler.now
        if fault.kind in ("lost_reply", "lost_request", "lost_process"):
            self._losses.setdefault(fault.place, []).append(fault.kind.removeprefix("lost_"))
        elif fault.kind in MODEL:
            self._models.setdefault(fault.place, []).append(fault.kind)
        elif fault.kind in ("outage", "cut"):
            place = None if fault.kind == "outage" else fault.place
            self._away[place] = now + fault.value
            self.struck(fault.kind, fault.value, place)
        elif fault.kind == "slow":
            self._slow = (now + 2.0, fault.value)
            self.struck("slow", 2.0 + fault.value)
        elif fault.kind == "notices":
            self._late = (now + 2.0, fault.value)
            self.struck("notices", 2.0 + fault.value)

    def struck(self, kind: str, lasts: float = 0.0, place: int | None = None) -> None:
        self.counts[kind] += 1
        now = self._scheduler.now
        self.strikes.append(Strike(now, now + lasts, kind, place))
        self.last = max(self.last, now + lasts)

    def clear(self) -> None:
        """Cancel the losses and model faults that have not taken effect yet."""
        self._losses.clear()
        self._models.clear()

    # Queries of the network and the models

    def loss(self, place: int, method: str) -> str | None:
        waiting = self._losses.get(place)
        if not waiting or method not in LOSSES:
            return None
        if waiting[0] == "process" and method not in WRITES:
            return None
        loss = waiting.pop(0)
        if loss != "process":
            self.struck("lost_read" if method in READS else f"lost_{loss}", 1.0, place)
        return loss

    def model(self, place: int) -> str | None:
        waiting = self._models.get(place)
        if not waiting:
            return None
        kind = waiting.pop(0)
        self.struck(kind, 5.0, place)
        return kind

    def unavailable(self, place: int) -> bool:
        now = self._scheduler.now
        return any(now < self._away.get(where, 0.0) for where in (None, place))

    def slowness(self) -> float:
        until, by = self._slow
        return self._random.uniform(0, by) if self._scheduler.now < until else 0.0

    def notice_delay(self) -> float:
        until, by = self._late
        return self._random.uniform(0, by) if self._scheduler.now < until else 0.0

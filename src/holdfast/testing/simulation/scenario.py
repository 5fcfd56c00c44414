"""Scenarios: lists of user actions and faults, drawn from a seed. A scenario stays valid if any
action or fault is removed, so that a failing scenario can be shrunk.
"""

from __future__ import annotations

from random import Random
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from .faults import MODEL, InjectedFault

Level = Literal["plain", "full"]
SUMMARISE: Any = ("on", "fails", "slow", "long", "simulated/other")
Action = Literal[
    "send", "post", "steer", "interrupt", "limited", "typed", "modelled", "notify", "timer",
    "abort", "queue", "approve", "deny", "answer", "extend", "duel", "respond", "rule", "mode",
    "model", "state", "read", "vanish", "look", "find", "close", "attach", "fork", "edit",
    "regenerate", "restore", "rewind", "copy", "delete", "delete_thread", "schedule", "erase",
    "newer",
]  # fmt: skip

MESSAGES = (
    "steer",
    "interrupt",
    "limited",
    "typed",
    "modelled",
    "post",
    "vanish",
    "notify",
    "attach",
)
DECISIONS = ("approve", "deny", "answer", "duel", "duel", "extend", "respond")
SETTINGS = ("timer", "queue", "rule", "mode", "model", "state", "read", "look", "close")
THREADS = ("fork", "edit", "regenerate", "restore", "copy", "delete_thread", "delete")

REWINDS = ("restore", "look", "regenerate")  # half of these actions become a rewind
SCHEDULES = ("mode", "model", "state")  # a third of these actions is about a schedule
LOOKUPS = ("mode", "model", "state", "read")  # a third of these actions becomes a lookup

PLAIN = ("", "", "note", "charge", "note+charge", "count", "refund", "mail", "fail", "charge/note")
MORE = (
    *("wire", "ask", "publish", "slow", "hang", "deaf", "die_before", "die_after", "nested"),
    *("remember", "subcharge", "subrefund", "subnote+charge", "note+note+note", "ask/refund"),
    *("die_after/charge", "added1", "slow+note", "refund+charge", "wire/charge", "die_always"),
    *("changed", "ask+wire", "nested+slow", "stray", "subhang", "subask", "refund/refund"),
    *("bad", "unknown", "forbidden", "parker", "single+single", "risky", "long"),
    *("nested_ask", "subremember", "long/refund", "risky+note", "added1/charge"),
)
PROBED = ("charge", "charge/note", "die_after/charge")  # two of three have a probe instead
RARE = ("many", "crowd", "huge")  # rare, because they are slow


class Step(Struct, frozen=True):
    """One user action, with its time (s) and the `place` of the process that receives it."""

    at: float
    action: Action
    session: str = "s0"
    tag: str = ""
    program: str = ""  # the tools that the model calls; see `workload`
    text: str = ""  # the text of the message, for `check_agent`
    place: int = 0
    keyed: bool = True
    twice: bool = False  # send the same request to another process at the same time
    pick: int = 0  # selects a variant of the action


class Scenario(Struct, frozen=True):
    """The input of a simulation: user actions, faults and settings. `seed` also determines all
    delays.
    """

    seed: str
    processes: int = 3
    ttl: float = 4.0
    steps: tuple[Step, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    rates: tuple[float, ...] = ()  # how fast the clock of each place runs
    recovery: Literal["resume", "close"] = "resume"
    turns: int = 200  # turns that the model reads before older turns are compacted
    summarise: Literal["on", "fails", "slow", "long", "simulated/other"] | None = None
    fallback: bool = False  # whether another model is used if the first model fails
    slots: int = 1000  # logs that a process recovers concurrently
    versions: tuple[
        int, ...
    ] = ()  # the version of the agent that each place starts with (default: 0)
    lease_with_append: bool = True  # whether the store can take and release leases with appends
    budget: int | None = None  # tokens that all sessions together may use
    pin: bool = False  # whether runs are left to the version of the agent that started them

    @property
    def ends(self) -> float:
        """The time (s) of the last user action or fault."""
        times = [*(step.at for step in self.steps), *(fault.at for fault in self.faults)]
        return max(times, default=0.0)


def draw(seed: str, level: Level = "plain") -> Scenario:
    """Return the scenario of a seed."""
    random = Random(f"{seed} {level}")  # noqa: S311 - a schedule, not a secret
    full = level == "full"
    processes = random.choice((3, 3, 3, 4) if full else (3, 3, 3, 2, 4))
    sessions = [f"s{n}" for n in range(random.choice((1, 1, 2, 2, 3)))]
    span = random.uniform(4.0, 14.0)
    counts = (9, 14) if full else (5, 9)
    steps = [
        _step(random, n, sessions, processes, span, full) for n in range(random.randint(*counts))
    ]
    faults = [_fault(random, processes, span) for _ in range(random.randint(4, 10))]
    rates = tuple(random.choice((1.0, 1.0, 1.0, 0.995, 1.004)) for _ in range(processes))
    return Scenario(
        seed=seed,
        processes=processes,
        ttl=random.choice((3.0, 4.0, 6.0)),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        rates=rates,
        recovery="close" if random.random() < 0.05 else "resume",
        turns=random.choice((2, 3, 6, 200)) if full else 200,
        summarise=random.choice((None, *SUMMARISE)) if full else None,
        fallback=full and random.random() < 0.5,
        slots=random.choice((1, 2, 1000)) if full else 1000,
        versions=tuple(random.choice((0, 0, 0, 1)) for _ in range(processes)) if full else (),
        budget=random.choice((None, None, None, 60, 200)) if full else None,
    )


def _step(
    random: Random, n: int, sessions: list[str], processes: int, span: float, full: bool
) -> Step:
    actions: Any = ("send",) * 8 + ("post", "steer", "interrupt", "abort", "read", "deny")
    if full:
        kinds = (("send",), MESSAGES, DECISIONS, SETTINGS, THREADS, ("abort",))
        actions = random.choices(kinds, (8, 5, 5, 3, 3, 1))[0]
    action: Any = "send" if n == 0 else random.choice(actions)
    program = random.choice(PLAIN)
    if full and random.random() < 0.5:
        program = random.choice(MORE)
    if full and random.random() < 0.003:
        program = random.choice(RARE)
    step = Step(
        at=round(random.uniform(0.0, span) if n else 0.1, 3),
        action=action,
        session=random.choice(sessions),
        tag=f"m{n}",
        program=program,
        place=random.randrange(processes),
        keyed=random.random() < 0.8,
        twice=random.random() < 0.15,
        pick=random.randrange(60),
    )
    # Derived from values that are already drawn, so that other scenarios do not change.
    if program in PROBED and step.pick % 3:
        step = replace(step, program=program.replace("charge", "transfer"))
    if action in REWINDS and step.pick % 2:
        return replace(step, action="rewind")
    if full and action in LOOKUPS and step.pick % 3 == 0:
        return replace(step, action="find")
    if full and action in SCHEDULES and step.pick % 3 == 1:
        return replace(step, action="schedule")
    return step


def _fault(random: Random, processes: int, span: float) -> InjectedFault:
    kind: Any = random.choices(
        ("crash", "pause", "restart", "lost_reply", "lost_request", "outage", "cut", "slow",
         "notices", "clock", "model", "server_clock", "lost_process"),
        (4, 3, 2, 4, 2, 1, 2, 1, 1, 2, 4, 0.5, 3),
    )[0]  # fmt: skip
    value = 0.0
    if kind == "model":
        kind = random.choice(MODEL)
    elif kind in ("crash", "restart"):
        value = random.uniform(0.1, 3.0)
    elif kind == "pause":
        value = random.choice((0.3, 1.0, 5.0, 9.0))
    elif kind in ("outage", "cut"):
        value = random.uniform(0.2, 5.0)
    elif kind in ("slow", "notices"):
        value = random.uniform(0.05, 0.8)
    elif kind == "clock":
        value = random.choice((-3600.0, -5.0, -0.5, 0.5, 5.0, 3600.0))
    elif kind == "server_clock":
        value = random.choice((-0.5, -2.0, -8.0))
    at = round(random.uniform(0.05, span + 1.0), 3)
    return InjectedFault(at=at, kind=kind, place=random.randrange(processes), value=round(value, 3))

"""Schedules that lead to code which random ones rarely reach: each changes what was drawn so that
faults strike at one kind of moment. They are judged like all others."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from holdfast.testing.simulation.faults import InjectedFault
from holdfast.testing.simulation.scenario import RARE, Scenario, Step

WIRE, CHARGE, NOTE, REFUND = 2, 61, 187, 124  # picks with which the action `rule` denies a tool


def _sends(
    scenario: Scenario, programs: tuple[str, ...], gap: float, count: int = 12, **more: Any
) -> list[Step]:
    """Messages with these programs, one every `gap` seconds, in a few sessions."""
    random = Random(f"{scenario.seed} sends")
    return [
        Step(
            at=round(0.1 + gap * n + random.uniform(0.0, gap / 4), 4),
            action="send",
            session=f"s{n % 3}",
            tag=f"m{n}",
            program=random.choice(programs),
            place=random.randrange(scenario.processes),
            **more,
        )
        for n in range(count)
    ]


def _beside(
    steps: list[Step], actions: tuple[Any, ...], within: tuple[float, float], **more: Any
) -> list[Step]:
    """Other actions in the same sessions, each a little later than a message."""
    random = Random(f"{len(steps)} {steps[0]}")
    return [
        replace(
            step,
            at=round(step.at + random.uniform(*within), 4),
            action=random.choice(actions),
            tag=f"b{n}",
            pick=more.get("pick", random.randrange(240)),
        )
        for n, step in enumerate(steps)
    ]


def _struck(
    scenario: Scenario,
    steps: list[Step],
    kinds: tuple[Any, ...],
    within: tuple[float, float],
    **more: Any,
) -> Scenario:
    """The scenario with these steps, and a fault a little later than each message."""
    random = Random(f"{scenario.seed} faults")
    faults = [
        InjectedFault(
            at=round(step.at + random.uniform(*within), 4),
            kind=random.choice(kinds),
            place=step.place,
            value=random.uniform(0.3, 1.0),
        )
        for step in steps
        if step.action in ("send", "typed", "modelled")
    ]
    return replace(scenario, steps=_ordered(steps), faults=_ordered(faults), **more)


def _ordered(items: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(items, key=lambda item: item.at))


SLOW = [InjectedFault(at=2.0 * n, kind="slow", value=0.3) for n in range(10)]


def _slowly(scenario: Scenario) -> Scenario:
    """On a store that is slow all the time, so that the log often moves during a step."""
    return replace(scenario, faults=_ordered([*scenario.faults, *SLOW]))


def older_store(scenario: Scenario) -> Scenario:
    """A store that cannot take and release leases with appends."""
    return replace(scenario, lease_with_append=False)


def silent(scenario: Scenario) -> Scenario:
    """Models that never give the typed answer that they are asked for, while messages arrive."""
    steps = [
        replace(step, action="typed") for step in _sends(scenario, ("mute", "note/mute"), 1.5, 4)
    ]
    beside = _beside(steps, ("steer", "abort"), (0.5, 1.4))
    stream = [
        Step(at=round(0.5 + n * 0.04, 2), action="post", tag=f"p{n}", place=n % 3)
        for n in range(60)
    ]
    return _slowly(replace(scenario, steps=_ordered([*steps, *beside, *stream]), faults=()))


def erased(scenario: Scenario) -> Scenario:
    """Events whose data is erased while runs, approvals and timers need them."""
    programs = ("refund", "wire/note", "ask", "hang", "nested+slow", "slow+refund", "many")
    steps = _sends(scenario, programs, 1.2, 8)
    timers = _beside(steps[:3], ("timer",), (0.1, 0.3))
    beside = _beside(steps, ("erase",), (0.05, 1.1))
    voters = [
        replace(step, tag=f"v{n}")
        for n, step in enumerate(_beside(steps, ("approve",), (3.0, 7.0)))
    ]
    struck = _struck(
        scenario, [*steps, *timers, *beside, *voters], ("crash", "restart"), (0.2, 1.4)
    )
    return replace(struck, ttl=3.0)


def taken_over(scenario: Scenario) -> Scenario:
    """Sessions that other processes take over from one that crashed, while users abort, send, vote
    and change queues there, on a slow store."""
    random = Random(f"{scenario.seed} taken over")
    programs = ("slow", "hang", "charge/slow", "ask+slow", "note+slow", "mail+hang", "refund")
    first: tuple[Any, ...] = (*["send"] * 3, *["post"] * 4, *["timer"] * 3)
    steps = [
        Step(
            at=0.1 + n / 100,
            action=action,
            session=f"s{n % 3}",
            tag=f"m{n}",
            program=random.choice(programs),
        )
        for n, action in enumerate(first)
    ]
    actions: tuple[Any, ...] = ("queue", "queue", "abort", "post", "timer", "approve", "steer")
    later = [
        Step(
            at=round(3.0 + 0.12 * n, 2),
            action=random.choice(actions),
            session=f"s{random.randrange(3)}",
            tag=f"l{n}",
            place=1 + n % 2,
            pick=3 * random.randrange(20),
        )
        for n in range(30)
    ]
    crash = InjectedFault(at=random.uniform(0.3, 1.6), kind="crash", value=20.0)
    slow = [InjectedFault(at=2.0 * n, kind="slow", value=0.4) for n in range(1, 5)]
    return replace(
        scenario, processes=3, ttl=3.0, steps=(*steps, *later), faults=(crash, *slow), versions=()
    )


def too_new(scenario: Scenario) -> Scenario:
    """Sessions to which a newer version writes events that this one must not drive."""
    steps = _sends(scenario, ("", "note", "charge", "slow"), 1.2, 8)
    beside = _beside(steps[2:5], ("newer",), (0.0, 1.0))
    return replace(scenario, steps=_ordered([*steps, *beside]), faults=())


def lost_mail(scenario: Scenario) -> Scenario:
    """Processes that are lost right after they wrote that a call starts."""
    programs = ("mail", "note/mail", "nested", "note/nested", "mail+charge", "die_after/mail")
    return _struck(
        scenario, _sends(scenario, programs, 2.5), ("lost_process", "crash"), (0.005, 0.08)
    )


def denied(scenario: Scenario) -> Scenario:
    """Tools that a rule denies while their calls wait for an approval, or are about to start."""
    programs = ("wire", "refund+charge", "refund", "wire+note", "slow/refund")
    steps = _sends(scenario, programs, 1.5)
    rules = [
        step
        for pick in (WIRE, CHARGE, NOTE, REFUND)
        for step in _beside(steps[pick % 4 :: 4], ("rule",), (0.0, 1.2), pick=pick)
    ]
    named = [replace(step, tag=f"r{n}") for n, step in enumerate(rules)]
    return _slowly(replace(scenario, steps=_ordered([*steps, *named]), faults=()))


def failing(scenario: Scenario) -> Scenario:
    """Runs that fail while messages and aborts arrive."""
    steps = [
        replace(step, action="modelled", pick=0 if n % 3 else 1)
        for n, step in enumerate(_sends(scenario, ("", "note", "long"), 0.8, 16))
    ]
    beside = _beside(steps, ("post", "steer", "abort", "abort", "interrupt"), (0.0, 0.5))
    kinds = ("model_error", "model_cut", "model_deaf", "model_odd")
    return _slowly(_struck(scenario, [*steps, *beside], kinds, (-0.05, 0.05)))


def crossed(scenario: Scenario) -> Scenario:
    """Runs whose first append has no reply for a while, in which users abort and send more."""
    steps = _sends(scenario, ("", "note"), 1.6, 10)
    beside = _beside(steps, ("abort", "post", "queue", "delete", "close"), (0.0, 0.6))
    return _struck(scenario, [*steps, *beside], ("lost_reply",), (-0.08, 0.0), versions=())


def handed_over(scenario: Scenario) -> Scenario:
    """Restarts of processes whose sessions get messages and decisions at that moment."""
    programs = ("slow", "hang", "slow+refund", "added1/charge", "changed", "ask+slow")
    steps = _sends(scenario, programs, 1.4)
    beside = _beside(steps, ("post", "approve", "answer", "queue", "steer"), (0.1, 1.0))
    return _slowly(_struck(scenario, [*steps, *beside], ("restart",), (0.1, 0.8)))


def upgraded(scenario: Scenario) -> Scenario:
    """Calls that were approved before a rolling upgrade changed their tools."""
    programs = (
        "changed+changed",
        "changed+refund",
        "charge/changed+changed",
        "changed+changed+ask",
    )
    steps = _sends(scenario, programs, 1.5)
    voters = _beside(steps, ("approve", "answer", "deny"), (0.5, 2.5))
    versions = tuple(place % 2 for place in range(scenario.processes))
    return _struck(scenario, [*steps, *voters], ("restart",), (0.3, 1.4), versions=versions)


def pinned(scenario: Scenario) -> Scenario:
    """A rolling upgrade in which each run is left to the version that started it."""
    struck = upgraded(scenario)
    programs = ("slow", "refund", "note+slow", "changed", "subnote+charge", "hang", "charge/note")
    more = [
        replace(step, at=step.at + 0.4, tag=f"x{n}")
        for n, step in enumerate(_sends(scenario, programs, 1.5, 10))
    ]
    stops = _beside(more, ("abort", "interrupt", "post", "approve"), (0.5, 2.5))
    stops = [replace(step, tag=f"y{n}") for n, step in enumerate(stops)]
    crashes = [replace(f, at=f.at + 0.7, kind="crash") for f in struck.faults[::3]]
    return replace(
        struck,
        pin=True,
        steps=_ordered([*struck.steps, *more, *stops]),
        faults=_ordered([*struck.faults, *crashes]),
    )


def shuffled(scenario: Scenario) -> Scenario:
    """Queues that users change while the runs before them end."""
    steps = _sends(scenario, ("", "note", "charge"), 0.25, 24)
    beside = _beside(steps, ("queue", "queue", "timer", "abort", "read"), (0.0, 0.4))
    return _slowly(replace(scenario, steps=_ordered([*steps, *beside]), faults=()))


def summed_up(scenario: Scenario) -> Scenario:
    """Summaries that are longer than a log holds, and slow ones that are cut short."""
    how: Any = "long" if int(Random(scenario.seed).random() * 2) else "slow"
    steps = _sends(scenario, ("", "note", "charge"), 0.7, 12)
    beside = _beside(steps[6:], ("abort", "steer"), (0.0, 0.6))
    return replace(scenario, steps=_ordered([*steps, *beside]), faults=(), turns=2, summarise=how)


def rare(scenario: Scenario) -> Scenario:
    """A program that takes long to play, in the first message, which is aborted while others
    arrive."""
    program = Random(f"{scenario.seed} rare").choice((*RARE, "swarm"))
    first = replace(scenario.steps[0], program=program, action="send")
    stop = Step(at=4.0, action="abort", session=first.session, tag="stop", place=first.place)
    more = [
        Step(at=4.0 + n / 30, action="post", session=first.session, tag=f"p{n}", place=n)
        for n in range(20)
    ]
    slow = InjectedFault(at=3.9, kind="slow", value=0.3)
    faults = [fault for fault in scenario.faults if fault.kind == "clock"]
    return replace(scenario, steps=(first, stop, *more), faults=_ordered([*faults, slow]))


def detached(scenario: Scenario) -> Scenario:
    """Sub-agents that nothing waits for, under the faults and the other actions that were drawn."""
    programs = Random(f"{scenario.seed} detached")
    steps = (
        replace(step, program=programs.choice(("detcharge", "detask", "detnote+charge")))
        if step.program
        else step
        for step in scenario.steps
    )
    return replace(scenario, steps=tuple(steps))


DIRECTED: tuple[Callable[[Scenario], Scenario], ...] = (
    *(older_store, silent, erased, lost_mail, denied, failing, crossed, handed_over),
    *(shuffled, summed_up, taken_over, too_new, upgraded, pinned),
)

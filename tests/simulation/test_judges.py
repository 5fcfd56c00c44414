"""Each judge passes a good outcome, and reports each bad one that it is there for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.log import events as ev
from holdfast.log.events import Call, Event, Key, NewEvent, ids
from holdfast.stores.port import Lease
from holdfast.stores.rules import LeaseState
from holdfast.testing.simulation.effects import Effect
from holdfast.testing.simulation.faults import Strike
from holdfast.testing.simulation.judges import JUDGES, judge
from holdfast.testing.simulation.loop import EPOCH
from holdfast.testing.simulation.outcome import ReaderView, SimulationOutcome, Told
from holdfast.testing.simulation.scenario import Scenario, Step
from holdfast.testing.simulation.watch import Watch
from holdfast.testing.simulation.workload import TOOLS

MAIN, CHILD = Key("main", "s0", "main"), Key("main", "s0", "sub/c1")
RUN, ANN, BOB = "r1", "ann", "bob"
DRIVER, OTHER = "p0.0:a", "p1.0:b"

Line = tuple[str, Any, dict[str, Any]]


def at(seq: int) -> int:
    """The time of event `seq` (ms): ten per event."""
    return int(EPOCH * 1000) + seq * 10


def made(lines: Sequence[Line]) -> list[Event]:
    """The events of a log; `at` in the rest of a line sets the time."""
    log = []
    for seq, (kind, payload, rest) in enumerate(lines, 1):
        more = {name: value for name, value in rest.items() if name != "at"}
        more.setdefault("id", f"e{seq}")
        log.append(NewEvent.of(kind, payload, **more).numbered(seq, rest.get("at", at(seq))))
    return log


def line(kind: str, payload: Any = None, **rest: Any) -> Line:
    return kind, payload, rest


def received(tag: str = "m0", **rest: Any) -> Line:
    message = ev.MessageReceived(
        text=f"#{tag}", metadata={"tag": tag}, how=rest.pop("how", "queue")
    )
    return line("message.received", message, **rest)


def started(*inputs: int, run: str = RUN, driver: str = DRIVER, **rest: Any) -> Line:
    payload = ev.RunStarted(driver=driver, inputs=[*inputs])
    return line("run.started", payload, run=run, **rest)


def called(step: int = 1, run: str = RUN, **rest: Any) -> Line:
    return line("model.called", ev.ModelCalled(model="simulated/model", step=step), run=run, **rest)


def said(*calls: str, run: str = RUN, **rest: Any) -> Line:
    """A message of the model; calls are `id name`."""
    listed = [Call(id=c.split()[0], name=c.split()[1], arguments={}) for c in calls]
    return line("message.completed", ev.MessageCompleted(text="hello there", calls=listed),
                run=run, **rest)  # fmt: skip


def begun(call: str = "c1", name: str = "charge", *, probe: bool = False, **rest: Any) -> Line:
    payload = ev.ToolStarted(call=call, name=name, key=call, probe=probe)
    return line("tool.started", payload, run=RUN, **rest)


def said_by_probe(outcome: Any) -> Line:
    return line("tool.probed", ev.ToolProbed(call="c1", outcome=outcome), run=RUN)


def over(call: str = "c1", outcome: Any = "ok", **rest: Any) -> Line:
    payload = ev.ToolFinished(call=call, outcome=outcome, result="fine")
    rest.setdefault("id", ids.done_id(call))
    return line("tool.finished", payload, run=RUN, **rest)


def opened(item: str = "c1", call: str = "c1", approvals: int = 1) -> Line:
    payload = ev.PendingOpened(id=item, what="approval", call=call, title="?", approvals=approvals)
    return line("pending.opened", payload, run=RUN)


def settled(item: str = "c1", outcome: Any = "approved", **rest: Any) -> Line:
    rest.setdefault("id", ids.settle_id(item))
    return line("pending.settled", ev.PendingSettled(id=item, outcome=outcome), **rest)


def voted(actor: str) -> Line:
    return line("pending.voted", ev.PendingVoted(id="c1"), actor=actor)


def resumed(reason: Any = "driver_lost", driver: str = OTHER, **rest: Any) -> Line:
    return line("run.resumed", ev.RunResumed(driver=driver, reason=reason), run=RUN, **rest)


def waits(**rest: Any) -> Line:
    return line("run.waiting", ev.RunWaiting(), run=RUN, **rest)


def ended(status: Any = "done", run: str = RUN, **rest: Any) -> Line:
    return line("run.finished", ev.RunFinished(status=status), run=run, **rest)


COPY = line("run.finished", ev.RunFinished(status="interrupted", error="copied"))
CREATED = line("session.created", ev.SessionCreated(agent="simulated"))
PLAIN = (CREATED, received(), started(2), called(), said(), ended())
CALL = (CREATED, received(), started(2), called(), said("c1 charge"), begun())
DONE = (*CALL, over(), called(2), said(), ended())
PROBED = (*CALL[:4], said("c1 transfer"), begun(name="transfer", probe=True))
CHARGED = Effect(0.065, "p0.0", "s0", "main", "charge", "c1", "c1")
LOST = (*CALL, resumed(at=at(600)), over(), called(2), said(), ended())
CRASH = Strike(0.1, 5.0, "crash", 0)
ASKED = (CREATED, received(), started(2), called(), said("c1 refund"), opened(), waits())
REFUND = (resumed("answered"), begun(name="refund"), over(), called(2), said(), ended())
REFUNDED = replace(CHARGED, tool="refund", at=0.2)
WIRE = (*ASKED[:4], said("c1 wire"), opened(approvals=2), waits())
WIRED = (resumed("answered"), begun(name="wire"), over(), called(2), said(), ended())
TIMER = line("timer.set", ev.TimerSet(id="t", at=at(3), text="#t"))
RANG = line("message.received", ev.MessageReceived(text="#t", metadata={"timer": "t"}))
FIRED = line("timer.fired", ev.TimerFired(id="t"))
EVERY = 60_000
SCHEDULED = line("timer.scheduled", ev.TimerScheduled(
    name="r", text="#r", next=at(3), every=EVERY, missed="all", overlap="queue"))  # fmt: skip


def again(count: int) -> Line:
    """The message of the schedule for its `count`-th due time."""
    metadata = {"schedule": "r", "due": at(3) + count * EVERY}
    return line("message.received", ev.MessageReceived(text="#r", metadata=metadata))


def ticked(count: int, sent: int, skipped: int = 0) -> Line:
    """The schedule was due so many times."""
    due, coming = at(3) + (count - 1) * EVERY, at(3) + count * EVERY
    return line("timer.ticked", ev.TimerTicked(
        name="r", due=due, next=coming, sent=sent, skipped=skipped))  # fmt: skip


def taken(*inputs: int) -> list[Line]:
    """Runs that take these messages up, one after the other."""
    return [
        one
        for n, seq in enumerate(inputs)
        for one in (started(seq, run=f"r{n}"), called(run=f"r{n}"), said(run=f"r{n}"),
                    ended(run=f"r{n}"))
    ]  # fmt: skip


ABORT = line("abort.requested", ev.AbortRequested(run=RUN))
REPORTED = line("thread.reported", ev.ThreadReported(item="c1!sub"))
CLEARED = line("thread.rewound", ev.ThreadRewound(to=0, window=ev.RewoundWindow()))
BACK = line("thread.rewound", ev.ThreadRewound(to=2, window=ev.RewoundWindow(tokens=99)))
COUNT = line("state.changed", ev.StateChanged(set={"count": 1}))


def outcome(*lines: Line, **more: Any) -> SimulationOutcome:
    """The outcome of a simulation in which session `s0` has this log."""
    child = more.pop("child", ())
    fields: dict[str, Any] = {
        "scenario": Scenario(seed="1", steps=(Step(0.0, "send", tag="m0"),)),
        "logs": {MAIN: made(lines), **({CHILD: made(child)} if child else {})},
        "rows": {}, "effects": [], "told": [], "readings": [], "faults": Counter(),
        "checks": Counter(), "problems": [], "deleted": [], "strikes": [], "texts": {},
        "drafts": {}, "tools": TOOLS, "seconds": 1.0, "calls": 1,
    }  # fmt: skip
    return SimulationOutcome(**{**fields, **more})


def told(action: str, status: str = "accepted", **more: Any) -> Told:
    return Told(
        **{"action": action, "session": "s0", "tag": "m0", "at": 1.0, "status": status, **more}
    )


def sub(*lines: Line) -> tuple[Line, ...]:
    about = ev.ThreadCreated(agent="simulated/clerk", parent="main", item="c1!sub", call="c1")
    return (line("thread.created", about), received("sub"), *lines)


def budgeted(tokens: int | None, *later: Line) -> SimulationOutcome:
    """A message that used ten tokens of a budget of five, and of which so many were counted."""
    message = ev.MessageCompleted(text="hello there", usage={"input_tokens": 10})
    lines = (*PLAIN[:4], line("message.completed", message, run=RUN), *later, ended())
    charges = {f"charge:{RUN}": {"runs": 1}}
    if tokens is not None:
        charges["charge:e5"] = {"calls": 1, "tokens": tokens}
    usage = [line("run.charged", ev.RunCharged(usage=u), id=id) for id, u in charges.items()]
    logs = {MAIN: made(lines), Key("~usage:main", "tenant-total", "main"): made(usage)}
    scenario = Scenario(seed="1", steps=(Step(0.0, "send", tag="m0"),), budget=5)
    return outcome(logs=logs, scenario=scenario, seconds=30.0)


def of_two_versions(*later: Line) -> SimulationOutcome:
    """A run of version `old` whose driver crashed, and that is to be left to this version."""
    begun = ev.RunStarted(driver=DRIVER, inputs=[2], version="old")
    lines = (CREATED, received(), line("run.started", begun, run=RUN), *later)
    scenario = Scenario(seed="1", steps=(Step(0.0, "send", tag="m0"),), pin=True)
    versions = {"p0.0": "old", "p0.1": "old", "p1.0": "new"}
    return outcome(*lines, scenario=scenario, versions=versions, strikes=[CRASH])


GAP = [event for event in made(PLAIN) if event.seq != 3]

GOOD: dict[str, SimulationOutcome] = {
    "a budget that one call uses up": budgeted(10),
    "a run that its version continues": of_two_versions(
        resumed(driver="p0.1:c", at=at(600)), called(), said(), ended()
    ),
    "a run of another version that is aborted": of_two_versions(
        line("abort.requested", ev.AbortRequested()), resumed(at=at(600)), ended("aborted")
    ),
    "an answer": outcome(*PLAIN, told=[told("post", seq=2), told("send", "done", run=RUN)]),
    "a call": outcome(*DONE, effects=[CHARGED]),
    "a crash": outcome(*LOST, effects=[CHARGED], strikes=[CRASH]),
    "an effect in a thread that was deleted and made again": outcome(
        *PLAIN, child=(CREATED,), effects=[replace(CHARGED, thread=CHILD.thread, call="old")],
        deleted=[f"s0/{CHILD.thread}"],
    ),
    "an approval": outcome(*ASKED, settled(actor=ANN), *REFUND, effects=[REFUNDED]),
    "two approvals": outcome(*WIRE, voted(ANN), voted(BOB), settled(actor=BOB), *WIRED),
    "a timer": outcome(CREATED, TIMER, RANG, FIRED, started(3), called(), said(), ended()),
    "a schedule": outcome(CREATED, SCHEDULED, again(0), again(1), ticked(2, 2), *taken(3, 4)),
    "an abort": outcome(*PLAIN[:4], ABORT, ended("aborted")),
    "a rewind": outcome(CREATED, received("m1"), CLEARED, received(), started(4), called(), said(),
                        ended()),
    "a message that a copy left behind": outcome(
        logs={replace(MAIN, session="s0-m1"): made((CREATED, received(), COPY))},
        scenario=Scenario(seed="1", steps=(Step(at=0.0, action="copy", tag="m1"),)),
    ),
    "a message that a copy took up later": outcome(
        CREATED, received(), COPY, started(2), called(), said(), ended()
    ),
    "a count": outcome(*PLAIN, COUNT, told=[told("state")]),
    "a lookup": outcome(*PLAIN, told=[told("find", "found", seq=5, item="e5")]),
    "a reader": outcome(*PLAIN, readings=[ReaderView("s0", 2, "l", [3, 4, 5])]),
    "a text": outcome(*PLAIN, texts={(MAIN, "e5"): "hello"}),
    "a repetition": outcome(
        *CALL, resumed(at=at(600)), opened("c1@6"), settled("c1@6", actor=ANN), begun(), over(),
        called(2), said(), ended(), effects=[CHARGED, CHARGED], strikes=[CRASH],
    ),
    "a sub-agent": outcome(*CALL, over("c1", "cancelled"), ended("aborted"), effects=[CHARGED],
                           child=sub(started(2), called(), ABORT, ended("aborted"), REPORTED)),
}  # fmt: skip


def detached(*results: Line) -> SimulationOutcome:
    """A detached sub-agent that has reported, and what its parent got."""
    about = ev.ThreadCreated(
        agent="simulated/clerk", parent="main", item="c1!sub", call="c1", detached=True
    )
    ended = line("thread.reported", ev.ThreadReported(item="c1!sub"))
    logs = {MAIN: made((*PLAIN, *results)), CHILD: made((line("thread.created", about), ended))}
    return outcome(logs=logs)


RESULT = line("message.received", ev.MessageReceived(text="done", how="steer", thread="sub/c1"))

BAD: dict[str, tuple[str, SimulationOutcome]] = {
    "a result of a detached sub-agent that is lost": ("detached", detached()),
    "a result of a detached sub-agent that comes twice": ("detached", detached(RESULT, RESULT)),
    "a rewind during a run": ("cuts", outcome(*PLAIN[:5], CLEARED, ended())),
    "a rewind with another window": ("cuts", outcome(*PLAIN, BACK)),
    "a message taken up after it was rewound away": (
        "order", outcome(CREATED, received(), CLEARED, started(2), called(), said(), ended())
    ),
    "a gap in the numbers": ("dense", outcome(*PLAIN, logs={MAIN: GAP})),
    "an id twice": ("dense", outcome(*PLAIN[:-1], ended(id="e5"))),
    "a message twice": ("accepted", outcome(CREATED, received(), *PLAIN[1:])),
    "an acknowledged message elsewhere": ("accepted", outcome(*PLAIN, told=[told("post", seq=9)])),
    "an acknowledged message nowhere": (
        "accepted", outcome(CREATED, told=[told("send", "done", run=RUN)])
    ),
    "a lost count": ("accepted", outcome(*PLAIN, COUNT, told=[told("state"), told("state")])),
    "a timer that fires twice": (
        "accepted", outcome(CREATED, TIMER, RANG, RANG, FIRED, started(3), called(), said(),
                            ended())
    ),
    "a timer that never fires": ("accepted", outcome(CREATED, TIMER)),
    "a schedule that fires twice": (
        "schedules", outcome(CREATED, SCHEDULED, again(0), again(0), ticked(1, 2), *taken(3, 4))
    ),
    "a schedule that fires again later": (
        "schedules", outcome(CREATED, SCHEDULED, again(0), ticked(1, 1), again(0), ticked(1, 1),
                             *taken(3, 5))
    ),
    "a schedule that loses a firing": (
        "schedules", outcome(CREATED, SCHEDULED, again(1), ticked(2, 1, 1), *taken(3))
    ),
    "a message without a run": ("answered", outcome(CREATED, received())),
    "a message after a copy without a run": ("answered", outcome(CREATED, COPY, received())),
    "a message of a copy that a later run passed over": (
        "answered",
        outcome(CREATED, received(), COPY, received("m1"), started(4), called(), said(), ended()),
    ),
    "a run without an end": ("answered", outcome(*PLAIN[:-1])),
    "a message with two runs": (
        "answered", outcome(*PLAIN, started(2, run="r2"), called(run="r2"), ended(run="r2"))
    ),
    "a wrong result": ("answered", outcome(*PLAIN, told=[told("send", "failed", run=RUN)])),
    "a later message first": (
        "order", outcome(CREATED, received(), received("m1"), started(3), called(), said(), ended())
    ),
    "a call after an abort": (
        "stopped", outcome(*PLAIN[:4], ABORT, said(), called(2), ended("aborted"))
    ),
    "an orphan": (
        "stopped",
        outcome(*CALL, over("c1", "cancelled"), ended("aborted"), effects=[CHARGED],
                child=sub(started(2), called(at=at(20)), said(), ended())),
    ),
    "an effect without an intent": ("effects", outcome(*PLAIN, effects=[CHARGED])),
    "an effect before its intent": ("effects", outcome(*DONE, effects=[replace(CHARGED, at=0.01)])),
    "an effect twice": ("effects", outcome(*DONE, effects=[CHARGED, CHARGED])),
    "no effect": ("effects", outcome(*DONE)),
    "two decisions": ("decided", outcome(*ASKED, settled(actor=ANN), settled(actor=BOB, id="x"))),
    "two outcomes": ("decided", outcome(*CALL, over(), over(id="x"))),
    "a decision by a driver": ("decided", outcome(*ASKED, settled(run=RUN))),
    "two winners": (
        "decided",
        outcome(*PLAIN, told=[told("approve", "decided", item="c1")] * 2),
    ),
    "a vote acknowledged twice": (
        "decided",
        outcome(*WIRE, voted(ANN), told=[told("approve", "voted", item="c1")] * 2),
    ),
    "a call without its approval": ("approved", outcome(*ASKED, *REFUND)),
    "a call with one approval of two": ("approved", outcome(*WIRE, settled(actor=ANN), *WIRED)),
    "a call with the same approval twice": (
        "approved", outcome(*WIRE, voted(ANN), settled(actor=ANN), *WIRED)
    ),
    "a needless question": ("approved", outcome(*CALL, opened("c1@6"))),
    "a reader that missed an event": (
        "readers", outcome(*PLAIN, readings=[ReaderView("s0", 0, "l", [1, 3])])
    ),
    "a reader that saw an event twice": (
        "readers", outcome(*PLAIN, readings=[ReaderView("s0", 0, "l", [1, 1, 2])])
    ),
    "a lookup of another number": (
        "found", outcome(*PLAIN, told=[told("find", "found", seq=4, item="e5")])
    ),
    "a lookup that finds nothing": (
        "found", outcome(*PLAIN, told=[told("find", "wrong logs: []", seq=5, item="e5")])
    ),
    "lost text": ("texts", outcome(*PLAIN, texts={(MAIN, "e5"): "bye"})),
    "a draft that is left": ("texts", outcome(*PLAIN, drafts={MAIN: ["e5"]})),
    "an illegal prompt": ("cuts", outcome(CREATED, called(), said(), ended())),
    "a healthy driver that is lost": ("lost", outcome(*LOST)),
    "a driver that is lost by a fault elsewhere": (
        "lost", outcome(*LOST, strikes=[replace(CRASH, place=1)])
    ),
    "a driver that is lost by an old fault": (
        "lost", outcome(*LOST, strikes=[replace(CRASH, begin=-9.0)])
    ),
    "a crash loop": (
        "lost", outcome(*CALL, *[resumed(driver=DRIVER, at=at(60))] * 4, called(2), strikes=[CRASH])
    ),
    "a run that should be closed": (
        "lost", outcome(*LOST, strikes=[CRASH], scenario=Scenario(seed="1", recovery="close"))
    ),
    "a message that waits": (
        "prompt", outcome(CREATED, received(), started(2, at=at(60)), called(), said(), ended())
    ),
    "an approval that waits": (
        "prompt", outcome(*ASKED, settled(actor=ANN, at=at(8)), resumed("answered", at=at(80)))
    ),
    "a repetition without need": (
        "probed", outcome(*PROBED, resumed(at=at(600)), begun(name="transfer", probe=True), over())
    ),
    "a repetition after doubt": (
        "probed", outcome(*PROBED, resumed(at=at(600)), said_by_probe("unknown"),
                          begun(name="transfer", probe=True))
    ),
    "a question without a probe": (
        "probed", outcome(*PROBED, resumed(at=at(600)), opened("c1@6"))
    ),
    "a probe of a call that is not lost": ("probed", outcome(*PROBED, said_by_probe("unknown"))),
    "a call that happened and goes on": (
        "probed", outcome(*PROBED, resumed(at=at(600)), said_by_probe("happened"), called(2))
    ),
    "a timer that is late": (
        "prompt", outcome(CREATED, TIMER, RANG, ("timer.fired", FIRED[1], {"at": at(90)}))
    ),
    "a run that another version continues": ("pinned", of_two_versions(resumed(at=at(600)))),
    "usage that was counted wrongly": ("budget", budgeted(15)),
    "usage that was never counted": ("budget", budgeted(None)),
    "a call long after the budget was used up": (
        "budget", budgeted(10, called(step=2, at=at(900)))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_outcome_passes_all_judges(name: str) -> None:
    assert judge(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_bad_outcome_is_reported(name: str) -> None:
    who, found = BAD[name]
    assert [*JUDGES[who](found)]


def test_every_judge_has_a_bad_outcome() -> None:
    assert {who for who, _ in BAD.values()} == {*JUDGES}


def lease(owner: str = DRIVER, token: int = 1, **more: Any) -> Lease:
    fields: dict[str, Any] = {"since": 0, "until": 1000, "ttl": 1000, "log": "l", "key": MAIN}
    return Lease(**{**fields, "owner": owner, "token": token, **more})


HELD = LeaseState(token=1, owner=DRIVER, until=1000)


def written(*kinds: str) -> list[NewEvent]:
    return [NewEvent.of(kind, None) for kind in kinds]


def test_driver_with_the_newest_lease_may_write() -> None:
    watch = Watch()
    watch.appended("p0.0", MAIN, written("run.started", "model.called"), lease(), HELD)
    watch.appended("p0.0", MAIN, written("message.completed"), lease(), HELD)
    watch.appended("p1.0", MAIN, written("message.received"), None, HELD)
    assert watch.problems == []


@pytest.mark.parametrize(
    ("kind", "fence"),
    [
        ("run.finished", None),
        ("run.started", lease(token=0)),
        ("run.started", lease(OTHER)),
        ("tool.started", lease()),  # in a run that it never took up
    ],
)
def test_other_writes_of_runners_are_reported(kind: str, fence: Lease | None) -> None:
    watch = Watch()
    watch.appended("p0.0", MAIN, written(kind), fence, HELD)
    assert watch.problems


@pytest.mark.parametrize(
    ("now", "taken", "problems"),
    [
        (500, lease(OTHER, 2), 1),
        (1000, lease(OTHER, 2), 0),
        (500, lease(OTHER, 2, reason="operator"), 0),
        (500, lease(DRIVER, 2), 0),
    ],
)
def test_live_lease_keeps_its_owner(now: int, taken: Lease, problems: int) -> None:
    watch = Watch()
    watch.acquired("p1.0", taken, HELD, now)
    assert len(watch.problems) == problems


@pytest.mark.parametrize(
    ("before", "problems"), [(HELD, 0), (LeaseState(1), 0), (LeaseState(2, OTHER, 1000), 1)]
)
def test_nobody_releases_the_lease_of_another_driver(before: LeaseState, problems: int) -> None:
    watch = Watch()
    watch.released("p0.0", lease(), before)
    assert len(watch.problems) == problems


def test_streamed_text_is_joined() -> None:
    watch = Watch()
    watch.streamed(MAIN, "e1", 0, "hello")
    watch.streamed(MAIN, "e1", 5, " there")
    watch.streamed(MAIN, "e1", 5, " there")
    assert watch.texts == {(MAIN, "e1"): "hello there"}


def test_text_of_a_deleted_log_is_forgotten() -> None:
    watch = Watch()
    watch.streamed(MAIN, "e1", 0, "hello")
    watch.streamed(CHILD, "e1", 0, "there")
    watch.deleted({CHILD})
    assert watch.texts == {(MAIN, "e1"): "hello"}

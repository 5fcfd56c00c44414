"""Judges: functions that check invariants after every simulation, about the logs, the effects and
the replies to users. Each judge yields the violations that it finds. All judges in this module are
pure; `watch` contains the judge that observes the server.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import HoldfastError
from ...log import events as ev
from ...log.events import Event, Key, ids
from .judge_budget import budget
from .judge_probes import probed
from .judge_versions import pinned
from .log_walk import BOUNDS, walked
from .loop import EPOCH
from .outcome import SimulationOutcome
from .schedules import fires_once

Judge = Callable[[SimulationOutcome], Iterator[str]]
Log = list[tuple[Event, Any]]

WATCHES = ("driver", "lease")  # judges that observe the server, see `watch`
MESSAGES = ("send", "post", "steer", "interrupt")
DECISIONS = ("approved", "denied", "answered")
# Tools of the simulated agent that always have an effect.
ACTING = ("charge", "mail", "refund", "transfer")
CRASHES = ("lost_process", "crash", "tool_crash")
LOSSES = ("pause", "cut", "outage", "slow", "lost_read")  # a driver that cannot read ends
MISSED = ("lost_request", "lost_reply")  # one of these costs no lease
QUIET = 0.5  # seconds within which work gets a driver while no fault is active
CALM = 0.15  # … without any fault: a notice wakes the driver, not a search
MANY = 100  # slots that no process needs all
RUNS = ("run.started", "run.resumed", "run.waiting", "run.finished")
COPIED = "copied"  # the error of the event that closes a thread in a copy


def dense(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that event numbers have no gaps and that ids are unique."""
    for key, log in outcome.logs.items():
        first = log[0].seq if log else 1
        if [event.seq for event in log] != [*range(first, first + len(log))]:
            yield f"{_name(key)}: event numbers have gaps"
        if len({event.id for event in log}) != len(log):
            yield f"{_name(key)}: an id occurs twice"


def accepted(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that acknowledged messages, state changes and timers are in the log, and that a message
    with a key is there only once."""
    tags: dict[str, Counter[str]] = defaultdict(Counter)
    places: dict[tuple[str, int], str] = {}
    for key, log in outcome.payloads.items():
        if key.thread != "main":
            continue
        for event, payload in log:
            if isinstance(payload, ev.MessageReceived):
                tag = payload.metadata.get("tag", "")
                tags[key.session][tag] += 1
                places[key.session, event.seq] = tag
    twice = {step.tag: 2 if step.twice else 1 for step in outcome.scenario.steps}
    keyed = {step.tag for step in outcome.scenario.steps if step.keyed}
    for session, counts in tags.items():
        for tag, count in counts.items():
            if tag and count > (1 if tag in keyed else twice.get(tag, 1)):
                yield f"{session}: message #{tag} is in the log {count} times"
    for told in outcome.told:
        where, tag = told.session, told.tag
        if where in outcome.deleted:
            continue
        known = tags[where][tag] > 0
        if told.action == "post" and told.seq and places.get((where, told.seq)) != tag:
            yield f"{where}: #{tag} was acknowledged as event {told.seq}, but is another event"
        elif told.action in MESSAGES and (told.seq or told.run) and not known:
            yield f"{where}: #{tag} was acknowledged, but is not in the log"
    yield from _counted(outcome)
    yield from _timers(outcome)


def _counted(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that no acknowledged change of the user state was lost."""
    restored = {step.session for step in outcome.scenario.steps if step.action == "restore"}
    said = Counter(t.session for t in outcome.told if (t.action, t.status) == ("state", "accepted"))
    for key, log in outcome.whole.items():
        if key.thread != "main" or key.session in restored:
            continue
        changes = [p.set["count"] for _, p in log if _counts(p)]
        if said[key.session] > max(changes, default=0):
            yield f"{key.session}: {said[key.session]} changes of state were accepted: {changes}"


def _counts(payload: Any) -> bool:
    return isinstance(payload, ev.StateChanged) and "count" in payload.set


def _timers(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that each timer fires, at most once for each time it was set. A cleared timer need not
    fire."""
    for key, log in outcome.whole.items():
        sets: Counter[str] = Counter(p.id for _, p in log if isinstance(p, ev.TimerSet))
        cleared = {p.id for _, p in log if isinstance(p, ev.TimerCleared)}
        fired: Counter[str] = Counter()
        for _, payload in log:
            if isinstance(payload, ev.MessageReceived) and "timer" in payload.metadata:
                fired[payload.metadata["timer"]] += 1
        for timer, times in sets.items():
            if fired[timer] > times or not (fired[timer] or timer in cleared):
                yield f"{_name(key)}: timer {timer} was set {times} and fired {fired[timer]} times"


def answered(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that each message in a log was either removed from the queue, left in a copy in which
    no run started since, or handled by exactly one run, which ended. Also check that the status
    reported to a user matches the log."""
    for key, log in outcome.logs.items():
        inputs: dict[int, str] = {}
        ended: dict[str, str] = {}
        removed: set[int] = set()
        closed = 0  # the event that closed a copy in which no run has started since
        for event, payload in outcome.payloads[key]:
            if isinstance(payload, ev.RunStarted):
                closed = 0
            if isinstance(payload, (ev.RunStarted, ev.ModelCalled)):
                for seq in payload.inputs:
                    if inputs.setdefault(seq, event.run or "") != event.run:
                        yield f"{_name(key)}: message {seq} was handled by two runs"
            elif isinstance(payload, ev.RunFinished):
                ended[event.run or ""] = payload.status
                closed = event.seq if payload.error == COPIED else closed
            elif isinstance(payload, ev.QueueChanged):
                removed.update(payload.remove)
            elif isinstance(payload, ev.ThreadRewound):
                dropped = range(payload.to + 1, event.seq)
                removed.update(seq for seq in dropped if seq not in inputs)
        for event in log:
            if event.kind != "message.received" or event.seq in removed:
                continue
            if event.seq < closed and event.seq not in inputs:
                continue
            run = inputs.get(event.seq)
            if run is None and event.run is None and not _stopped(log):
                yield f"{_name(key)}: message {event.seq} was never handled"
            elif run is not None and run not in ended:
                yield f"{_name(key)}: the run of message {event.seq} never ended"
        if key.thread == "main" and (not log or log[0].seq == 1):
            yield from _told(outcome, key, inputs, ended)


def _stopped(log: list[Event]) -> bool:
    """Return whether a sub-agent was aborted, so that it need not handle its message."""
    return log[0].kind != "session.created" and any(e.kind == "abort.requested" for e in log)


def _told(
    outcome: SimulationOutcome, key: Key, inputs: dict[int, str], ended: dict[str, str]
) -> Iterator[str]:
    for told in outcome.told:
        if told.session != key.session or told.status not in ("done", "failed", "aborted"):
            continue
        if told.action in MESSAGES and told.run and told.session not in outcome.deleted:
            status = ended.get(told.run)
            if told.run not in inputs.values():
                yield f"{_name(key)}: run {told.run} in the reply to #{told.tag} got no message"
            if status != told.status:
                yield f"{_name(key)}: reply to #{told.tag} is {told.status}, the log says {status}"


def order(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that runs handle messages in the order of their arrival, interrupts first."""
    for key, log in outcome.whole.items():
        waiting: list[int] = []
        for event, payload in log:
            if isinstance(payload, ev.MessageReceived):
                waiting.insert(0 if payload.how == "interrupt" else len(waiting), event.seq)
            elif isinstance(payload, ev.QueueChanged):
                if payload.order:
                    break  # a user chose the order
                waiting = [seq for seq in waiting if seq not in payload.remove]
            elif isinstance(payload, ev.ThreadRewound):
                waiting = [seq for seq in waiting if seq <= payload.to]
            elif isinstance(payload, (ev.RunStarted, ev.ModelCalled)):
                if event.kind == "run.started" and payload.inputs[:1] != waiting[:1]:
                    yield f"{_name(key)}: run {event.seq} took {payload.inputs}, not {waiting[:1]}"
                    break
                waiting = [seq for seq in waiting if seq not in payload.inputs]


def stopped(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that an aborted run starts no more model calls or tool calls, except nested calls, and
    that its sub-agents stop."""
    for key, log in outcome.whole.items():
        active, aborted = "", ""
        nested: set[str] = set()
        for event, payload in log:
            if isinstance(payload, ev.RunStarted):
                active, aborted = event.run or "", ""
            elif isinstance(payload, ev.AbortRequested):
                aborted = active if payload.run in (None, active) else aborted
            elif isinstance(payload, ev.ToolNested):
                nested.add(payload.call.id)
            elif isinstance(payload, ev.RunFinished):
                active = ""
            elif not aborted or event.run != aborted:
                continue
            elif event.kind == "model.called" or (
                isinstance(payload, ev.ToolStarted) and payload.call not in nested
            ):
                yield f"{_name(key)}: event {event.seq} continues a run that was aborted"
        yield from _orphan(outcome, key, log)


def _orphan(outcome: SimulationOutcome, key: Key, log: Log) -> Iterator[str]:
    """Check that a sub-agent stops if the call that started it was cancelled or ended with an
    unknown outcome.
    """
    first = log[0][1]
    if not isinstance(first, ev.ThreadCreated) or first.item is None or first.parent is None:
        return
    parent = outcome.payloads.get(Key(key.tenant, key.session, first.parent), [])
    done = ids.done_id(first.call or "")
    ends = (e.at for e, p in parent if e.id == done and p and p.outcome in ("cancelled", "unknown"))
    given_up = next(ends, None)
    if given_up is None or any(event.kind == "abort.requested" for event, _ in log):
        return
    if any(event.kind == "model.called" and event.at > given_up for event, _ in log):
        yield f"{_name(key)}: the sub-agent continues although its call has ended"


def effects(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that no effect happens twice, unless the tool allows this or a user approved the
    repetition; that each intent is logged before its effect; and that successful calls had their
    effect."""
    started: dict[str, int] = {}
    finished: dict[str, tuple[str, str]] = {}
    known = {key.session for key in outcome.logs} - set(outcome.deleted)
    names: dict[str, str] = {}
    again: Counter[str] = Counter()  # repetitions that a user approved
    said: set[str] = set()  # calls with an unknown outcome that was settled
    slow = any(strike.kind not in CRASHES for strike in outcome.strikes)
    for key, log in outcome.payloads.items():
        for event, payload in log:
            if isinstance(payload, ev.ToolStarted):
                started.setdefault(payload.call, event.at)
                names[payload.call] = payload.name
            elif isinstance(payload, ev.ToolFinished) and key in outcome.whole:
                finished[payload.call] = (payload.outcome, _name(key))
            elif isinstance(payload, ev.PendingSettled) and "@" in payload.id:
                call = payload.id.rpartition("@")[0]
                again[call] += payload.outcome == "approved"
                said.add(call)
            elif isinstance(payload, ev.ToolProbed) and payload.outcome == "not_happened":
                again[payload.call] += slow  # the lost driver may still act after the probe
    count: Counter[str] = Counter()
    for effect in outcome.effects:
        if effect.session not in known or outcome.was_deleted(effect):
            continue
        count[effect.call] += not effect.repeatable
        if effect.call not in started:
            yield f"{effect.session}: {effect.tool} took effect without an intent in the log"
        elif started[effect.call] > (EPOCH + effect.at) * 1000 + 1:
            yield f"{effect.session}: {effect.tool} took effect before its intent was logged"
    for call, times in count.items():
        if times > 1 + again[call]:
            yield f"{names.get(call)} {call} took effect {times} times"
    ours = {t.name for t in outcome.tools if t.function.__module__.endswith(".workload")}
    for call, (how, where) in finished.items():
        acts = names.get(call) in ACTING and names.get(call) in ours and call not in said
        if how == "ok" and acts and not count[call]:
            yield f"{where}: {names[call]} {call} is logged as done, but never took effect"


def decided(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that each item is decided once, and not by a driver; that at most one user gets the
    reply `decided` for an item; that acknowledged votes are in the log; and that each call has one
    outcome."""
    votes: Counter[tuple[str, str]] = Counter()
    opened: set[tuple[str, str]] = set()  # a copy has items with the same ids
    for key, log in outcome.payloads.items():
        settled: Counter[str] = Counter()
        outcomes: Counter[str] = Counter()
        for event, payload in log:
            if isinstance(payload, ev.PendingSettled):
                settled[payload.id] += 1
                if event.run is not None and payload.outcome in DECISIONS:
                    yield f"{_name(key)}: a driver decided on {payload.id}: {payload.outcome}"
            elif isinstance(payload, ev.PendingOpened):
                opened.add((key.session, payload.id))
            elif isinstance(payload, ev.PendingVoted):
                votes[key.session, payload.id] += 1
            elif isinstance(payload, ev.ToolFinished):
                outcomes[payload.call] += 1
        for item, times in settled.items():
            if times > 1:
                yield f"{_name(key)}: item {item} was decided {times} times"
        for call, times in outcomes.items():
            if times > 1:
                yield f"{_name(key)}: call {call} has {times} outcomes"
    made = (told for told in outcome.told if told.item and told.status == "decided")
    said = Counter((told.session, told.item) for told in made)
    for (_, item), times in said.items():
        # A budget has one id for its items in all threads, and in a session that is created again.
        if times > 1 and not ids.is_budget(item):
            yield f"{times} users got the reply that they decided {item}"
    voted = Counter((t.session, t.item) for t in outcome.told if t.status == "voted")
    for where, times in voted.items():
        if where in opened and times > votes[where]:
            yield f"{times} users were told that they voted on {where[1]}: {votes[where]} logged"


def approved(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that a call starts only after enough users approved it, and that users are asked for
    the outcome of a call only if its driver was lost."""
    needed = {tool.name: tool.approvals for tool in outcome.tools if tool.approval == "ask"}
    ruled = {k.session for k, log in outcome.logs.items() if any(_rules(e) for e in log)}
    for key, log in outcome.whole.items():
        items: dict[str, str] = {}
        people: dict[str, set[str]] = defaultdict(set)
        began: dict[str, int] = {}
        resumed = 0
        for event, payload in log:
            if isinstance(payload, ev.PendingOpened):
                items[payload.id] = payload.call or ""
                call, lost, _ = payload.id.rpartition("@")
                if lost and began.get(call, 0) > resumed:
                    yield f"{_name(key)}: {payload.id} asks although no driver was lost"
            elif isinstance(payload, ev.PendingVoted) or (
                isinstance(payload, ev.PendingSettled) and payload.outcome == "approved"
            ):
                people[items.get(payload.id, "")].add(event.actor or "")
            elif isinstance(payload, ev.RunResumed):
                resumed = event.seq
            elif isinstance(payload, ev.ToolStarted):
                began[payload.call] = event.seq
                few = len(people[payload.call] - {""}) < needed.get(payload.name, 0)
                if few and key.session not in ruled:
                    yield f"{_name(key)}: {payload.name} started without its approvals"


def _rules(event: Event) -> bool:
    """Return whether an event changes which calls need an approval."""
    return event.kind.startswith(("permission.", "grant."))


def readers(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that readers receive each event once and in order."""
    for reading in outcome.readings:
        first = reading.after + 1
        if reading.seqs != [*range(first, first + len(reading.seqs))]:
            yield f"{reading.session}: a reader got events {reading.seqs}"


def found(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that lookups return the numbers that events have in the log."""
    for told in outcome.told:
        if told.action != "find" or told.session in outcome.deleted:
            continue
        if told.status.startswith("wrong"):
            yield f"{told.session}: #{told.tag} looked up event {told.seq}: {told.status}"
        elif told.status == "found":
            log = next((log for k, log in outcome.logs.items() if _is_main(k, told.session)), [])
            if (told.seq, told.item) not in {(event.seq, event.id) for event in log}:
                yield f"{told.session}: event {told.seq} ({told.item}) is not in the log"


def _is_main(key: Key, session: str) -> bool:
    return (key.session, key.thread) == (session, "main")


def texts(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that streamed text is in the log, and that no drafts remain."""
    said: dict[tuple[Key, str], str] = {}
    for key, log in outcome.payloads.items():
        for event, payload in log:
            if isinstance(payload, (ev.MessageCompleted, ev.MessageInterrupted)):
                said[key, event.id] = payload.text
    for (key, message), text in outcome.texts.items():
        if key in outcome.logs and not said.get((key, message), "").startswith(text):
            yield f"{_name(key)}: {text!r} of message {message} was streamed, but is not in the log"
    for key, messages in outcome.drafts.items():
        yield f"{_name(key)}: drafts of {messages} remain"


def cuts(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that every prefix of a log can be folded and decided on, and that every prompt is
    valid."""
    for key, walk in walked(outcome).items():
        if walk.problem is not None:
            yield f"{_name(key)}: {walk.problem}"


def prompt(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that while no fault is active, logs get a driver and timers fire without delay."""
    if outcome.scenario.pin:
        return  # a run waits until a process that has its version finds it
    busy = outcome.scenario.slots < MANY  # a log may wait until a process has a free slot
    for key, walk in walked(outcome).items():
        most = QUIET if outcome.strikes or busy or any(map(_upgraded, outcome.logs[key])) else CALM
        for event, until in walk.needs:
            late = until is None or until > event.at + most * 1000
            if late and _quiet(outcome, event.at / 1000 - EPOCH):
                when = "never" if until is None else f"after {until - event.at} ms"
                yield f"{_name(key)}: {event.kind} {event.seq} was handled {when}"
    if any(strike.kind == "clock" for strike in outcome.strikes):
        return
    for key, log in outcome.whole.items():
        for event, timer in log:
            if not isinstance(timer, ev.TimerSet) or _busy(log, timer.at):
                continue
            fired = (e.at for e, p in log if isinstance(p, ev.TimerFired) and p.id == timer.id)
            delay = next((at - timer.at for at in fired if at >= event.at), 0)
            if delay > QUIET * 1000 and _quiet(outcome, timer.at / 1000 - EPOCH):
                yield f"{_name(key)}: timer {timer.id} fired {delay} ms late"


def _upgraded(event: Event) -> bool:
    """Return whether an event calls a tool of one version, to which others leave the run."""
    return event.kind == "message.completed" and b'"name":"added' in bytes(event.data)


def _busy(log: Log, at: int) -> bool:
    """Return whether a run was active at a time (ms). Timers then wait for the run's next step."""
    kinds = [event.kind for event, _ in log if event.kind in RUNS and event.at <= at + 500]
    return bool(kinds) and kinds[-1] in RUNS[:2]


def _quiet(outcome: SimulationOutcome, at: float) -> bool:
    ttl = outcome.scenario.ttl
    return not any(s.begin - QUIET < at < s.end + ttl for s in outcome.strikes)


def lost(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that a driver counts as lost only if its process crashed, was paused or was
    disconnected, and that a run does not continue after too many crashes."""
    close = outcome.scenario.recovery == "close"
    for key, log in outcome.whole.items():
        driver, last, crashes = "", 0, 0
        upgraded = False  # the run calls a tool that only one version has
        for event, payload in log:
            upgraded |= _upgraded(event)
            if isinstance(payload, (ev.MessageCompleted, ev.RunWaiting, ev.RunStarted)):
                crashes = 0
            if isinstance(payload, ev.RunResumed) and payload.reason == "driver_lost":
                crashes += 1
                if not (upgraded or _gone(outcome, driver, last, event.at)):
                    yield f"{_name(key)}: event {event.seq} says that {driver} was lost"
            most = 0 if close else BOUNDS.crashes
            if event.kind in ("model.called", "tool.started") and crashes > most:
                yield f"{_name(key)}: event {event.seq} continues after {crashes} crashes"
            if isinstance(payload, (ev.RunStarted, ev.RunResumed)):
                driver = payload.driver or ""
            if event.run is not None and event.kind != "message.interrupted":
                last = event.at  # the next driver writes message.interrupted


def _gone(outcome: SimulationOutcome, driver: str, last: int, until: int) -> bool:
    """Return whether a fault affected a driver between its last event and the time `until` (ms)."""
    if any(strike.kind == "server_clock" for strike in outcome.strikes):
        return True  # times in the log differ from the times of the simulation
    begin, end = last / 1000 - EPOCH - 1.0, until / 1000 - EPOCH
    place = int(driver.partition(".")[0].removeprefix("p") or -1)
    missed = 0
    for strike in outcome.strikes:
        if strike.place not in (None, place):
            continue
        if strike.kind in CRASHES and begin <= strike.begin <= end:
            return True
        if strike.begin <= end and strike.end + 1.0 >= begin:
            if strike.kind in LOSSES:
                return True
            missed += strike.kind in MISSED
    return missed > 1


def reported(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that the result of each detached sub-agent is in the log of its parent, once."""
    for key, log in outcome.payloads.items():
        if not log or not isinstance(log[0][1], (ev.ThreadCreated, ev.ThreadForked)):
            continue
        first = log[0][1]
        parent = Key(key.tenant, key.session, first.parent or "main")
        if not first.detached or parent not in outcome.payloads:
            continue
        told = [p for _, p in outcome.payloads[parent] if isinstance(p, ev.MessageReceived)]
        times = sum(payload.thread == key.thread for payload in told)
        ended = any(event.kind == "thread.reported" for event, _ in log)
        if times != ended:
            yield f"{_name(key)}: has ended: {ended}; its result is in the log {times} times"


JUDGES: dict[str, Judge] = {
    "dense": dense,
    "accepted": accepted,
    "answered": answered,
    "order": order,
    "stopped": stopped,
    "effects": effects,
    "decided": decided,
    "approved": approved,
    "readers": readers,
    "found": found,
    "texts": texts,
    "cuts": cuts,
    "lost": lost,
    "prompt": prompt,
    "probed": probed,
    "schedules": fires_once,
    "budget": budget,
    "pinned": pinned,
    "detached": reported,
}


def judge(outcome: SimulationOutcome) -> list[str]:
    """Return the problems that all judges found."""
    found: list[str] = []
    for name, look in JUDGES.items():
        try:
            problems = [*look(outcome)]
        except HoldfastError as error:
            problems = [f"cannot be judged: {error!r}"]
        outcome.checks[name] += outcome.events
        found.extend(f"{name}: {problem}" for problem in problems)
    return found


def _name(key: Key) -> str:
    return f"{key.session}/{key.thread}"

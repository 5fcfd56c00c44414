"""The requests of users to a session: one function for each action of a scenario. Each function
runs in the process that received the request, and returns the reply to the user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...bundle import export_bundle, import_bundle
from ...errors import (
    AlreadyDecided,
    InvalidValue,
    LogReplaced,
    NotPending,
    SessionBusy,
    SessionNotFound,
)
from ...log.events import Event, NewEvent, Scope, ids
from ...stores.copy import copy_session
from ...values.media import Media
from . import schedules
from .loop import EPOCH
from .outcome import ReaderView
from .scenario import Step
from .workload import OTHER_MODEL, this_process

WATCH = 2.5  # seconds that an approver waits for an item to decide
EXTENSION = {"extend": {"tokens": 45}}  # what an operator answers
OPEN = ("approval", "question", "external")
ERASABLE = (
    *("message.received", "message.completed", "tool.started", "tool.finished", "tool.nested"),
    *("pending.opened", "pending.settled", "timer.set"),
)


class Reply(Struct):
    """The reply to a user: a status, and the event, run or item that the status refers to."""

    status: str
    seq: int = 0
    run: str = ""
    item: str = ""


class UserVerdict(Struct):
    """A typed answer."""

    good: bool
    words: str = ""


class UserRequest(Struct):
    """A step as a process receives it, with its actor and, if known, the item to decide."""

    step: Step
    actor: str = "ann"
    item: str | None = None
    readings: list[ReaderView] = []
    deleted: Callable[[str], None] = lambda name: None


Verb = Callable[[Any, UserRequest], Awaitable[Reply]]


def _text(step: Step) -> str:
    return step.text or f"#{step.tag} {step.program}"


def _options(step: Step) -> dict[str, Any]:
    options: dict[str, Any] = {"metadata": {"tag": step.tag}}
    if step.keyed:
        options["key"] = step.tag
    return options


# Messages


async def message(harness: Any, request: UserRequest) -> Reply:
    """Send a message, and wait for its run."""
    step = request.step
    session = await harness.get_or_create(step.session)
    options = _options(step)
    if step.action in ("steer", "interrupt"):
        options["busy"] = step.action
    elif step.action == "limited":
        options["limits"] = LIMITED[step.pick % len(LIMITED)]
    elif step.action == "typed":
        options["output_type"] = UserVerdict
    elif step.action == "modelled":
        options["model"] = OTHER_MODEL if step.pick % 4 else "simulated/unknown"
    result = await session.send(_text(step), **options)
    return Reply(result.status, run=result.run or "")


LIMITED = ({"steps": 1}, {"tokens": 20}, {"seconds": 0.4}, {"steps": 3, "seconds": 2.0})


async def post(harness: Any, request: UserRequest) -> Reply:
    """Send a message without waiting."""
    session = await harness.get_or_create(request.step.session)
    return Reply("accepted", await session.post(_text(request.step), **_options(request.step)))


async def attach(harness: Any, request: UserRequest) -> Reply:
    """Send a message with an image."""
    step = request.step
    session = await harness.get_or_create(step.session)
    image = Media(f"image {step.pick}".encode(), "image/png", "image.png")
    result = await session.send([_text(step), image], **_options(step))
    return Reply(result.status, run=result.run or "")


async def notify(harness: Any, request: UserRequest) -> Reply:
    """Send the model a notification from another program."""
    step = request.step
    session = await harness.get_or_create(step.session)
    priority = ("urgent", "high", "medium", "low")[step.pick % 4]
    await session.notifications.send("crm", "change", _text(step), priority=priority, key=step.tag)
    return Reply("accepted")


async def timer(harness: Any, request: UserRequest) -> Reply:
    """Set a timer for 1.5 seconds later, by the true time, or clear a timer."""
    step = request.step
    session = await harness.get_or_create(step.session)
    known = [*session.timers.all]
    if known and step.pick % 3 == 0:
        await session.timers.clear(known[0])
    else:
        await session.timers.set(_text(step), at=_true_time() + 1_500, id=step.tag)
    return Reply("accepted")


async def schedule(harness: Any, request: UserRequest) -> Reply:
    """Set, pause, resume or remove a recurring schedule."""
    step = request.step
    session = await harness.get_or_create(step.session)
    await schedules.change(session, step.tag, _text(step), step.pick, _true_time())
    return Reply("accepted")


def _true_time() -> int:
    """Return the time (ms), whatever the clock of the process says."""
    return int((EPOCH + this_process().cluster.scheduler.now) * 1000)


async def abort(harness: Any, request: UserRequest) -> Reply:
    """Stop the active run."""
    session = await harness.open(request.step.session)
    await session.abort("a user", key=request.step.tag)
    return Reply("accepted")


async def queue(harness: Any, request: UserRequest) -> Reply:
    """Edit, remove or move the last queued message."""
    step = request.step
    session = await harness.open(step.session)
    waiting = await session.queue.list()
    if not waiting:
        return Reply("nothing")
    last = waiting[-1].seq
    if step.pick % 3 == 0:
        await session.queue.remove(last)
    elif step.pick % 3 == 1:
        await session.queue.reorder([last])
    else:
        await session.queue.edit(last, _text(step))
    return Reply("accepted", last)


# Decisions


async def find_item(harness: Any, request: UserRequest) -> str | None:
    """Return the id of a pending item, or None if no item is pending within `WATCH` seconds."""
    session = await harness.open(request.step.session)
    for _ in range(int(WATCH / 0.25)):
        asks = [ask for ask in await session.pending() if not ask.id.endswith("!sub")]
        if asks:
            found: str = asks[request.step.pick % len(asks)].id
            return found
        await asyncio.sleep(0.25)
    return None


async def decide(harness: Any, request: UserRequest) -> Reply:
    """Approve, deny, answer or extend the item of the request, or else any pending item."""
    step, item = request.step, request.item or await find_item(harness, request)
    if item is None:
        return Reply("nothing")
    session = await harness.open(step.session)
    who = {"actor": request.actor}
    if step.action == "extend":
        await session.extend(item, None if step.pick % 2 else 30.0, **who)
        return Reply("extended")
    try:
        if step.action == "answer":
            made = await session.answer("yes", item, **who)
        elif step.action == "deny":
            made = await session.deny(item, "no", **who)
        else:
            changed = {"n": 2} if step.pick % 5 == 4 else None
            made = await session.approve(item, arguments=changed, **who)
    except InvalidValue:  # the item needs another kind of answer
        made = await session.deny(item, "no", **who)
    return Reply("voted" if made.outcome == "voted" else "decided", made.seq, item=item)


async def respond(harness: Any, request: UserRequest) -> Reply:
    """Approve the oldest call, and all calls of its category from now on."""
    session = await harness.open(request.step.session)
    await session.respond_to_approval("always_allow_category", actor=request.actor)
    return Reply("accepted")


async def settle(harness: Any, decided: Callable[[str, str], None], scheduled: bool) -> None:
    """Decide all pending items, as an operator would, and remove schedules that have fired if there
    are any. `decided` is called with the session and the id of each item.
    """
    page = await harness.pending(limit=50)
    for n, item in enumerate(page.items):
        if item.what == "external" and item.id.endswith("!sub"):
            continue
        with suppress(AlreadyDecided, NotPending, SessionNotFound, LogReplaced):
            if await _settle_one(harness, item, n):
                decided(item.session, item.id)
    if scheduled:
        await schedules.remove_fired(harness, _true_time())


async def _settle_one(harness: Any, item: Any, n: int) -> bool:
    where = {"thread": item.thread}
    if item.what == "approval" and n % 4 != 3:
        for actor in ("cat", "dan"):  # the second actor, for items that need two approvals
            with suppress(AlreadyDecided):
                decision = await harness.approve(item.session, item.id, actor=actor, **where)
                if decision.outcome != "voted":
                    return True
        return False
    if ids.is_budget(item.id):
        await harness.answer(item.session, EXTENSION, item.id, actor="cat", **where)
    elif item.what == "approval":
        await harness.deny(item.session, item.id, reason="no", actor="cat", **where)
    else:
        await harness.answer(item.session, "yes", item.id, actor="cat", **where)
    return True


async def rule(harness: Any, request: UserRequest) -> Reply:
    """Change the approval rule of a tool, or grant the tool."""
    step = request.step
    session = await harness.get_or_create(step.session)
    tool = ("refund", "charge", "wire", "note")[step.pick % 4]
    if step.pick % 3 == 0:
        await session.grant_tool(tool)
    else:
        which = ("allow", "ask", "deny", None)[(step.pick + step.pick // 60) % 4]
        await session.permissions.set(tool=tool, rule=which)
    return Reply("accepted")


# Settings


async def mode(harness: Any, request: UserRequest) -> Reply:
    """Switch to the other mode."""
    session = await harness.get_or_create(request.step.session)
    await session.mode.switch("plain" if session.mode.name == "brief" else "brief")
    return Reply("accepted")


async def model(harness: Any, request: UserRequest) -> Reply:
    """Choose another model, or none."""
    session = await harness.get_or_create(request.step.session)
    if session.model.chosen is None:
        await session.model.set(OTHER_MODEL)
    else:
        await session.model.clear()
    return Reply("accepted")


async def state(harness: Any, request: UserRequest) -> Reply:
    """Increment a counter in the user state."""
    session = await harness.get_or_create(request.step.session)

    def add(entries: dict[str, Any]) -> None:
        entries["count"] = entries.get("count", 0) + 1

    await session.state.update(add)
    return Reply("accepted")


# Readers


async def read(harness: Any, request: UserRequest) -> Reply:
    """Follow the log from its beginning, slower than it grows."""
    step = request.step
    session = await harness.open(step.session)
    reading = ReaderView(step.session, 0, session._core.live.log, [])
    request.readings.append(reading)
    listener = session.subscribe(after=0)
    with closing(listener), suppress(TimeoutError):
        async with asyncio.timeout(1.0 + step.pick % 4):
            async for item in listener:
                if isinstance(item, Event):
                    reading.seqs.append(item.seq)
                if len(reading.seqs) % 5 == 4:
                    await asyncio.sleep(0.3)  # fall behind the log
    return Reply("read", len(reading.seqs))


async def vanish(harness: Any, request: UserRequest) -> Reply:
    """Send a message, and stop reading its stream before the run has ended."""
    step = request.step
    session = await harness.get_or_create(step.session)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.02 * (1 + step.pick)):
            stream = session.stream(_text(step), **_options(step))
            async with aclosing(aiter(stream)) as items:
                async for _ in items:
                    pass
    return Reply("left")


async def look(harness: Any, request: UserRequest) -> Reply:
    """Read everything that a user interface shows, and evict idle sessions."""
    session = await harness.open(request.step.session)
    session.display.get()
    await session.transcript()
    await session.usage.table()
    await harness.list()
    await harness.evict(0.5)
    return Reply("seen")


async def find(harness: Any, request: UserRequest) -> Reply:
    """Look up the number of an event, the logs that contain it, and the row of the session."""
    session = await harness.open(request.step.session)
    key, log = session.key, session._core.live.log
    events = await session.events()
    event = events[request.step.pick % len(events)]
    ids = [event.id, events[-1].id, "unknown"]
    known = await harness.store.seqs(key, ids, log=log)
    logs = await harness.store.locate(key.tenant, event.id)
    row, none = await harness.store.rows([key, replace(key, thread="unknown")])
    wrong = ""
    if known != {event.id: event.seq, events[-1].id: events[-1].seq}:
        wrong = f"wrong numbers: {known}"
    elif key not in logs:
        wrong = f"wrong logs: {logs}"
    elif none is not None or row is None or row.head < events[-1].seq:
        wrong = f"wrong rows: {row}, {none}"
    return Reply(wrong or "found", event.seq, item=event.id)


async def close(harness: Any, request: UserRequest) -> Reply:
    """Close the live session in this process, even if this process drives its run."""
    await harness.close(request.step.session, grace=0.1 * (request.step.pick % 4))
    return Reply("closed")


# Threads, copies and deletion


async def fork(harness: Any, request: UserRequest) -> Reply:
    """Fork the thread at its last safe point, and continue in the fork."""
    step = request.step
    session = await harness.open(step.session)
    forked = await session.thread.clone("fork", id=f"t{step.tag}")
    result = await forked.send(_text(step), key=step.tag)
    return Reply(f"forked {result.status}")


async def again(harness: Any, request: UserRequest) -> Reply:
    """Run an earlier message again in a fork, with another text or unchanged."""
    step = request.step
    session = await harness.open(step.session)
    sent = await session.events(kinds=("message.received",))
    if not sent:
        return Reply("nothing")
    seq = sent[step.pick % len(sent)].seq
    if step.action == "edit":
        forked = await session.thread.edit(seq, _text(step), thread=f"e{step.tag}")
    else:
        forked = await session.thread.regenerate(seq, thread=f"r{step.tag}")
    result = await forked.wait()
    return Reply(f"again {result.status}")


async def restore(harness: Any, request: UserRequest) -> Reply:
    """Create a checkpoint, and restore the first checkpoint."""
    session = await harness.get_or_create(request.step.session)
    made = await session.checkpoints.create("here")
    known = await session.checkpoints.list()
    await session.thread.restore((known or [made])[0].id)
    return Reply("restored")


async def rewind(harness: Any, request: UserRequest) -> Reply:
    """Rewind to an earlier event, after an abort or while a run or an item may be open."""
    step = request.step
    session = await harness.get_or_create(step.session)
    if step.pick % 4:
        await session.abort(key=step.tag)
    for _ in range(5):
        events = await session.events()
        with suppress(SessionBusy):
            seq = await session.rewind((7 * step.pick) % (len(events) + 1), key=step.tag)
            return Reply("rewound", seq)
        await asyncio.sleep(0.3)
    return Reply("busy")


async def copy(harness: Any, request: UserRequest) -> Reply:
    """Copy the session to another store, import it as a bundle under another id, and send a message
    to the imported session."""
    step = request.step
    session = await harness.open(step.session)
    scope = Scope(session.key.tenant, step.session)
    await copy_session(harness.store, this_process().cluster.archive, scope)
    bundle = await export_bundle((harness.store, scope), "local", purpose="copy")
    name = f"{step.session}-{step.tag}"
    await import_bundle(harness.store, bundle, session=name, names=False)
    copied = await harness.open(name)
    result = await copied.send(_text(step), key=step.tag)
    return Reply(f"copied {result.status}")


async def delete(harness: Any, request: UserRequest) -> Reply:
    """Delete the session."""
    request.deleted(request.step.session)
    await harness.delete(request.step.session)
    return Reply("deleted")


async def erase(harness: Any, request: UserRequest) -> Reply:
    """Erase the data of some events, and stop the active run, which may not be able to continue
    without them. Much of what the judges check is no longer in the log, as after a delete."""
    step = request.step
    session = await harness.open(step.session)
    request.deleted(step.session)
    events = await session.events()
    seqs = [e.seq for e in events if e.kind in ERASABLE and (e.seq + step.pick) % 3]
    await harness.store.erase(session.key, seqs, reason="a user asked for it")
    await asyncio.sleep(0.5 + step.pick % 8)
    await session.abort("erased", key=step.tag)
    return Reply("erased", len(seqs))


async def newer(harness: Any, request: UserRequest) -> Reply:
    """Write an event of a newer version, after which no driver continues, and delete the session
    some time later."""
    step = request.step
    session = await harness.get_or_create(step.session)
    request.deleted(step.session)
    event = NewEvent.of("run.postponed", {}, id=step.tag)
    await harness.store.append(session.key, [event])
    await asyncio.sleep(4.0)
    await harness.delete(step.session)
    return Reply("deleted")


async def delete_thread(harness: Any, request: UserRequest) -> Reply:
    """Delete a fork."""
    session = await harness.open(request.step.session)
    page = await session.thread.list(subagents=False)
    forks = [row.thread for row in page.items if row.thread != "main"]
    if not forks:
        return Reply("nothing")
    request.deleted(f"{request.step.session}/{forks[0]}")
    await session.thread.delete(forks[0])
    return Reply("deleted")


VERBS: dict[str, Verb] = {
    **dict.fromkeys(("send", "steer", "interrupt", "limited", "typed", "modelled"), message),
    **dict.fromkeys(("approve", "deny", "answer", "extend", "duel"), decide),
    **dict.fromkeys(("edit", "regenerate"), again),
    "post": post, "notify": notify, "timer": timer, "abort": abort, "queue": queue,
    "respond": respond, "rule": rule, "mode": mode, "model": model, "state": state,
    "read": read, "vanish": vanish, "look": look, "find": find, "close": close, "attach": attach,
    "fork": fork, "restore": restore, "rewind": rewind, "copy": copy, "delete": delete,
    "delete_thread": delete_thread, "schedule": schedule, "erase": erase, "newer": newer,
}  # fmt: skip

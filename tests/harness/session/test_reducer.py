"""The display as a value: what each event does to it, and that it is the same however made."""

from __future__ import annotations

import ast
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Harness
from holdfast.events import KINDS, Event, NewEvent
from holdfast.harness.loop.detached import thread_of
from holdfast.log.state import fold
from holdfast.models import ScriptedModel
from holdfast.state import ENTRIES, OPERATIONS
from holdfast.values.delta import Delta, TextPieces
from holdfast.values.display import (
    TOOLS,
    Display,
    LiveDisplay,
    Said,
    display_of,
    from_json,
    in_flight,
    reduce,
    since,
    to_json,
)

from .stage import WORK, anew, played, worked, workshop


def event(seq: int, kind: str, data: Any = None, run: str | None = "r", **rest: Any) -> Event:
    new = NewEvent.of(kind, data or {})
    return Event(seq=seq, at=seq, kind=kind, data=new.data, run=run, **rest)


CALL = {"id": "c", "name": "pay", "arguments": {"amount": 1}}
BEGUN = [
    event(1, "session.created", {"agent": "a"}, None),
    event(2, "message.received", {"text": "go"}, None),
    event(3, "run.started", {"inputs": [2]}),
    event(4, "model.called", {"model": "m/m"}),
    event(5, "message.completed", {"text": "Hm.", "calls": [CALL]}, id="said"),
    event(6, "pending.opened", {"id": "i", "what": "approval", "call": "c", "title": "Pay?"}),
    event(7, "task.changed", {"tasks": [{"id": "t", "content": "Do"}]}),
]
FLYING = {"message"}
# What an event of each kind does to a display that is in the middle of all, but for the head.
EFFECTS: dict[str, tuple[Any, set[str]]] = {
    "session.created": ({"agent": "a"}, set()),
    "session.touched": ({}, set()),
    "session.suspended": ({}, set()),
    "session.resumed": ({}, set()),
    "session.expired": ({}, set()),
    "session.pinned": ({}, set()),
    "session.held": ({}, set()),
    "session.timed": ({}, set()),
    "session.moved": ({"to": "x"}, set()),
    "session.reopened": ({}, set()),
    "session.adopted": ({"agent": "a"}, set()),
    "thread.created": ({}, set()),
    "thread.forked": (
        {"parent": "main", "at": 7},
        {"run", "phase", "running", "message", "tools", "pending"},
    ),
    "thread.rewound": ({"to": 2, "window": {}}, {"run", "phase", "running", "message", "tools"}),
    "thread.reported": ({"item": "x"}, set()),
    "thread.renamed": ({"title": "T"}, set()),
    "label.added": ({"label": "l"}, set()),
    "label.removed": ({"label": "l"}, set()),
    "metadata.changed": ({"set": {"a": 1}}, set()),
    "surface.attached": ({"surface": "web", "address": "1"}, set()),
    "surface.detached": ({"surface": "web", "address": "1"}, set()),
    "surface.hooked": ({"url": "https://example.com/"}, set()),
    "surface.unhooked": ({}, set()),
    "surface.delivered": ({"log": "l", "seq": 1}, set()),
    "surface.failed": ({"log": "l", "seq": 1}, set()),
    "message.received": ({"text": "more"}, {"queued"}),
    "message.completed": (
        {"text": "Well.", "calls": [{"id": "d", "name": "look"}], "usage": {"input_tokens": 3}},
        {"message", "tools", "usage"},
    ),
    "message.interrupted": ({"text": "We"}, {"message"}),
    "run.started": ({}, {"run", "message", "tools"}),
    "run.resumed": ({}, FLYING),
    "run.waiting": ({}, {"running", "phase"} | FLYING),
    "run.finished": (
        {"status": "failed", "code": "model_failed"},
        {"running", "phase", "error"} | FLYING,
    ),
    "abort.requested": ({}, set()),
    "model.called": ({"model": "m/m"}, FLYING),
    "tool.started": ({"call": "c", "name": "pay", "arguments": {"amount": 2}}, {"tools", "phase"}),
    "tool.nested": ({"call": {"id": "n", "name": "look"}, "parent": "c"}, {"tools"}),
    "tool.finished": ({"call": "c", "result": 7}, {"tools"}),
    "progress.reported": ({"call": "c", "data": 0.5}, {"tools"}),
    "pending.opened": ({"id": "j", "what": "question", "title": "Colour?"}, {"pending"}),
    "pending.settled": ({"id": "i", "outcome": "approved"}, {"pending", "tools"}),
    "pending.warned": ({"id": "i"}, set()),
    "pending.voted": ({"id": "i"}, set()),  # of nobody
    "pending.extended": ({"id": "i", "expires": 9}, {"pending"}),
    "queue.changed": ({"remove": [1]}, set()),
    "mode.changed": ({"mode": "build"}, {"mode", "model"}),
    "model.changed": ({"model": "x/y"}, {"model"}),
    "state.changed": ({"set": {"a": 1}}, set()),
    "permission.changed": ({"tools": {"pay": "deny"}}, set()),
    "grant.given": ({"driver": "d", "tool": "pay"}, set()),
    "grant.revoked": ({}, set()),
    "task.changed": (
        {"tasks": [{"id": "t", "content": "Do", "status": "completed"}]},
        {"tasks", "previous_tasks"},
    ),
    "context.built": ({"hash": "h"}, set()),
    "context.added": ({"id": "x", "content": "c"}, set()),
    "context.removed": ({"ids": ["x"]}, set()),
    "compaction.made": ({"upto": 1}, set()),
    "timer.set": ({"id": "x", "at": 1, "text": "t"}, set()),
    "timer.cleared": ({"id": "x"}, set()),
    "timer.fired": ({"id": "x"}, set()),
    "timer.planned": ({}, set()),
    "checkpoint.made": ({"id": "x"}, set()),
    "checkpoint.dropped": ({"id": "x"}, set()),
    "tool.probed": ({"call": "c", "outcome": "unknown"}, {"tools"}),
    "timer.scheduled": ({"name": "x", "text": "t", "next": 9, "every": 60_000}, {"schedules"}),
    "timer.unscheduled": ({"name": "x"}, set()),  # of none
    "timer.paused": ({"name": "x"}, set()),
    "timer.ticked": ({"name": "x", "due": 9, "next": 60_009}, set()),
    "run.charged": ({"usage": {"tokens": 1}}, set()),
    "run.warned": ({"budget": "user/day", "measure": "tokens", "share": 0.9}, {"budgets"}),
}
HIDDEN = {"head", "state", "said", "open"}
NAMED = Display(session="s", modes={"plan": "p/p", "build": "b/b"}, default="d/d")


def changed(before: Display, after: Display) -> set[str]:
    names = {f.name for f in msgspec.structs.fields(Display)}
    return {n for n in names if getattr(before, n) != getattr(after, n)} - HIDDEN


@pytest.mark.parity("mastra-session", 146)
def test_every_kind_has_a_defined_effect() -> None:
    assert EFFECTS.keys() == KINDS.keys()
    before = reduce(played(BEGUN, NAMED)[-1], Delta("next", 0, "And"))
    assert before.message is not None
    for kind, (data, effect) in EFFECTS.items():
        run = "other" if kind == "run.started" else "r"
        after = reduce(before, event(8, kind, data, run, id=f"{kind}!"))
        assert changed(before, after) == effect, kind
        assert after.head == 8
        erased = reduce(before, event(8, kind, {"erased": [1]}, run))
        assert erased.head == 8
    foreign = reduce(before, event(8, "elsewhere.happened"))
    assert changed(before, foreign) == set()
    assert reduce(before, BEGUN[0]) is before  # what it has seen before


@pytest.mark.parity("mastra-session", 67)
def test_what_waits_is_shown_until_it_is_settled() -> None:
    before = played(BEGUN)[-1]
    assert before.pending["i"].title == "Pay?"
    assert before.tools["c"].status == "waiting"
    after = reduce(before, event(8, "pending.settled", {"id": "i", "outcome": "approved"}))
    assert after.pending == {}
    assert before.pending.keys() == {"i"}
    assert after.tools["c"].status == "proposed"
    by_all = {"approved", "denied", "answered", "expired", "superseded", "abandoned"}
    for outcome in by_all:
        settled = event(8, "pending.settled", {"id": "i", "outcome": outcome})
        assert reduce(before, settled).pending == {}


def test_an_item_that_was_opened_before_the_run_keeps_its_words() -> None:
    early = {"id": "e", "what": "question", "title": "Colour?", "detail": {"options": ["red"]}}
    log = [*BEGUN[:2], event(3, "pending.opened", early, None), event(4, "run.started")]
    assert anew(log) == played(log)[-1]
    assert anew(log).pending["e"].detail == {"options": ["red"]}


@pytest.fixture
async def log() -> list[Event]:
    model = ScriptedModel(WORK, per_turn=True)
    async with Harness(workshop(), default_model=model) as harness:
        return await worked(await harness.get_or_create("s"))


@pytest.mark.parity("mastra-session", 143, 145)
async def test_made_anew_it_is_what_it_was_after_each_event(log: list[Event]) -> None:
    shown = played(log, NAMED)
    for n in range(len(log)):
        assert anew(log[: n + 1], NAMED) == shown[n]
        assert shown[n].head == log[n].seq
    kept = [to_json(display) for display in shown]
    assert kept == [to_json(display) for display in played(log, NAMED)]  # none changed meanwhile


async def test_a_client_goes_on_from_any_moment(log: list[Event]) -> None:
    shown = played(log, NAMED)
    for n in (1, len(log) // 2, len(log) - 1):
        there = from_json(to_json(shown[n]))
        assert there == shown[n]
        assert played(log[n + 1 :], there)[-1:] == shown[-1:] or n == len(log) - 1
        assert played(log[n - 1 :], there)[-1] == shown[-1]  # told twice, it counts once


async def test_a_stage_that_nobody_looked_at_comes_to_the_same(log: list[Event]) -> None:
    for most in (3, len(log)):
        stage, state = LiveDisplay(most), fold(log[:3])
        stage.begin(state, log[:3])
        stage.name(session="s", modes=NAMED.modes, default=NAMED.default)
        for item in log[3:]:
            state = fold((item,), state)
            stage.put(item, state)
        assert stage.now() == played(log, NAMED)[-1]


@pytest.mark.parity("mastra-session", 147)
def test_only_files_that_were_changed_are_shown_and_not_too_many() -> None:
    def ref(path: str, role: str, kind: str = "file") -> dict[str, str]:
        return {"kind": kind, "value": path, "role": role}

    log = [
        *BEGUN,
        event(8, "tool.finished", {"call": "c", "refs": [ref("a", "created")]}),
        event(9, "tool.finished", {"call": "d", "refs": [ref("a", "modified"), ref("r", "read")]}),
        event(
            10, "tool.finished", {"call": "e", "outcome": "failed", "refs": [ref("f", "created")]}
        ),
        event(11, "tool.finished", {"call": "f", "refs": [ref("u", "created", "url"), "odd", {}]}),
    ]
    files = played(log)[-1].files
    assert {path: (file.operations, file.at) for path, file in files.items()} == {
        "a": (("created", "modified"), 8)
    }
    many = [ref(str(n), "created") for n in range(ENTRIES + 5)] + [ref("9" * 2000, "created")]
    often = [ref("104", "modified")] * (OPERATIONS + 5)
    files = fold([*log, event(12, "tool.finished", {"call": "g", "refs": [*many, *often]})]).files
    assert len(files) == ENTRIES
    assert "a" not in files
    assert len(files["104"].operations) == OPERATIONS


def test_a_run_of_many_calls_shows_the_latest_and_those_that_are_open() -> None:
    log, seq = BEGUN[:4], 5
    for n in range(TOOLS + 20):
        calls = [{"id": f"c{n}", "name": "t"}]
        log.append(event(seq, "message.completed", {"calls": calls}))
        if n:  # the first never ends
            log.append(event(seq + 1, "tool.finished", {"call": f"c{n}"}))
        seq += 2
    log = [Event(**{**msgspec.structs.asdict(e), "seq": n + 1}) for n, e in enumerate(log)]
    tools = played(log)[-1].tools
    assert len(tools) <= TOOLS + 1
    assert {"c0", f"c{TOOLS + 19}"} <= tools.keys()
    assert "c1" not in tools


def test_the_first_outcome_of_a_call_counts() -> None:
    log = [
        *BEGUN,
        event(8, "tool.finished", {"call": "c", "result": 1}),
        event(9, "tool.finished", {"call": "c", "outcome": "failed", "error": "no"}),
        event(10, "progress.reported", {"call": "c", "data": 1}),
    ]
    shown = played(log)[-1].tools["c"]
    assert (shown.status, shown.result, shown.error, shown.progress) == ("done", 1, None, None)


def test_a_call_for_a_sub_agent_is_one() -> None:
    call = {"id": "k", "name": "subagent", "arguments": {"agent": "painter", "task": "Paint"}}
    log = [
        *BEGUN[:4],
        event(5, "message.completed", {"calls": [call]}),
        event(6, "tool.started", {"call": "k", "name": "subagent"}),
        event(
            7, "pending.opened", {"id": "k!sub", "what": "external", "call": "k", "parked": True}
        ),
        event(8, "tool.finished", {"call": "k", "result": "painted"}),
    ]
    shown = [
        (sub.agent, sub.thread, sub.status)
        for display in played(log)[4:]
        for sub in display.subagents.values()
    ]
    thread = thread_of("k")
    assert shown == [
        ("painter", None, "proposed"),
        ("painter", None, "running"),
        ("painter", thread, "waiting"),
        ("painter", thread, "done"),
    ]
    assert played(log)[6].pending == {}  # nobody is asked


# Text in flight


@pytest.mark.parity("mastra-session", 72, 78, 79)
def test_text_and_thoughts_grow_and_another_id_is_another_message() -> None:
    display = played(BEGUN[:4])[-1]
    for delta in (
        Delta("m", 0, "Hm", thought=True),
        Delta("m", 0, "m.", thought=True),
        Delta("m", 0, "One"),
        Delta("m", 3, " two"),
        Delta("m", 0, "One two three"),  # told again, with some more
        Delta("m", 99, "far"),  # what comes between is not known
    ):
        display = reduce(display, delta)
    assert display.message is not None
    assert (display.message.id, display.message.done) == ("m", False)
    assert (display.message.text, display.message.thought) == ("One two three", "Hmm.")
    assert display.message.body.since(8) == "three"
    other = reduce(display, Delta("n", 0, "Four"))
    assert other.message is not None
    assert (other.message.id, other.message.text) == ("n", "Four")
    assert display.message.text == "One two three"


def test_a_message_that_is_complete_is_not_told_again() -> None:
    display = played(BEGUN)[-1]
    assert reduce(display, Delta("said", 0, "Hm. And")) == display


def test_what_was_in_flight_goes_with_its_run_and_the_last_message_stays() -> None:
    display = reduce(played(BEGUN)[-1], Delta("next", 0, "And"))
    for kind in ("run.finished", "run.waiting", "run.resumed", "model.called"):
        after = reduce(display, event(8, kind, {"model": "m/m"}))
        assert after.message is not None
        assert (after.message.text, after.message.done) == ("Hm.", True)


def test_two_who_go_on_from_one_text_do_not_meet() -> None:
    start = TextPieces.of("a")
    left, right = start.plus("b"), start.plus("c")
    assert (str(start), str(left), str(right)) == ("a", "ab", "ac")
    assert left != right
    assert left == TextPieces.of("ab")
    assert hash(left) == hash(TextPieces.of("ab"))
    assert (len(left), left.since(0), left.since(1), left.since(2), left.since(9)) == (
        2,
        "ab",
        "b",
        "",
        "",
    )
    flying = Said(id="m", body=left)
    display = in_flight(Display(), flying)
    assert display_of(fold([]), [], flying).message == display.message


@pytest.mark.parity("mastra-session", 149)
@pytest.mark.parametrize("deltas", [500, 2_000, 8_000])
def test_all_displays_of_a_text_together_cost_what_the_text_costs(deltas: int) -> None:
    """Also for one who keeps every one of them, or sends each piece on."""
    display, piece = played(BEGUN[:4])[-1], "words "
    reduce(display, Delta("warm", 0, "up"))
    told = [Delta("m", n * len(piece), piece) for n in range(deltas)]
    kept, sent, read = [display], 0, 0
    tracemalloc.start()
    try:
        for delta in told:
            display = reduce(display, delta)
            kept.append(display)
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for delta, shown in zip(told, kept[1:], strict=True):
        sent += len(msgspec.json.encode(delta))
        assert shown.message is not None
        read += len(shown.message.body.since(delta.offset))
    assert display.message is not None
    assert len(display.message.text) == read == deltas * len(piece)
    assert sent <= 80 * deltas
    assert memory <= 2_000 * deltas


# Where it may be used


def test_it_needs_no_store_no_live_log_and_no_loop() -> None:
    root = Path(holdfast.__file__).parent
    # The environment can start a thread, but only a tool that is called does.
    todo, seen = [root / "values" / "display"], {root / "environment.py"}
    while todo:
        whole = todo.pop()
        path = whole / "__init__.py" if whole.is_dir() else whole.with_suffix(".py")
        if path in seen or not path.exists():  # a name in a module is no module
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {"asyncio", "threading"} & {alias.name for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom) and node.level:
                folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                todo += [folder] if node.module else []
                todo += [folder / alias.name for alias in node.names]
    parts = {path.relative_to(root).parts for path in seen}
    ours = {names[1] for names in parts if names[0] == "values"} - {"__init__.py"}
    assert ours == {"delta.py", "display.py", "risk.py", "usage.py"}
    below = {names[0].removesuffix(".py") for names in parts} - {"__init__"}
    assert below <= {"codec", "environment", "errors", "events", "log", "state", "values"}
    assert since(fold([])) == 1

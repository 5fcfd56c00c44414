"""Rows, queries and cursors: what each event changes, and which row answers which query."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from holdfast import events as ev
from holdfast.errors import InvalidValue
from holdfast.events import KINDS, Event, NewEvent, Payload
from holdfast.log import catalog
from holdfast.log.catalog import (
    MAPS,
    MOVES,
    PHASES,
    Move,
    Op,
    Pending,
    PendingQuery,
    Phase,
    Query,
    Row,
    RowChange,
    agrees,
    apply,
    check_query,
    make_cursor,
    matches,
    pending_items,
    pending_matches,
    project,
    read_cursor,
    row_terms,
    surface_name,
    term,
    terms,
    unseals,
)
from holdfast.log.catalog.encrypted_preview import PREVIEW
from holdfast.log.codec import LIMITS, erased

KIND_OF = {payload: kind for kind, payload in KINDS.items()}
NOW = 1_700_000_000_500  # ms
SECOND = NOW // 1000
ACTIVE = Op("latest", "active", value=SECOND)
ROW = Row(tenant="main", session="s", thread="main", log="l", created=NOW, active=SECOND)


def fact(payload: Payload, *, run: str | None = None, id: str = "i") -> NewEvent:
    return NewEvent.of(KIND_OF[type(payload)], payload, run=run, id=id)


def log(*facts: NewEvent) -> list[Event]:
    return [
        Event(**msgspec.structs.asdict(new), seq=seq, at=NOW) for seq, new in enumerate(facts, 1)
    ]


def after(*facts: NewEvent | Payload, row: Row = ROW) -> Row:
    """The row after these facts."""
    events = log(*(new if isinstance(new, NewEvent) else fact(new) for new in facts))
    return apply(row, events, [project(event) for event in events])


def with_ops(*ops: Op, row: Row = ROW) -> Row:
    return apply(row, log(NewEvent.of("note")), [ops])


# Events to operations, one line a kind

BINDING = '["slack","D42"]'
PROJECTED: list[tuple[Payload, RowChange]] = [
    (ev.SessionCreated(), (ACTIVE,)),
    (
        ev.SessionCreated(
            agent="shop",
            title="t",
            user="u",
            workspace="w",
            ttl=60,
            labels=["vip"],
            metadata={"plan": "pro"},
        ),
        (
            ACTIVE,
            Op("set", "agent", value="shop"),
            Op("set", "title", value="t"),
            Op("set", "user", value="u"),
            Op("set", "workspace", value="w"),
            Op("set", "ttl", value=60),
            Op("put", "labels", "vip", True),
            Op("put", "metadata", "plan", "pro"),
        ),
    ),
    (
        ev.ThreadRewound(to=3, window=ev.RewoundWindow(), due=5, messages=2),
        (
            ACTIVE,
            Op("set", "run", value=None),
            Op("set", "due", value=5),
            Op("put", "counts", "messages", 2),
        ),
    ),
    (
        ev.ThreadRewound(to=0, window=ev.RewoundWindow(), first=""),
        (
            ACTIVE,
            Op("set", "run", value=None),
            Op("set", "due", value=None),
            Op("put", "counts", "messages", 0),
            Op("set", "first_message", value=None),
        ),
    ),
    (
        ev.ThreadRewound(to=3, window=ev.RewoundWindow(), messages=1, first="x" * (PREVIEW + 1)),
        (
            ACTIVE,
            Op("set", "run", value=None),
            Op("set", "due", value=None),
            Op("put", "counts", "messages", 1),
            Op("set", "first_message", value="x" * PREVIEW),
        ),
    ),
    (ev.SessionTouched(), (ACTIVE, Op("move", "phase", value="touch"))),
    (ev.SessionSuspended(reason="stale"), (Op("move", "phase", value="suspend"),)),
    (ev.SessionResumed(), (ACTIVE, Op("move", "phase", value="resume"))),
    (ev.SessionExpired(), (Op("move", "phase", value="expire"),)),
    (ev.SessionPinned(), (Op("set", "pinned", value=True),)),
    (ev.SessionHeld(hold="lawsuit"), (Op("set", "hold", value="lawsuit"),)),
    (
        ev.SessionTimed(ttl=60, expiry=90),
        (Op("set", "ttl", value=60), Op("set", "expiry", value=90)),
    ),
    (ev.SessionMovedTo(to="there"), (Op("seal", "sealed", value="there"),)),
    (
        ev.SessionReopened(),
        (ACTIVE, Op("seal", "sealed", value=None), Op("move", "phase", value="reopen")),
    ),
    (
        ev.SessionAdopted(agent="shop"),
        (ACTIVE, Op("set", "due", value=None), Op("set", "agent", value="shop")),
    ),
    (
        ev.ThreadCreated(agent="a", title="t", parent="main"),
        (
            ACTIVE,
            Op("set", "agent", value="a"),
            Op("set", "title", value="t"),
            Op("set", "parent", value={"thread": "main"}),
        ),
    ),
    (
        ev.ThreadForked(parent="main", at=7, agent="a"),
        (
            ACTIVE,
            Op("set", "agent", value="a"),
            Op("set", "title", value=None),
            Op("set", "parent", value={"thread": "main", "at": 7}),
        ),
    ),
    (ev.ThreadReported(item="c!sub", due=9), (ACTIVE, Op("set", "due", value=9))),
    (ev.ThreadRenamed(title="t"), (Op("set", "title", value="t"),)),
    (ev.LabelAdded(label="vip"), (Op("put", "labels", "vip", True),)),
    (ev.LabelRemoved(label="vip"), (Op("drop", "labels", "vip"),)),
    (
        ev.MetadataChanged(set={"a": 1}, drop=["b"]),
        (Op("drop", "metadata", "b"), Op("put", "metadata", "a", 1)),
    ),
    (
        ev.SurfaceAttached(surface="slack", address="D42", detail={"team": "T"}),
        (ACTIVE, Op("put", "surfaces", BINDING, {"at": NOW, "team": "T"})),
    ),
    (
        ev.SurfaceAttached(surface="slack", address="D42", touch=False),
        (Op("put", "surfaces", BINDING, {"at": NOW}),),
    ),
    (ev.SurfaceDetached(surface="slack", address="D42"), (Op("drop", "surfaces", BINDING),)),
    (
        ev.MessageReceived(text="x" * 300),
        (
            ACTIVE,
            Op("set_once", "first_message", value="x" * 200),
            Op("add", "counts", "messages", 1),
            Op("move", "phase", value="touch"),
            Op("set", "due", value=NOW),
        ),
    ),
    (
        ev.MessageCompleted(text="done", usage={"in": 3}),
        (
            ACTIVE,
            Op("drop_draft", "drafts", "i"),
            Op("add", "counts", "messages", 1),
            Op("add", "usage", "in", 3),
            Op("set", "due", value=None),
        ),
    ),
    (
        ev.MessageCompleted(calls=[ev.Call(id="c", name="n"), ev.Call(id="d", name="n")]),
        (
            ACTIVE,
            Op("drop_draft", "drafts", "i"),
            Op("add", "counts", "messages", 1),
            Op("add", "counts", "calls", 2),
        ),
    ),
    (ev.MessageInterrupted(text="I"), (ACTIVE, Op("drop_draft", "drafts", "i"))),
    (
        ev.RunStarted(),
        (ACTIVE, Op("set", "run", value="running"), Op("add", "counts", "runs", 1)),
    ),
    (
        ev.RunWaiting(due=9),
        (ACTIVE, Op("set", "run", value="waiting"), Op("set", "due", value=9)),
    ),
    (
        ev.RunFinished(status="failed"),
        (ACTIVE, Op("set", "run", value="failed"), Op("set", "due", value=None)),
    ),
    (ev.RunResumed(), (ACTIVE, Op("set", "run", value="running"))),
    (ev.AbortRequested(), (ACTIVE, Op("set", "due", value=NOW))),
    (ev.ModelCalled(model="a/b"), (ACTIVE,)),
    (ev.ToolStarted(call="c", name="n"), (ACTIVE,)),
    (ev.ToolNested(call=ev.Call(id="d", name="n"), parent="c"), (ACTIVE,)),
    (ev.ProgressReported(call="c"), (ACTIVE,)),
    (ev.PendingWarned(id="p"), (ACTIVE,)),
    (ev.PendingVoted(id="p"), (ACTIVE,)),
    (ev.PendingExtended(id="p"), (ACTIVE, Op("set", "due", value=NOW))),
    (ev.QueueChanged(), (ACTIVE, Op("set", "due", value=NOW))),
    (ev.ModeChanged(mode="plan"), (ACTIVE,)),
    (ev.ModelChanged(), (ACTIVE,)),
    (ev.StateChanged(), (ACTIVE,)),
    (ev.PermissionChanged(tools={"t": "deny"}), (ACTIVE,)),
    (ev.GrantGiven(driver="d", tool="t"), (ACTIVE,)),
    (ev.GrantRevoked(), (ACTIVE,)),
    (ev.TaskChanged(), (ACTIVE,)),
    (ev.ContextBuilt(hash="h"), (ACTIVE,)),
    (ev.ContextAdded(id="a", content="c"), (ACTIVE,)),
    (ev.ContextRemoved(ids=["a"]), (ACTIVE,)),
    (ev.CompactionMade(upto=1), (ACTIVE,)),
    (ev.TimerSet(id="t", at=9, text="hi"), (ACTIVE, Op("set", "due", value=NOW))),
    (ev.TimerCleared(id="t"), (ACTIVE, Op("set", "due", value=NOW))),
    (ev.TimerFired(id="t"), (ACTIVE,)),
    (ev.TimerPlanned(due=9), (Op("set", "due", value=9),)),
    (ev.CheckpointMade(id="c"), ()),
    (ev.CheckpointDropped(id="c"), ()),
    (ev.ToolProbed(call="c", outcome="unknown"), (ACTIVE,)),
    (
        ev.TimerScheduled(name="t", text="hi", next=9, every=60_000),
        (ACTIVE, Op("set", "due", value=NOW)),
    ),
    (ev.TimerUnscheduled(name="t"), (ACTIVE, Op("set", "due", value=NOW))),
    (ev.TimerPaused(name="t"), (ACTIVE, Op("set", "due", value=NOW))),
    (ev.TimerTicked(name="t", due=9, next=60_009), ()),
    (ev.RunCharged(usage={"tokens": 3}), (ACTIVE, Op("add", "usage", "tokens", 3))),
    (ev.RunWarned(budget="user/day", measure="tokens"), (ACTIVE,)),
    (ev.SurfaceHooked(url="u", due=9), (ACTIVE, Op("set", "due", value=9))),
    (ev.SurfaceUnhooked(), (ACTIVE,)),
    (
        ev.SurfaceDelivered(looked=7, seq=3),
        (
            ACTIVE,
            Op("put", "counts", "looked", 7),
            Op("put", "counts", "delivered", 3),
            Op("set", "due", value=None),
        ),
    ),
    (
        ev.SurfaceFailed(seq=3, due=9, dead=True),
        (ACTIVE, Op("set", "due", value=9), Op("put", "counts", "delivered", 3)),
    ),
    (ev.ToolFinished(call="c"), (ACTIVE,)),
    (
        ev.PendingOpened(id="p", what="plan"),
        (ACTIVE, Op("put_once", "pending", "p", {"what": "plan", "at": NOW, "seq": 1})),
    ),
    (
        ev.PendingSettled(id="p", outcome="approved"),
        (
            ACTIVE,
            Op("drop", "pending", "p"),
            Op("set", "due", value=NOW),
            Op("move", "phase", value="revive"),
        ),
    ),
]


@pytest.mark.parametrize(
    ("payload", "change"), PROJECTED, ids=[KIND_OF[type(payload)] for payload, _ in PROJECTED]
)
def test_each_kind_changes_its_row_like_this(payload: Payload, change: RowChange) -> None:
    assert project(log(fact(payload))[0]) == change


def test_every_kind_is_tried_here() -> None:
    assert {type(payload) for payload, _ in PROJECTED} == set(KINDS.values())


def test_an_answer_inside_a_run_leaves_the_next_due_time_to_the_run() -> None:
    change = project(log(fact(ev.MessageCompleted(text="done"), run="r"))[0])
    assert not [op for op in change if op.field == "due"]


@pytest.mark.parametrize(
    "new",
    [
        NewEvent.of("claude.entry", {"any": 1}),
        NewEvent.of("message.received", {"text": "hi"}, v=2),
        NewEvent.of("thread.forked", {"parent": 7}),
        msgspec.structs.replace(NewEvent.of("tool.started"), data=erased("asked for")),
    ],
    ids=["foreign", "too new", "another shape", "erased"],
)
def test_what_cannot_be_read_is_activity_and_nothing_more(new: NewEvent) -> None:
    assert project(log(new)[0]) == (ACTIVE,)


def test_operations_are_plain_json() -> None:
    changes = [project(log(fact(payload))[0]) for payload, _ in PROJECTED]
    text = msgspec.json.encode(changes)
    again = msgspec.json.decode(text, type=list[list[Op]])
    assert msgspec.json.encode(again) == text
    assert msgspec.json.encode(Op("put", "labels", "vip", True)) == b'["put","labels","vip",true]'


# Operations to rows


def test_set_replaces_and_set_once_does_not() -> None:
    row = with_ops(Op("set", "title", value="a"), Op("set_once", "title", value="b"))
    assert row.title == "a"
    assert with_ops(Op("set", "title", value="c"), row=row).title == "c"
    assert with_ops(Op("set_once", "title", value="b")).title == "b"


def test_add_counts_up_from_nothing() -> None:
    add = Op("add", "counts", "messages", 2)
    assert with_ops(add, row=with_ops(add, add)).counts == {"messages": 6}


def test_latest_never_goes_back() -> None:
    assert with_ops(Op("latest", "active", value=SECOND - 5)).active == SECOND
    assert with_ops(Op("latest", "active", value=SECOND + 5)).active == SECOND + 5


def test_put_and_drop_change_one_entry_of_a_map() -> None:
    row = with_ops(Op("put", "metadata", "a", 1), Op("put", "metadata", "b", [2]))
    row = with_ops(Op("drop", "metadata", "a"), Op("drop", "metadata", "never"), row=row)
    assert row.metadata == {"b": [2]}


def test_seal_closes_and_opens_a_log() -> None:
    sealed = with_ops(Op("seal", "sealed", value="there"))
    assert sealed.sealed == "there"
    assert with_ops(Op("seal", "sealed", value=None), row=sealed).sealed is None
    assert unseals((ACTIVE, Op("seal", "sealed", value=None)))
    assert not unseals((Op("seal", "sealed", value="there"),))
    assert not unseals(())


def test_dropping_a_draft_is_the_stores_work_and_leaves_the_row_alone() -> None:
    row = with_ops(Op("drop_draft", "drafts", "i"))
    assert row == msgspec.structs.replace(ROW, head=1, last=NOW, bytes=2)


def test_head_time_and_bytes_follow_the_events() -> None:
    events = log(NewEvent.of("note", "12345678"), NewEvent.of("note"))
    row = apply(msgspec.structs.replace(ROW, bytes=100), events, [(), ()])
    assert (row.head, row.last, row.bytes) == (2, NOW, 112)


def test_applying_leaves_the_row_before_as_it_was() -> None:
    row = after(ev.LabelAdded(label="a"), ev.MessageCompleted(usage={"in": 1}))
    before = msgspec.json.encode(row)
    after(ev.LabelAdded(label="b"), ev.MessageCompleted(usage={"in": 1}), row=row)
    assert msgspec.json.encode(row) == before


def test_the_first_message_stays_first() -> None:
    row = after(ev.MessageReceived(text="one"), ev.MessageReceived(text="two"))
    assert row.first_message == "one"
    assert row.counts == {"messages": 2}


def test_a_message_without_text_leaves_the_preview_to_the_next() -> None:
    wiped = msgspec.structs.replace(fact(ev.MessageReceived(text="me")), data=erased("asked for"))
    row = after(wiped, ev.MessageReceived(parts=[{"image": "x"}]), ev.MessageReceived(text="hi"))
    assert row.first_message == "hi"


def test_a_row_is_plain_json_and_comes_back_equal() -> None:
    row = after(*(payload for payload, _ in PROJECTED))
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row) == row


# Limits of maps


@pytest.mark.parametrize("name", MAPS)
def test_a_map_holds_at_most_100_entries(name: str) -> None:
    full = [Op("put", name, str(n), True) for n in range(100)]
    row = with_ops(*full)
    with pytest.raises(InvalidValue) as refused:
        with_ops(Op("put", name, "one more", True), row=row)
    assert (refused.value.field, refused.value.limit) == (name, LIMITS.map_entries)
    with_ops(Op("drop", name, "0"), Op("put", name, "one more", True), row=row)


@pytest.mark.parametrize(("name", "limit"), [(name, 16 << 10) for name in MAPS[:3]])
def test_a_map_holds_at_most_16_kib(name: str, limit: int) -> None:
    with_ops(Op("put", name, "k", "x" * (limit - len('{"k":""}'))))
    with pytest.raises(InvalidValue) as refused:
        with_ops(Op("put", name, "k", "x" * (limit - len('{"k":""}') + 1)))
    assert (refused.value.field, refused.value.limit) == (name, limit)


def test_the_pending_map_has_room_for_a_hundred_titles() -> None:
    facts = [
        fact(ev.PendingOpened(id=f"{n:036}", what="external", call="c" * 36, title="t" * 999))
        for n in range(100)
    ]
    row = after(*facts)
    assert {len(item["title"]) for item in row.pending.values()} == {PREVIEW}


def test_a_full_map_may_still_shrink() -> None:
    labels = [fact(ev.LabelAdded(label=str(n))) for n in range(100)]
    assert len(after(ev.LabelRemoved(label="7"), row=after(*labels)).labels) == 99


# What is derived


BUSY: list[dict[str, Any]] = [
    {"ttl": None},
    {"run": "running"},
    {"run": "waiting"},
    {"pending": {"p": {}}},
    {"due": NOW},
    {"pinned": True},
    {"phase": "suspended"},
    {"phase": "expired"},
    {"sealed": "there"},
]


@pytest.mark.parametrize("phase", ["created", "active"])
@pytest.mark.parametrize("run", [None, "done", "failed", "aborted", "interrupted"])
def test_an_idle_session_grows_stale_ttl_seconds_after_its_last_activity(
    phase: str, run: str | None
) -> None:
    row = msgspec.structs.replace(ROW, ttl=60, phase=phase, run=run)
    assert catalog.stale_at(row) == SECOND + 60
    assert after(ev.ToolFinished(call="c"), row=row).stale_at == SECOND + 60


@pytest.mark.parametrize("busy", BUSY, ids=lambda busy: next(iter(busy)))
def test_a_session_does_not_grow_stale_while_anything_is_going_on(busy: dict[str, Any]) -> None:
    row = msgspec.structs.replace(ROW, **{"ttl": 60, **busy})
    assert catalog.stale_at(row) is None


@pytest.mark.parametrize(
    ("fields", "wake"),
    [
        ({}, None),
        ({"run": "running"}, 0),
        ({"run": "running", "due": NOW}, 0),
        ({"run": "waiting"}, None),
        ({"run": "waiting", "due": NOW}, NOW),
        ({"run": "done", "due": NOW}, NOW),
        ({"run": "running", "sealed": "there"}, None),
        ({"due": NOW, "sealed": "there"}, None),
    ],
)
def test_a_log_wants_a_driver_for_an_open_run_or_from_its_due_time_on(
    fields: dict[str, Any], wake: int | None
) -> None:
    assert catalog.wake(msgspec.structs.replace(ROW, **fields)) == wake


def test_a_message_wakes_a_driver_and_the_runs_end_lets_it_go() -> None:
    asked = after(ev.MessageReceived(text="hi"))
    assert asked.wake == NOW
    running = after(fact(ev.RunStarted(), run="r"), row=asked)
    assert running.wake == 0
    assert after(fact(ev.RunFinished(), run="r"), row=running).wake is None


# Surfaces


def test_no_two_bindings_share_a_name() -> None:
    bindings = [("a", "b"), ("a,b", ""), ('a","b', ""), ("", "ab"), ("ab", ""), ("a", 'b"]')]
    assert len({surface_name(*binding) for binding in bindings}) == len(bindings)


# Queries


FULL = after(
    ev.SessionCreated(
        agent="shop",
        user="u",
        workspace="w",
        ttl=60,
        labels=["vip"],
        metadata={"plan": "pro", "seats": 5, "nested": {"b": 1, "a": 2}},
    ),
    ev.SurfaceAttached(surface="slack", address="D42"),
    ev.RunFinished(),
)

ANSWERED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # what FULL answers, and what it does not
    ({}, {"tenant": "acme"}),
    ({"session": "s"}, {"session": "other"}),
    ({"user": "u"}, {"user": "v"}),
    ({"workspace": "w"}, {"workspace": "v"}),
    ({"agent": "shop"}, {"agent": "help"}),
    ({"run": "done"}, {"run": "running"}),
    ({"phases": ("active", "created")}, {"phases": ("suspended",)}),
    ({"label": "vip"}, {"label": "VIP"}),
    ({"surface": ("slack", "D42")}, {"surface": ("slack", "D4")}),
    ({"metadata": {"plan": "pro", "seats": 5}}, {"metadata": {"plan": "pro", "seats": 6}}),
    ({"metadata": {"nested": {"a": 2, "b": 1}}}, {"metadata": {"nested": {"a": 2}}}),
    ({"metadata": {}}, {"metadata": {"absent": None}}),
    ({"created_from": NOW}, {"created_from": NOW + 1}),
    ({"created_until": NOW + 1}, {"created_until": NOW}),
    ({"active_from": SECOND}, {"active_from": SECOND + 1}),
    ({"active_until": SECOND + 1}, {"active_until": SECOND}),
    ({"stale_until": SECOND + 61}, {"stale_until": SECOND + 60}),
    ({"user": "u", "label": "vip"}, {"user": "u", "label": "new"}),
]


@pytest.mark.parametrize(("yes", "no"), ANSWERED, ids=[repr(yes) for yes, _ in ANSWERED])
def test_a_row_answers_a_query_when_each_condition_holds(
    yes: dict[str, Any], no: dict[str, Any]
) -> None:
    assert matches(Query(**yes), FULL)
    assert not matches(Query(**no), FULL)


def test_sessions_are_listed_by_their_main_thread_and_threads_by_their_session() -> None:
    side = msgspec.structs.replace(FULL, thread="side")
    assert not matches(Query(), side)
    assert matches(Query(session="s"), side)


def test_a_row_that_never_grows_stale_is_in_no_range_of_staleness() -> None:
    assert not matches(Query(stale_until=2**62), ROW)


def test_a_row_offers_every_condition_that_it_answers() -> None:
    query = Query(label="vip", surface=("slack", "D42"), metadata={"plan": "pro"})
    assert sorted(terms(query)) == [
        ("labels", "vip", "true"),
        ("metadata", "plan", '"pro"'),
        ("surfaces", BINDING, "null"),
    ]
    assert set(terms(query)) <= row_terms(FULL)
    assert len(row_terms(FULL)) == 5
    assert terms(Query()) == []


def test_a_term_is_the_same_for_equal_values_and_another_for_others() -> None:
    values: list[Any] = [None, True, 1, "1", "true", "", [], {}, [1], ["1"], {"a": 1}, "é", 1.5]
    values += ["x" * 126, "x" * 127, "y" * 127, "sha256:", ["x" * 500], ["x" * 501]]
    assert len({term(value) for value in values}) == len(values)
    assert term({"a": 1, "b": [2]}) == term({"b": [2], "a": 1})


@pytest.mark.parametrize(("length", "plain"), [(126, True), (127, False), (100_000, False)])
def test_a_long_term_is_cut_down_to_its_hash(length: int, plain: bool) -> None:
    text = term("x" * length)
    assert text.startswith('"' if plain else "sha256:")
    assert len(text) <= 128


@pytest.mark.parametrize("limit", [1, 1_000])
def test_a_query_with_a_page_of_1_to_1000_is_taken(limit: int) -> None:
    check_query(Query(user="u", metadata={"a": None}), limit)
    check_query(PendingQuery(), limit)


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_any_other_page_is_refused(limit: int) -> None:
    with pytest.raises(InvalidValue, match="limit"):
        check_query(Query(), limit)


@pytest.mark.parametrize(
    "query",
    [
        Query(tenant=""),
        Query(session=""),
        Query(user=""),
        Query(agent=""),
        Query(label=""),
        PendingQuery(assignee=""),
        PendingQuery(what=""),
    ],
    ids=repr,
)
def test_an_empty_condition_is_refused_and_never_means_all(query: Query | PendingQuery) -> None:
    with pytest.raises(InvalidValue, match="is empty"):
        check_query(query, 50)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(InvalidValue, match="order"):
        check_query(msgspec.structs.replace(Query(), order="title"), 50)


# The inbox


def item(**fields: Any) -> Pending:
    base = {"tenant": "main", "session": "s", "thread": "main", "id": "p", "what": "approval"}
    return Pending(**{**base, "at": NOW, "seq": 1, **fields})


def test_a_rows_open_items_come_oldest_first() -> None:
    pending = {
        "b": {"what": "plan", "at": NOW, "seq": 3},
        "c": {"what": "access", "at": NOW + 1, "seq": 2, "call": "c1", "title": "t"},
        "a": {"what": "approval", "at": NOW, "seq": 1, "assignee": "ann", "expires": NOW + 9},
    }
    assert pending_items(msgspec.structs.replace(ROW, pending=pending)) == [
        item(id="a", seq=1, assignee="ann", expires=NOW + 9),
        item(id="b", what="plan", seq=3),
        item(id="c", what="access", at=NOW + 1, seq=2, call="c1", title="t"),
    ]


def test_an_opened_item_is_in_the_inbox_until_it_is_settled() -> None:
    opened = fact(
        ev.PendingOpened(id="p", what="approval", call="c", title="t", assignee="ann", expires=9)
    )
    row = after(opened)
    assert pending_items(row) == [item(call="c", title="t", assignee="ann", expires=9)]
    assert pending_items(after(ev.PendingSettled(id="p", outcome="expired"), row=row)) == []


def test_an_erased_settlement_brings_nothing_back_into_the_inbox() -> None:
    row = after(ev.PendingOpened(id="p", what="question"))
    settled = fact(ev.PendingSettled(id="p", outcome="answered", answer="me"), id="settle:p")
    wiped = msgspec.structs.replace(settled, data=erased("asked for"))
    assert pending_items(after(wiped, row=row)) == []


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ({}, {"tenant": "acme"}),
        ({"session": "s"}, {"session": "t"}),
        ({"what": "approval"}, {"what": "plan"}),
        ({"assignee": "ann"}, {"assignee": "bob"}),
    ],
)
def test_an_item_answers_a_query_when_each_condition_holds(
    yes: dict[str, Any], no: dict[str, Any]
) -> None:
    assert pending_matches(PendingQuery(**yes), item(assignee="ann"))
    assert not pending_matches(PendingQuery(**no), item(assignee="ann"))


def test_an_item_without_an_assignee_is_nobodys() -> None:
    assert not pending_matches(PendingQuery(assignee="ann"), item())


# Cursors


@pytest.mark.parametrize("place", [(0, 0), (NOW, "s/with:odd\"chars'é"), (-1, ""), (2**62, 2**62)])
def test_a_cursor_comes_back_as_the_place_it_names(place: tuple[int, int | str]) -> None:
    query = Query(user="u", metadata={"a": [1]})
    cursor = make_cursor(query, *place)
    assert cursor.isascii()
    assert read_cursor(query, cursor) == place


def test_a_cursor_of_an_earlier_version_is_understood() -> None:
    assert read_cursor(Query(user="u"), "WyI3ZWMxM2MxYzU0MmZhZDhlIiwxLCJzIl0=") == (1, "s")
    pending = PendingQuery(what="approval")
    assert read_cursor(pending, "WyJjOTZlY2Q3MjM4YzQxMzVmIiw1LDdd") == (5, 7)


@pytest.mark.parametrize(
    "other", [Query(user="v"), Query(user="u", newest_first=False), PendingQuery()], ids=repr
)
def test_a_cursor_of_another_query_is_refused(other: Query | PendingQuery) -> None:
    with pytest.raises(InvalidValue, match="another query"):
        read_cursor(other, make_cursor(Query(user="u"), 1, 2))


def encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "é",
        "\ud800",
        "====",
        encoded(b"[]"),
        encoded(b"{}"),
        encoded(b'["digest","1",2]'),
        encoded(b'["digest",1,null]'),
        encoded(b'["digest",1,2,3]'),
        encoded(b'["digest",1]'),
        encoded(b"\xff\xfe"),
        encoded(b'["\xff",1,2]'),
    ],
)
def test_a_cursor_that_is_not_ours_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidValue, match="cursor"):
        read_cursor(Query(), cursor)


def test_a_cursor_that_lost_its_end_is_refused() -> None:
    cursor = make_cursor(Query(), 123, "session")
    for end in range(1, len(cursor)):
        with pytest.raises(InvalidValue):
            read_cursor(Query(), cursor[:end])


# Phases


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_the_table_does_not_have_changes_nothing(move: Move, phase: Phase) -> None:
    row = msgspec.structs.replace(ROW, phase=phase)
    moved = with_ops(Op("move", "phase", value=move), row=row)
    to = MOVES[move].get(phase, phase)
    assert (moved.phase, moved.changed) == (to, None if to == phase else NOW)


def test_an_expiry_is_not_undone_by_a_touch_that_came_too_late() -> None:
    row = after(ev.SessionCreated(), ev.SessionExpired(), ev.SessionTouched(), ev.MessageReceived())
    assert row.phase == "expired"
    assert after(ev.SessionReopened(), row=row).phase == "active"


def test_a_move_of_a_later_version_changes_nothing() -> None:
    assert with_ops(Op("move", "phase", value="archive")).phase == "created"


def test_a_suspended_session_is_stale_again_only_when_it_may_expire() -> None:
    row = after(ev.SessionCreated(ttl=60), ev.SessionSuspended())
    assert row.stale_at is None
    row = after(ev.SessionCreated(ttl=60, expiry=90), ev.SessionSuspended())
    assert row.stale_at == SECOND + 90


def test_a_row_from_before_the_time_of_the_phase_was_kept_agrees_with_its_log() -> None:
    row = after(ev.SessionCreated(), ev.SessionTouched())
    assert row.changed == NOW
    assert agrees(msgspec.structs.replace(row, changed=None), row)
    assert not agrees(msgspec.structs.replace(row, title="another"), row)

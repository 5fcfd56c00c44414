"""`holdfast pending`, `approve`, `deny`, `answer` and `abort`: no agent takes part."""

from __future__ import annotations

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import NewEvent, Store, key

from .conftest import Cli, write
from .programs import start

UNSAID = {"answer": None, "reason": None, "channel": None}  # what `pending.settled` may say besides


async def waiting(store: Store) -> None:
    """A session with two questions in `main` and one in a thread, and one with a single item."""
    await _open(store, "two", "p1", "p2")
    await _open(store, "one", "only", what="external")
    begun = NewEvent.of("thread.created", {"agent": "shop"})
    item = {"id": "p3", "what": "question", "title": "which?", "assignee": "ann"}
    opened = NewEvent.of("pending.opened", item)
    await store.append(key("two", "side"), [begun, opened], create=True)


async def _open(store: Store, session: str, *ids: str, what: str = "approval") -> None:
    events = [
        NewEvent.of("session.created", {"agent": "shop"}),
        NewEvent.of("run.started", {}, run="r"),
    ]
    for id in ids:
        item = {"id": id, "what": what, "title": f"refund {id}\x1b[2J"}
        events.append(NewEvent.of("pending.opened", item, run="r"))
    events.append(NewEvent.of("run.waiting", {}, run="r"))
    await store.append(key(session), events, create=True)


@pytest.fixture
def inbox(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    write(url, waiting)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def settled(cli: Cli, session: str, *more: str) -> list[dict[str, Any]]:
    events = cli("show", session, "--all", "--json", *more).json["events"]
    return [event for event in events if event["kind"] == "pending.settled"]


def test_the_inbox_lists_all_sessions_oldest_first_with_the_ids_to_use(
    inbox: str, cli: Cli
) -> None:
    ended = cli("pending")
    assert ended.code == 0
    head, *rows = [re.split(r"  +", line) for line in ended.out.splitlines()]
    assert head == ["SESSION", "ITEM", "WHAT", "FOR", "SINCE", "TITLE"]
    assert [row[:2] for row in rows] == [
        ["two", "p1"],
        ["two", "p2"],
        ["one", "only"],
        ["two", "p3"],
    ]
    assert "question in side" in rows[3]
    assert "refund p1\\x1b[2J" in ended.out
    items = cli("pending", "--json").json["items"]
    assert [item["id"] for item in items] == ["p1", "p2", "only", "p3"]
    only = cli("pending", "--session", "one", "--json").json["items"]
    assert [item["id"] for item in only] == ["only"]


def test_the_inbox_warns_of_what_could_do_much_harm(shop: str, cli: Cli) -> None:
    def asked(id: str, risk: str) -> NewEvent:
        return NewEvent.of("pending.opened", {"id": id, "what": "approval", "risk": risk})

    async def risky(store: Store) -> None:
        begun = NewEvent.of("session.created", {"agent": "shop"})
        asks = [asked("p1", "destructive"), asked("p2", "medium")]
        await store.append(key("risky"), [begun, *asks], create=True)

    write(shop, risky)
    ended = cli("pending", "--session", "risky")
    head, first, second = [re.split(r"  +", line) for line in ended.out.splitlines()]
    assert head == ["SESSION", "ITEM", "WHAT", "RISK", "SINCE", "TITLE"]
    assert first[3] == "destructive"
    assert "medium" not in second
    items = cli("pending", "--session", "risky", "--json").json["items"]
    assert [item["risk"] for item in items] == ["destructive", "medium"]


def test_the_inbox_has_pages(inbox: str, cli: Cli) -> None:
    first = cli("pending", "--limit", "3", "--json").json
    assert len(first["items"]) == 3
    rest = cli("pending", "--limit", "3", "--json", "--cursor", first["cursor"]).json
    assert [item["id"] for item in rest["items"]] == ["p3"]
    assert rest["cursor"] is None
    assert "for more, add: --cursor" in cli("pending", "--limit", "3").err


def test_an_empty_inbox_says_so(shop: str, cli: Cli) -> None:
    assert "nothing is pending" in cli("pending", "--session", "nobody").err


def test_watching_tells_what_comes_and_goes_until_ctrl_c(inbox: str, cli: Cli) -> None:
    with start("pending", "--watch", "--json") as watch:
        assert watch.stdout is not None
        first = [json.loads(watch.stdout.readline()) for _ in range(4)]
        assert [line["opened"]["id"] for line in first] == ["p1", "p2", "only", "p3"]
        assert cli("deny", "one").code == 0
        gone = json.loads(watch.stdout.readline())
        assert gone["settled"]["id"] == "only"
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate()
    assert (watch.returncode, out, err) == (130, "", "")


def test_the_only_item_needs_no_id(inbox: str, cli: Cli) -> None:
    ended = cli("approve", "one", "--actor", "ann", "--reason", "fair")
    assert ended.code == 0
    assert ended.out.startswith("approved only by ann (event ")
    (event,) = settled(cli, "one")
    assert (event["id"], event["actor"]) == ("settle:only", "ann")
    assert event["data"] == {**UNSAID, "id": "only", "outcome": "approved", "reason": "fair"}


def test_arguments_are_edited(inbox: str, cli: Cli) -> None:
    ended = cli("approve", "two", "p2", "--arguments", '{"cents": 5}', "--json")
    assert ended.json["outcome"] == "approved"
    assert ended.json["item"] == "p2"
    assert settled(cli, "two")[0]["data"]["answer"] == {"arguments": {"cents": 5}}
    for wrong in ("5", "{"):
        refused = cli("approve", "two", "p1", "--arguments", wrong)
        assert refused.code == 2
        assert "--arguments must be a JSON object" in refused.err


def test_a_denial_keeps_its_reason_and_who_it_was(inbox: str, cli: Cli) -> None:
    assert cli("deny", "two", "p1", "--reason", "too much").code == 0
    (event,) = settled(cli, "two")
    assert event["data"] == {**UNSAID, "id": "p1", "outcome": "denied", "reason": "too much"}
    assert event["actor"].startswith("cli:")


def test_an_approval_takes_no_answer(inbox: str, cli: Cli) -> None:
    ended = cli("answer", "two", "p1", "no")
    assert ended.code == 1
    assert "approve it, optionally with other arguments, or deny it" in ended.err
    assert settled(cli, "two") == []


@pytest.mark.parametrize(
    ("words", "meant", "value"),
    [
        (["one", '{"n": 1}'], "only", {"n": 1}),
        (["one", "only", "-1"], "only", -1),
        (["one", "the blue one"], "only", "the blue one"),
    ],
)
def test_a_question_is_answered(
    inbox: str, cli: Cli, words: list[str], meant: str, value: object
) -> None:
    assert cli("answer", *words).code == 0
    (event,) = settled(cli, "one")
    assert event["data"] == {**UNSAID, "id": meant, "outcome": "answered", "answer": value}


def test_a_thread_is_named(inbox: str, cli: Cli) -> None:
    assert cli("answer", "two", "blue", "--thread", "side").code == 0
    assert settled(cli, "two", "--thread", "side")[0]["data"]["answer"] == "blue"
    assert settled(cli, "two") == []


@pytest.mark.parity("harness-kernel", 93)
def test_what_cannot_be_decided_says_why(inbox: str, cli: Cli) -> None:
    several = cli("approve", "two")
    assert several.code == 1
    assert "pass the id of one of them (p1, p2)" in several.err
    unknown = cli("deny", "one", "p9")
    assert unknown.code == 1
    assert "item 'p9'" in unknown.err
    assert "`holdfast pending` lists pending items" in unknown.err
    assert cli("approve", "nobody").err.startswith("error: no thread 'main' of session 'nobody'")
    assert cli("approve", "one", "--actor", "ann").code == 0
    late = cli("deny", "one", "only")
    assert late.code == 1
    assert re.match(r"error: item 'only' was approved by ann at \d{4}-\d\d-\d\d ", late.err)
    told = json.loads(cli("deny", "one", "only", "--json").err)
    assert told["code"] == "already_decided"
    assert told["fields"]["by"] == "ann"
    assert cli("deny", "one").err.startswith("error: nothing is pending in session 'one'")


def test_of_two_who_decide_at_once_one_is_first(inbox: str, cli: Cli) -> None:
    def decide(verb: str) -> int:
        with start(verb, "one", "only", "--actor", verb) as process:
            process.communicate()
        return process.returncode

    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(decide, ["approve", "deny"])) == [0, 1]
    assert len(settled(cli, "one")) == 1


def test_an_abort_is_requested_once_there_is_a_run(inbox: str, cli: Cli) -> None:
    ended = cli("abort", "one", "--reason", "wrong", "--actor", "ann")
    assert (ended.code, ended.out) == (0, "abort requested\n")
    event = cli("show", "one", "--json").json["events"][-1]
    assert (event["kind"], event["actor"]) == ("abort.requested", "ann")
    assert event["data"] == {"run": None, "reason": "wrong"}


def test_where_no_run_is_going_nothing_is_aborted(shop: str, cli: Cli) -> None:
    ended = cli("abort", "customer-43")
    assert (ended.code, ended.out) == (0, "")
    assert "the session has no current run" in ended.err
    assert cli("abort", "customer-43", "--json").json["requested"] is False
    assert cli("abort", "nobody").code == 1

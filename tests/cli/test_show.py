"""`holdfast show`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Event, Key, LogDamaged, NewEvent, Store, key
from holdfast.stores.memory import MemoryStore

from .conftest import Cli, created, said, write


def test_a_session_is_shown_with_its_row_and_events(shop: str, cli: Cli) -> None:
    ended = cli("show", "customer-42")
    assert ended.code == 0
    facts = ended.out.partition("\n\n")[0]
    for words in ("customer-42", "vip", '{"n":3}', "active, 1 pending", "approval p1 19.99"):
        assert words in facts
    assert "threads" in facts
    assert "what-if" in facts
    assert "message.received  ann  Refund order 42.\n        It is broken." in ended.out
    assert '→ refund({"order":"42"}) (call c1)' in ended.out


def test_the_last_events_are_shown_and_the_rest_is_named(shop: str, cli: Cli) -> None:
    ended = cli("show", "customer-42", "--events", "1")
    assert "pending.opened" in ended.out
    assert "message.received" not in ended.out
    assert ended.err == "3 earlier events: add --all or --after NUMBER\n"


def test_after_begins_there_and_says_where_to_go_on(shop: str, cli: Cli) -> None:
    ended = cli("show", "customer-42", "--after", "1", "--events", "2")
    assert "message.completed" in ended.out
    assert "pending.opened" not in ended.out
    assert "1 later event: add --after 3" in ended.err


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ((), [1, 2, 3, 4]),
        (("--events", "2"), [3, 4]),
        (("--events", "0"), []),
        (("--all", "--events", "1"), [1, 2, 3, 4]),
        (("--all", "--after", "2"), [3, 4]),
        (("--after", "9"), []),
        (("--thread", "what-if"), [1, 2, 3]),
    ],
)
def test_json_is_one_document(
    shop: str, cli: Cli, arguments: tuple[str, ...], numbers: list[int]
) -> None:
    shown = cli("show", "customer-42", "--json", *arguments).json
    assert [event["seq"] for event in shown["events"]] == numbers
    assert shown["row"]["session"] == "customer-42"
    assert sorted(shown["threads"]) == ["main", "what-if"]
    assert shown["drafts"] == []


@pytest.mark.parametrize("words", [("show", "s"), ("tail", "s", "--no-follow")])
def test_json_has_the_defaults_of_event_data(url: str, cli: Cli, words: tuple[str, ...]) -> None:
    async def work(store: Store) -> None:
        await store.append(key("s"), [created(), NewEvent.of("run.finished")], create=True)

    write(url, work)
    ended = cli(*words, "--json", "--store", url)
    event = ended.json["events"][-1] if words[0] == "show" else ended.lines[-1]
    none = {"due": None, "error": None, "code": None, "stack": None}
    assert event["data"] == {"status": "done", **none}


def test_json_holds_payloads_whole(url: str, cli: Cli) -> None:
    big = "x" * 200_000

    async def work(store: Store) -> None:
        await store.append(key("s"), [created(), said(big)], create=True)

    write(url, work)
    assert cli("show", "s", "--json", "--store", url).json["events"][1]["data"]["text"] == big
    assert "195.3 KiB of data (--full shows it)" in cli("show", "s", "--store", url).out
    assert big in cli("show", "s", "--full", "--store", url).out


def test_text_in_flight_is_shown(memory: MemoryStore, cli: Cli) -> None:
    import asyncio

    async def draft() -> None:
        lease = await memory.acquire(key("customer-42"), "driver")
        await memory.put_draft(key("customer-42"), "m9", 0, "So far\x1b[2J", fence=lease)

    asyncio.run(draft())
    assert "draft       So far\\x1b[2J" in cli("show", "customer-42").out
    assert cli("show", "customer-42", "--json").json["drafts"][0]["message"] == "m9"


@pytest.mark.parametrize(
    "name",
    ["-dash", "--help", "a b", "../../etc", "quo'te\"", "line\nfeed", "esc\x1b[31m", "ü 👩‍👧"],
)
def test_a_session_may_have_any_name(url: str, cli: Cli, name: str) -> None:
    async def work(store: Store) -> None:
        await store.append(key(name, thread=name, tenant=name), [created()], create=True)

    write(url, work)
    named = (f"--thread={name}", f"--tenant={name}", "--store", url)
    ended = cli("show", *named, "--json", "--", name)
    assert ended.json["row"]["session"] == name
    text = cli("show", *named, "--", name)
    assert text.code == 0
    assert "\x1b" not in text.out


def test_what_is_not_there_is_said_with_what_to_do(shop: str, cli: Cli) -> None:
    ended = cli("show", "nobody\x1b[2J")
    assert ended.code == 1
    assert ended.err == (
        "error: no thread 'main' of session 'nobody\\x1b[2J' in tenant 'main': "
        "check the id, or create the session first; "
        "`holdfast sessions` lists the sessions (docs/errors#session_not_found)\n"
    )


class OneUnreadable(MemoryStore):
    """A store whose event 2 cannot be read."""

    async def read(self, key: Key, **options: Any) -> AsyncGenerator[Event, None]:
        async for event in super().read(key, **options):
            if event.seq == 2:
                raise LogDamaged(
                    problem="hash differs",
                    tenant=key.tenant,
                    session=key.session,
                    thread=key.thread,
                    seq=2,
                )
            yield event


def test_an_unreadable_event_hides_no_other(memory: MemoryStore, cli: Cli) -> None:
    memory.__class__ = OneUnreadable
    ended = cli("show", "customer-42")
    assert ended.code == 1
    assert "     2  unreadable  hash differs" in ended.out
    assert "pending.opened" in ended.out
    events = cli("show", "customer-42", "--json").json["events"]
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert events[1]["error"] == {"code": "log_damaged", "message": "hash differs"}
    tail = cli("tail", "customer-42", "--no-follow", "--json")
    assert tail.code == 1
    assert [event["seq"] for event in tail.lines] == [1, 2, 3, 4]

"""`holdfast rewind`: returns a conversation to an earlier event; no agent takes part."""

from __future__ import annotations

from holdfast import NewEvent, Store, key

from .conftest import Cli, created, said, write


async def talked(store: Store) -> None:
    events = [created(agent="shop"), said("one"), said("two")]
    await store.append(key("s"), events, create=True)


def test_a_rewind_says_where_it_leads_and_is_shown(url: str, cli: Cli) -> None:
    write(url, talked)
    ended = cli("rewind", "s", "--to", "2", "--actor", "ann", "--store", url)
    assert (ended.code, ended.out) == (0, "rewound to event 2 (event 4)\n")
    event = cli("show", "s", "--json", "--store", url).json["events"][-1]
    assert (event["kind"], event["actor"], event["data"]["to"]) == ("thread.rewound", "ann", 2)
    assert "thread.rewound  ann  to event 2\n" in cli("show", "s", "--store", url).out


def test_a_rewind_in_json_has_its_number(url: str, cli: Cli) -> None:
    write(url, talked)
    ended = cli("rewind", "s", "--to", "0", "--json", "--store", url)
    assert ended.json == {"session": "s", "thread": "main", "to": 0, "seq": 4}


def test_an_open_run_is_an_error_that_says_what_to_do(url: str, cli: Cli) -> None:
    async def running(store: Store) -> None:
        await talked(store)
        await store.append(key("s"), [NewEvent.of("run.started", {"inputs": [2]}, run="r")])

    write(url, running)
    ended = cli("rewind", "s", "--to", "0", "--store", url)
    assert (ended.code, ended.out) == (1, "")
    assert "busy with run 'r': abort the run first" in ended.err


def test_an_event_past_the_end_is_an_error(url: str, cli: Cli) -> None:
    write(url, talked)
    ended = cli("rewind", "s", "--to", "9", "--store", url)
    assert ended.code == 1
    assert "to is 9, and the log ends at event 3" in ended.err

"""`holdfast transcript`: the conversation, in three forms."""

from __future__ import annotations

import pytest

from holdfast import NewEvent, Store, key
from holdfast.sessions.rewind import rewound
from holdfast.stores.pages import existing_row

from .conftest import Cli, created, said, write

S = key("s")


def answer(text: str, *calls: dict[str, object]) -> NewEvent:
    return NewEvent.of("message.completed", {"text": text, "calls": [*calls], "model": "m/1"})


async def talk(store: Store) -> None:
    call: dict[str, object] = {"id": "c1", "name": "look", "arguments": {"order": "42"}}
    fences = {"call": "c1", "outcome": "ok", "result": "a ``` fence\nand \x1b[31mred"}
    events = [
        created(agent="shop", user="ann"),
        said("Where is it?\nOrder 42.", actor="ann"),
        answer("I look.", call),
        NewEvent.of("tool.finished", fences),
        answer("x" * 1_200),
        said("Forget this."),
    ]
    await store.append(S, events, create=True)
    row = await existing_row(store, S)
    await store.append(S, [NewEvent.of("thread.rewound", await rewound(store, row, 5, due=None))])
    await store.erase(S, [5], reason="on request")


@pytest.fixture
def shop(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    write(url, talk)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def test_conversation_is_printed_with_calls_and_results(cli: Cli, shop: str) -> None:
    out = cli("transcript", "s").out
    assert "Where is it?\nOrder 42.\n" in out
    assert '→ look({"order":"42"})\n← a ``` fence\nand \\x1b[31mred\n' in out
    assert "(erased: on request)" in out
    assert out.startswith("ann  ")
    assert "Forget this." not in out


def test_markdown_has_a_fence_that_no_result_can_end(cli: Cli, shop: str) -> None:
    out = cli("transcript", "s", "--markdown").out
    assert '**look**\n\n```json\n{"order":"42"}\n```\n' in out
    assert "````\na ``` fence\nand \\x1b[31mred\n````\n" in out
    assert out.startswith("## ann, ")


def test_long_texts_are_cut_unless_full_is_given(cli: Cli, url: str) -> None:
    async def long(store: Store) -> None:
        await store.append(S, [created(agent="shop"), answer("x" * 1_200)], create=True)

    write(url, long)
    assert "and 200 more characters" in cli("transcript", "s", "--store", url).out
    assert "x" * 1_200 in cli("transcript", "s", "--full", "--store", url).out


def test_limit_takes_the_newest_messages(cli: Cli, shop: str) -> None:
    items = cli("transcript", "s", "--json").json["items"]
    assert [item["role"] for item in items] == ["user", "assistant", "assistant"]
    assert cli("transcript", "s", "--limit", "2", "--json").json["items"] == items[-2:]
    assert items[1]["calls"][0]["outcome"]["result"].startswith("a ``` fence")


def test_empty_conversation_prints_no_item(cli: Cli, url: str) -> None:
    async def nothing(store: Store) -> None:
        await store.append(S, [created(agent="shop")], create=True)

    write(url, nothing)
    ended = cli("transcript", "s", "--store", url)
    assert (ended.code, ended.out, ended.err) == (0, "", "the conversation is empty\n")
    assert cli("transcript", "s", "--store", url, "--json").json == {"items": []}


def test_unknown_session_is_an_error(cli: Cli, shop: str) -> None:
    ended = cli("transcript", "nosuch")
    assert ended.code == 1
    assert "nosuch" in ended.err

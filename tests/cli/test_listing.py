"""`holdfast sessions`."""

from __future__ import annotations

import pytest

from holdfast import Store, key

from .conftest import Cli, created, write


def listed(cli: Cli, *arguments: str) -> list[str]:
    ended = cli("sessions", "--json", *arguments)
    assert ended.code == 0, ended.err
    return [row["session"] for row in ended.json["items"]]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("--user ann", "customer-42"),
        ("--workspace w", "customer-43"),
        ("--agent shop", "customer-42"),
        ("--phase active", "customer-42"),
        ("--phase suspended", ""),
        ("--phase active --phase created", "customer-42 customer-43"),
        ("--label vip", "customer-42"),
        ("--metadata n=3", "customer-42"),
        ('--metadata n="3"', "customer-43"),
        ("--metadata tier=gold --user bob", "customer-43"),
        ("--tenant other", "customer-44"),
        ("--run running", ""),
        ("--threads-of customer-42", "customer-42 customer-42"),
    ],
)
def test_filters_choose_the_sessions(shop: str, cli: Cli, arguments: str, found: str) -> None:
    assert sorted(listed(cli, *arguments.split())) == found.split()


def test_pages_follow_each_other_by_their_cursor(shop: str, cli: Cli) -> None:
    order = ("--order", "created", "--oldest-first", "--limit", "1", "--json")
    first = cli("sessions", *order).json
    second = cli("sessions", *order, "--cursor", first["cursor"]).json
    assert [first["items"][0]["session"], second["items"][0]["session"]] == [
        "customer-42",
        "customer-43",
    ]
    assert second["cursor"] is None
    assert f"--cursor {first['cursor']}" in cli("sessions", *order[:-1]).err


def test_a_row_has_all_its_fields_in_json(shop: str, cli: Cli) -> None:
    row = cli("sessions", "--user", "bob", "--json").json["items"][0]
    assert row["phase"] == "created"
    assert row["labels"] == {}
    assert row["run"] is None


def test_the_list_for_people_has_columns_and_whole_ids(url: str, cli: Cli) -> None:
    long = 'tenant/42: "long" ' + "x" * 200

    async def work(store: Store) -> None:
        await store.append(key(long), [created(title="[red]T[/red]\x1b[2J")], create=True)

    write(url, work)
    ended = cli("sessions", "--store", url)
    heading, line = ended.out.splitlines()
    assert heading.split() == ["SESSION", "STATE", "EVENTS", "LAST", "TITLE"]
    assert line.startswith(long)
    assert line.endswith("[red]T[/red]\\x1b[2J")


def test_threads_are_listed_by_their_names(shop: str, cli: Cli) -> None:
    out = cli("sessions", "--threads-of", "customer-42").out
    assert out.startswith("THREAD")
    assert {line.split()[0] for line in out.splitlines()[1:]} == {"main", "what-if"}


def test_an_empty_answer_says_so_beside_the_result(shop: str, cli: Cli) -> None:
    ended = cli("sessions", "--user", "nobody")
    assert (ended.code, ended.out, ended.err) == (0, "", "no sessions\n")


@pytest.mark.parametrize(
    "wrong", [("--metadata", "n"), ("--limit", "0"), ("--phase", "gone"), ("--order", "size")]
)
def test_a_wrong_filter_is_wrong_usage(shop: str, cli: Cli, wrong: tuple[str, str]) -> None:
    ended = cli("sessions", *wrong)
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert "holdfast sessions --help" in ended.err


def test_an_empty_or_foreign_value_is_refused_by_the_store(shop: str, cli: Cli) -> None:
    assert cli("sessions", "--user", "").code == 1
    assert cli("sessions", "--cursor", "nonsense").err == (
        "error: cursor: is not one of ours; pass a page's cursor unchanged\n"
    )

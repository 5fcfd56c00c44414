"""`holdfast sessions`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Sessions, Store, key
from holdfast.cli.options import EPOCH, instant, seconds

from .conftest import Cli, created, write
from .lives import DAY, HOUR, live


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
    "wrong",
    [
        ("--metadata", "n"),
        ("--limit", "0"),
        ("--phase", "gone"),
        ("--order", "size"),
        ("--surface", "slack"),
        ("--created-after", "yesterday"),
        ("--created-before", "2026-13-01"),
        ("--active-after", "2x"),
        ("--active-before", ""),
    ],
)
def test_a_wrong_filter_is_wrong_usage(shop: str, cli: Cli, wrong: tuple[str, str]) -> None:
    ended = cli("sessions", *wrong)
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert "holdfast sessions --help" in ended.err


def test_an_empty_or_foreign_value_is_refused_by_the_store(shop: str, cli: Cli) -> None:
    assert cli("sessions", "--user", "").code == 1
    assert cli("sessions", "--cursor", "nonsense").err == (
        "error: --cursor is not a valid cursor: pass a page's cursor unchanged "
        "(docs/errors#invalid_value)\n"
    )


# Surfaces and times


@pytest.fixture
def ages(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """One session begun three days ago, one begun then and active five hours ago, one of now."""

    async def begin(sessions: Sessions) -> None:
        await sessions.create("old", user="ann", surface=("telegram", "-100:42"))
        await sessions.create("revived", user="ann", surface=("slack", "U1"))

    async def revive(sessions: Sessions) -> None:
        await sessions.touch("revived")

    async def now(sessions: Sessions) -> None:
        await sessions.create("new", user="ann")

    live(url, begin, ago=3 * DAY)
    live(url, revive, ago=5 * HOUR)
    live(url, now)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("--surface telegram -100:42", "old"),
        ("--surface slack U1 --user ann", "revived"),
        ("--surface slack -100:42", ""),
        ("--created-after 1d", "new"),
        ("--created-before 2d12h", "old revived"),
        ("--created-after 1w --created-before 1h", "old revived"),
        ("--active-after 6h", "new revived"),
        ("--active-before 240min", "old revived"),
        ("--active-after 6h --active-before 4h", "revived"),
        ("--created-after 1971-01-01", "new old revived"),
        ("--created-before 1971-01-01T00:00+01:00", ""),
        ("--active-after 0001-01-01", "new old revived"),
        ("--active-before 9999-12-31T23:59:59.999Z", "new old revived"),
    ],
)
def test_surfaces_and_times_choose_the_sessions(
    ages: str, cli: Cli, arguments: str, found: str
) -> None:
    assert sorted(listed(cli, *arguments.split())) == found.split()


def test_a_time_begins_its_range_and_is_not_in_what_ends_there(ages: str, cli: Cli) -> None:
    row = cli("sessions", "--surface", "slack", "U1", "--json").json["items"][0]
    for column, ms in (("created", row["created"]), ("active", row["active"] * 1000)):
        moment = (EPOCH + timedelta(milliseconds=ms)).isoformat()
        assert "revived" in listed(cli, f"--{column}-after", moment)
        assert "revived" not in listed(cli, f"--{column}-before", moment)


@pytest.mark.parametrize(
    ("text", "count"),
    [("90s", 90), ("30min", 1800), ("5m", 300), ("1h30min", 5400), ("2w3d", 17 * 86_400)],
)
def test_a_duration_is_a_number_of_seconds(text: str, count: int) -> None:
    assert seconds("--ttl", text) == count
    assert instant("--active-after", text, 10**12) == 10**12 - count * 1000
    assert instant("--active-after", text, 0) == 0


def test_a_time_without_a_zone_is_utc() -> None:
    at = [instant("x", text, 0) for text in ("2026-05-04T09:30", "2026-05-04T11:30+02:00")]
    assert at[0] == at[1] == instant("x", "2026-05-04", 0) + 9 * HOUR + HOUR // 2


def test_pages_of_a_duration_count_back_from_the_same_moment(ages: str, cli: Cli) -> None:
    order = ("--created-before", "1d", "--order", "created", "--oldest-first", "--limit", "1")
    first = cli("sessions", *order, "--json").json
    second = cli("sessions", *order, "--json", "--cursor", first["cursor"]).json
    found = [page["items"][0]["session"] for page in (first, second)]
    assert (found, second["cursor"]) == (["old", "revived"], None)
    wrong = cli("sessions", *order, "--cursor", f"12.{first['cursor'].partition('.')[2]}")
    assert wrong.err.startswith("error: --cursor belongs to another query")


def test_a_total_is_counted_on_request(ages: str, cli: Cli) -> None:
    page = cli("sessions", "--limit", "1", "--total", "--json").json
    assert (len(page["items"]), page["total"]) == (1, 3)
    assert "total" not in cli("sessions", "--json").json
    assert cli("sessions", "--active-after", "6h", "--total").err == "2 sessions in total\n"
    assert cli("sessions", "--user", "bob", "--total").err == "no sessions\n0 sessions in total\n"

"""`holdfast budgets`: usage is listed, counted again, and extended by an answer."""

from __future__ import annotations

import json

from holdfast import Budget, Store
from tests.budgets.scene import EACH, served

from .conftest import Cli, write

BUDGET = Budget(scope="user", tokens=EACH)


async def used(store: Store) -> None:
    async with served(store, BUDGET) as harness:
        session = await harness.get_or_create("s", user="ann")
        await session.send("Hi")
        await session.send("Hi")


def test_usage_is_listed_counted_again_and_extended(cli: Cli, url: str) -> None:
    write(url, used)
    shown = cli("budgets", "--store", url, "--current")
    assert "ann" in shown.out
    [item] = cli("budgets", "--json", "--store", url, "--user", "ann").json["items"]
    assert (item["scope"], item["who"], item["tokens"], item["runs"]) == ("user", "ann", EACH, 1)
    again = cli("budgets", "rebuild", "--json", "--store", url, "--count", "tenant/day").json
    assert again == {"counted": 2, "added": 2}
    assert cli("budgets", "rebuild", "--json", "--store", url).json == {"counted": 2, "added": 0}
    assert len(cli("budgets", "--json", "--store", url).json["items"]) == 2
    assert cli("budgets", "--json", "--store", url, "--user", "bob").json["items"] == []

    [pending] = cli("pending", "--json", "--store", url).json["items"]
    answer = json.dumps({"extend": {"tokens": 7}})
    assert cli("answer", "s", pending["id"], answer, "--store", url).code == 0
    [item] = cli("budgets", "--json", "--store", url, "--user", "ann").json["items"]
    assert item["extended"] == {"tokens": 7}


def test_wrong_usage_is_told(cli: Cli, url: str) -> None:
    write(url, used)
    ended = cli("budgets", "rebuild", "--store", url, "--count", "planet/day")
    assert (ended.code, "SCOPE/PERIOD" in ended.err) == (2, True)
    assert cli("budgets", "forget", "--store", url).code == 2

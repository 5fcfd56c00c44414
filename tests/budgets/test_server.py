"""Budgets over HTTP: users see what they used, and only an operator extends a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Budget
from holdfast.client import Client
from holdfast.errors import Forbidden, InvalidSettings
from holdfast.server import Settings
from tests.server.scene import Api, serving, settings

EACH = 10  # tokens of a call of the shop's model
OPERATOR = "op@acme+admin"
BUDGETS = [Budget(scope="user", tokens=EACH, per="day"), Budget(scope="tenant", tokens=1000)]


def limited() -> Settings:
    return settings(harness={"budgets": BUDGETS})


async def used_up(api: Api, id: str = "one", **more: Any) -> str:
    """Use up the budget of a user; the item that asks for more."""
    await api("PUT", f"/sessions/{id}", {"metadata": {"budgets": "none"}}, **more)
    said = {"content": "Hello", "metadata": {"budget": {"tokens": 10**9}}}
    path = f"/sessions/{id}/messages?wait=true"
    assert (await api("POST", path, said, **more))["status"] == "done"
    ended = await api("POST", path, said, **more)
    assert (ended["status"], ended["code"]) == ("failed", "limit_budget")
    [item] = (await api("GET", f"/sessions/{id}/pending", **more))["items"]
    assert item["what"] == "access"
    found: str = item["id"]
    return found


async def test_only_an_operator_decides_about_a_budget() -> None:
    async with serving(limited()) as api:
        item = await used_up(api)
        path = f"/sessions/one/pending/{item}"
        more = {"answer": {"extend": {"tokens": 2 * EACH}}}
        for verb, body in (
            ("answer", more),
            ("deny", {"reason": "x"}),
            ("approve", {}),
            ("extend", {"seconds": 5}),
        ):
            fields = await api.fails("forbidden", "POST", f"{path}/{verb}", body)
            assert fields["scope"] == "admin"
        decide: Any = {"answer": {"extend": {"tokens": -5}}}
        await api.fails("invalid_value", "POST", f"{path}/answer", decide, by=OPERATOR)
        decide = {"answer": {"extend": {"tokens": 1e300}}}
        await api.fails("invalid_value", "POST", f"{path}/answer", decide, by=OPERATOR)
        await api.fails("invalid_value", "POST", f"{path}/approve", {}, by=OPERATOR)
        settled = await api("POST", f"{path}/answer", more, by=OPERATOR)
        assert (settled["outcome"], settled["by"]) == ("answered", "op")
        said = {"content": "Hello"}
        done = await api("POST", "/sessions/one/messages?wait=true", said)
        assert done["status"] == "done"


async def test_users_see_their_own_usage_and_operators_all_of_it() -> None:
    async with serving(limited()) as api:
        await used_up(api)
        await used_up(api, "two", by="bob@acme")
        mine = await api.until("/budgets", lambda page: page["items"])
        [one] = mine["items"]
        assert (one["scope"], one["who"], one["tokens"]) == ("user", "ann", EACH)
        assert one["limits"] == {"tokens": EACH}
        await api.fails("forbidden", "GET", "/budgets?user=bob")
        every = "op@acme+sessions:all"
        found = await api.until(
            "/budgets?current=true", lambda page: len(page["items"]) == 3, by=every
        )
        assert {(item["scope"], item["who"]) for item in found["items"]} == {
            ("user", "ann"),
            ("user", "bob"),
            ("tenant", "acme"),
        }
        first = await api("GET", "/budgets?limit=2", by=every)
        rest = await api("GET", f"/budgets?limit=2&cursor={first['cursor']}", by=every)
        assert (len(first["items"]), len(rest["items"]), rest["cursor"]) == (2, 1, None)
        assert (await api("GET", "/budgets", by="eve@other"))["items"] == []
        # The logs that count are in no list, and no client reaches them.
        listed = await api("GET", "/sessions", by=every)
        assert {row["session"] for row in listed["items"]} == {"one", "two"}
        answer = await api.ask("GET", "/sessions", by="eve@~usage:acme+sessions:all")
        assert answer.status_code >= 400 or not answer.json()["items"]


async def test_the_client_lists_usage_and_extends_as_an_operator() -> None:
    async with serving(limited()) as api:
        item = await used_up(api)
        async with Client(api.url, key="ann@acme") as client:
            with pytest.raises(Forbidden):
                await client.answer("one", {"extend": {"tokens": 5}}, item)
            page = await client.budgets(current=True)
            assert [(one.who, one.per) for one in page.items] == [("ann", "day")]
        async with Client(api.url, key="ann@acme+admin") as operator:
            decision = await operator.answer("one", {"extend": {"tokens": 5}}, item)
            assert decision.outcome == "answered"
            [one] = (await operator.budgets(user="ann")).items
            assert (one.extended, one.limits) == ({"tokens": 5}, {"tokens": EACH + 5})


def test_a_settings_file_sets_budgets(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        """
        [agents]
        desk = "tests.server.test_settings:DESK"
        [auth]
        kind = "none"
        [harness]
        default_model = "scripted/offline"
        [[harness.budgets]]
        scope = "user"
        tokens = 200_000
        per = "day"
        [[harness.budgets]]
        scope = "tenant"
        who = "acme"
        cost = 12.5
        """
    )
    loaded = Settings.load(file)
    assert loaded.harness["budgets"] == [
        Budget(scope="user", tokens=200_000, per="day"),
        Budget(scope="tenant", who="acme", cost=12.5),
    ]


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("budgets = 3", "harness.budgets must be a list of tables"),
        ("[[harness.budgets]]\ntokens = 5", "harness.budgets\\[0\\].scope is missing"),
        ('[[harness.budgets]]\nscope = "user"', "has no limit"),
        ('[[harness.budgets]]\nscope = "user"\ntokens = -5', "tokens is -5"),
        ('[[harness.budgets]]\nscope = "user"\ncost = nan', "budgets\\[0\\].cost"),
        ('[[harness.budgets]]\nscope = "user"\ntoken = 5', "token is not a setting"),
        ('[[harness.budgets]]\nscope = "planet"\ntokens = 5', "planet"),
    ],
)
def test_an_invalid_budget_in_a_file_is_reported(tmp_path: Path, table: str, fault: str) -> None:
    file = tmp_path / "server.toml"
    head = '[agents]\ndesk = "tests.server.test_settings:DESK"\n[harness]\n'
    file.write_text(f'{head}default_model = "scripted/offline"\n{table}\n')
    with pytest.raises(InvalidSettings, match=fault):
        Settings.load(file)

"""Budgets, periods and extensions: what is valid, when a period ends, and who a budget is for."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, Budget, Harness, InvalidAgent, InvalidValue, Worker
from holdfast.values.budgets import (
    LARGEST,
    NANO,
    PERIODS,
    UsageLog,
    amounts,
    effective,
    extension,
    limits_of,
    period_end,
    period_of,
)

BAD: list[dict[str, Any]] = [
    {"scope": "user"},
    {"scope": "everyone", "tokens": 1},
    {"scope": "user", "tokens": 1, "per": "week"},
    {"scope": "user", "tokens": 0},
    {"scope": "user", "tokens": -1},
    {"scope": "user", "tokens": 1.5},
    {"scope": "user", "tokens": True},
    {"scope": "user", "tokens": 10**30},
    {"scope": "user", "cost": math.nan},
    {"scope": "user", "cost": math.inf},
    {"scope": "user", "cost": -0.01},
    {"scope": "user", "cost": 1e300},
    {"scope": "user", "runs": "3"},
    {"scope": "user", "tokens": 1, "who": ""},
    {"scope": "user", "tokens": 1, "who": "x" * 600},
]


@pytest.mark.parametrize("given", BAD, ids=str)
def test_an_invalid_budget_is_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Budget(**given)


@pytest.mark.parametrize("budgets", [{"scope": "user"}, [{"scope": "user", "tokens": 1}], None])
def test_only_budgets_are_budgets_of_a_harness_or_worker(budgets: Any) -> None:
    with pytest.raises(InvalidAgent, match="budgets"):
        Harness(Agent("a", instructions="x"), default_model="scripted/offline", budgets=budgets)
    with pytest.raises(InvalidAgent, match="budgets"):
        Worker(Agent("a", instructions="x"), tenants="all", budgets=budgets)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "yes",
        {},
        {"extend": {}},
        {"extend": {"tokens": 0}},
        {"extend": {"tokens": -5}},
        {"extend": {"tokens": True}},
        {"extend": {"tokens": 10**20}},
        {"extend": {"tokens": "5"}},
        {"extend": {"cost": math.nan}},
        {"extend": {"runs": 5}},  # the budget has no such limit
        {"extend": {"extra_tokens": 5}},
        {"extend": {"tokens": 5}, "scope": "tenant"},
    ],
    ids=str,
)
def test_an_answer_that_extends_nothing_is_rejected(answer: Any) -> None:
    with pytest.raises(InvalidValue):
        extension(answer, ["tokens", "cost"])


def test_an_extension_adds_to_counters_of_its_own() -> None:
    found = extension({"extend": {"tokens": 5, "cost": 0.5}}, ["tokens", "cost"])
    assert found == {"extra_tokens": 5, "extra_cost": NANO // 2}


@given(st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), st.integers()))
def test_no_number_of_a_vendor_makes_usage_smaller(usage: dict[str, int]) -> None:
    for cost in (None, -1.0, math.nan, math.inf, 1e300, 0.25):
        found = amounts(usage, cost)
        assert found["calls"] == 1
        assert all(0 <= count <= LARGEST for count in found.values())
    assert "cost" not in amounts(usage, None)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)))
def test_a_period_ends_where_the_next_one_begins(moment: datetime) -> None:
    at = int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    for per in PERIODS[:2]:
        end = period_end(per, at)
        assert end is not None
        assert end > at
        assert period_of(per, end - 1) == period_of(per, at) < period_of(per, end)
    assert (period_of("total", at), period_end("total", at)) == ("total", None)


def test_the_end_of_a_february_is_known() -> None:
    at = int(datetime(2028, 2, 29, 23, 59, tzinfo=UTC).timestamp() * 1000)
    assert (period_of("day", at), period_of("month", at)) == ("2028-02-29", "2028-02")
    assert period_end("day", at) == period_end("month", at) == at + 60_000


def test_a_named_budget_replaces_that_of_everybody() -> None:
    everybody = Budget(scope="user", tokens=10, per="day")
    ann = Budget(scope="user", tokens=99, per="day", who="ann")
    month = Budget(scope="user", tokens=1000, per="month")
    budgets = [everybody, ann, month]
    names = {"session": "s", "tenant": "t"}
    assert effective(budgets, {**names, "user": "ann"}) == [ann, month]
    assert effective(budgets, {**names, "user": "bob"}) == [everybody, month]
    assert effective(budgets, {**names, "user": None}) == []
    log = UsageLog(scope="user", who="ann", per="day", period="2026-11-19")
    assert limits_of(budgets, log) == {"tokens": 99}

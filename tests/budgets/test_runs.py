"""Runs with budgets: what is counted, what stops them, who extends, and when a period ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Agent,
    AlreadyDecided,
    Budget,
    Harness,
    InvalidValue,
    LogConfig,
    Scope,
    Sessions,
    Store,
    SubAgent,
    Vault,
    Worker,
    connect,
    export_bundle,
    import_bundle,
)
from holdfast import environment as env
from holdfast.events import NewEvent
from holdfast.harness import settle_pending
from holdfast.log.events import Key
from holdfast.models import Say, ScriptedModel, Use
from holdfast.sessions.budgets import rebuild
from holdfast.testing.faults import Fail, FaultyStore
from holdfast.values.budgets import period_end
from tests.contract.test_stores import url_of

from .scene import (
    AGENT,
    EACH,
    USED,
    Clock,
    counted,
    events_of,
    model,
    served,
    tokens_in_logs,
    until_counted,
)

USER = Budget(scope="user", tokens=2 * EACH, per="day")
TENANT = Budget(scope="tenant", tokens=2 * EACH)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    async with url_of(request.param, tmp_path) as url, connect(url) as store:
        yield store


@pytest.fixture
async def memory() -> AsyncGenerator[Store, None]:
    async with connect("memory:") as store:
        yield store


async def test_a_used_up_budget_ends_runs_until_an_operator_extends_it(store: Store) -> None:
    async with served(store, USER) as harness:
        session = await harness.get_or_create("one", user="ann")
        assert [(await session.send("Hi")).status for _ in range(2)] == ["done", "done"]
        ended = await session.send("Hi")
        assert (ended.status, ended.code, ended.text) == ("failed", "limit_budget", "")
        [item] = await session.pending()
        assert (item.what, item.id[:7]) == ("access", "budget:")
        assert item.expires is not None
        # Another session of the same user, and one of another user.
        other = await harness.get_or_create("two", user="ann")
        assert (await other.send("Hi")).code == "limit_budget"
        free = await harness.get_or_create("three", user="bob")
        assert (await free.send("Hi")).status == "done"

        decision = await session.answer({"extend": {"tokens": EACH}}, item.id, actor="op")
        assert decision.by == "op"
        assert (await other.send("Hi")).status == "done"
        assert await other.pending() == []  # its own question is closed: the budget was extended
        again = await session.send("Hi")
        assert again.code == "limit_budget"
        [next_item] = await session.pending()
        assert next_item.id != item.id
    ann = next(one for name, one in (await counted(store)).items() if name.startswith("user/ann/"))
    assert (ann.tokens, ann.runs, ann.extended) == (3 * EACH, 3, {"tokens": EACH})


async def test_a_run_stops_between_its_calls_with_all_outcomes_in_the_log(memory: Store) -> None:
    async with served(memory, Budget(scope="session", tokens=EACH)) as harness:
        session = await harness.get_or_create("one")
        ended = await session.send("Look")
        assert ended.code == "limit_budget"
        kinds = [event.kind for event in await events_of(memory, "one")]
        assert kinds.count("model.called") == 1
        assert kinds.count("tool.finished") == 1
        assert not session._core.live.state.calls


async def test_a_budget_of_runs_stops_new_runs_and_not_the_calls_of_an_old_one(
    memory: Store,
) -> None:
    async with served(memory, Budget(scope="tenant", runs=1)) as harness:
        session = await harness.get_or_create("one")
        assert (await session.send("Look")).status == "done"
        assert (await session.send("Hi")).code == "limit_budget"
        assert (await counted(memory))["tenant/main/total"].runs == 1


async def test_cost_counts_where_the_price_is_known(memory: Store) -> None:
    def price(ref: str, usage: Any) -> float | None:
        return 0.25 if usage else None

    async with served(memory, Budget(scope="user", cost=0.5), price=price) as harness:
        session = await harness.get_or_create("one", user="ann")
        for text in ("Free", "Hi", "Free", "Hi"):
            assert (await session.send(text)).status == "done"
        assert (await session.send("Free")).code == "limit_budget"
    found = (await counted(memory))["user/ann/total"]
    assert (found.cost, found.tokens, found.runs) == (0.5, 2 * EACH, 4)


async def test_a_warning_is_in_the_log_the_display_and_for_operators(memory: Store) -> None:
    records: list[dict[str, Any]] = []
    budget = Budget(scope="user", tokens=100, per="month")
    log = LogConfig(sinks=[records.append], level="warning")
    async with served(memory, budget, logging=log) as harness:
        session = await harness.get_or_create("one", user="ann")
        await session.send("Hi")
        assert session.display.get().budgets == {}
        await session.send("Hi")
        assert session.display.get().budgets == {"user/month tokens": 1.0}
    warned = [event for event in await events_of(memory, "one") if event.kind == "run.warned"]
    assert [event.json() for event in warned] == [
        {"budget": "user/month", "measure": "tokens", "share": 1.0}
    ]
    assert [record["event"] for record in records] == ["budget_warning"]


@pytest.mark.parametrize("per", ["day", "month"])
async def test_the_next_period_begins_with_nothing_used(memory: Store, per: Any) -> None:
    clock = Clock()
    with env.use(clock):
        async with served(memory, Budget(scope="user", tokens=EACH, per=per)) as harness:
            session = await harness.get_or_create("one", user="ann")
            assert (await session.send("Hi")).status == "done"
            assert (await session.send("Hi")).code == "limit_budget"
            [item] = await session.pending()
            end = period_end(per, env.wall_clock())
            assert item.expires == end
            assert end is not None
            clock.moved += (end - env.wall_clock()) / 1000 + 1
            assert (await session.send("Hi")).status == "done"
            assert (await session.send("Hi")).code == "limit_budget"
            [later] = await session.pending()
            assert later.id != item.id
    assert [one.tokens for one in (await counted(memory)).values()] == [EACH, EACH]


async def test_sub_agents_count_for_the_user_and_only_the_main_run_asks(memory: Store) -> None:
    helper = Agent("helper", instructions="Help.")
    boss = Agent(
        "boss", instructions="Lead.", subagents=[SubAgent("helper", "helps", agent=helper)]
    )
    calls = [Use("subagent", agent="helper", task="Hi")]
    talk = ScriptedModel.by_input(
        {
            "Go": [Say("", calls=calls, usage=USED), Say("Done.", usage=USED)],
            ".": Say("Yes.", usage=USED),
        }
    )
    budget = Budget(scope="user", tokens=2 * EACH)
    async with Harness(boss, default_model=talk, store=memory, budgets=[budget]) as harness:
        session = await harness.get_or_create("one", user="ann")
        ended = await session.send("Go")
        assert ended.code == "limit_budget"
        assert len(await session.pending()) == 1
    assert (await counted(memory))["user/ann/total"].tokens == 2 * EACH
    assert await tokens_in_logs(memory) == 2 * EACH


async def test_a_fork_and_an_imported_copy_do_not_count_again(memory: Store) -> None:
    budgets = [Budget(scope="session", tokens=1000), TENANT]
    clock = Clock()
    with env.use(clock):
        async with served(memory, *budgets) as harness:
            session = await harness.get_or_create("one", user="ann")
            await session.send("Hi")
            await session.threads.fork(thread="side")
            file = await export_bundle((memory, Scope("main", "one")))
        clock.moved = 60
        await import_bundle(memory, file, session="copy", accept_redacted=True)
        before = await counted(memory)
        async with served(memory, *budgets) as harness:  # looks for charges that were lost
            copy = await harness.open("copy")
            assert (await copy.send("Hi")).status == "done"
        done = await rebuild(memory, "main", [("user", "day")])
        assert done.counted == 4  # two messages and two runs
    after = await counted(memory)
    assert after["session/one/total"] == before["session/one/total"]
    assert after["session/copy/total"].tokens == EACH
    assert after["tenant/main/total"].tokens == 2 * EACH == await tokens_in_logs(memory)


async def test_deleting_sessions_gives_nothing_back(memory: Store) -> None:
    async with served(memory, USER) as harness:
        session = await harness.get_or_create("one", user="ann")
        await session.send("Hi")
        await session.send("Hi")
        await harness.delete("one")
        again = await harness.get_or_create("one", user="ann")
        assert (await again.send("Hi")).code == "limit_budget"
    await rebuild(memory, "main")
    assert [one.tokens for one in (await counted(memory)).values()] == [2 * EACH]


async def test_erasing_a_person_erases_what_was_counted_for_the_person(memory: Store) -> None:
    budgets = [USER, TENANT, Budget(scope="session", runs=9)]
    async with served(memory, *budgets) as harness:
        for user in ("ann", "bob"):
            session = await harness.get_or_create(f"of-{user}", user=user)
            await session.send("Hi")
    sessions = Sessions(memory)
    exported = [one async for one in sessions.export_person("ann")]
    assert sum(one.event is not None and one.event.kind == "run.charged" for one in exported) == 4
    await sessions.erase_person("ann", reason="asked")
    left = await counted(memory)
    assert {(one.scope, one.who) for one in left.values()} == {
        ("user", "bob"),
        ("session", "of-bob"),
        ("tenant", "main"),
    }
    assert left["tenant/main/total"].tokens == 2 * EACH
    row = [r async for r in Sessions(memory).walk()]
    assert [one.session for one in row] == ["of-bob"]


async def test_a_refused_question_is_not_asked_again(memory: Store) -> None:
    async with served(memory, USER) as harness:
        session = await harness.get_or_create("one", user="ann")
        for _ in range(3):
            await session.send("Hi")
        [item] = await session.pending()
        with pytest.raises(InvalidValue):
            await session.approve(item.id, actor="op")
        with pytest.raises(InvalidValue):
            await session.answer({"extend": {"tokens": -5}}, item.id)
        with pytest.raises(InvalidValue):
            await session.answer({"extend": {"runs": 5}}, item.id)
        assert len(await session.pending()) == 1
        await session.deny(item.id, actor="op")
        assert (await session.send("Hi")).code == "limit_budget"
        assert await session.pending() == []
        fork = await session.threads.fork()
        assert (await fork.send("Hi")).code == "limit_budget"


async def test_of_two_answers_about_one_budget_the_first_counts(memory: Store) -> None:
    async with served(memory, TENANT) as harness:
        one, two = [await harness.get_or_create(id) for id in ("one", "two")]
        for session in (one, two, one, two):
            await session.send("Hi")
        [item] = await one.pending()
        assert [other.id for other in await two.pending()] == [item.id]
        await one.answer({"extend": {"tokens": 10}}, item.id, actor="op")
        with pytest.raises(AlreadyDecided) as error:
            await two.answer({"extend": {"tokens": 10_000}}, item.id, actor="second")
        assert error.value.by == "op"
    assert (await counted(memory))["tenant/main/total"].extended == {"tokens": 10}


async def test_an_extension_whose_answer_was_lost_is_made_once(memory: Store) -> None:
    async with served(memory, TENANT) as harness:
        session = await harness.get_or_create("one")
        for _ in range(3):
            await session.send("Hi")
        [item] = await session.pending()
    # The extension is written, and the process dies before it can settle the item.
    where = Key("main", "one", "main")
    flaky = FaultyStore(memory, [Fail(method="append", call=2)])
    with pytest.raises(Exception, match="planned"):
        await settle_pending(flaky, where, item.id, "answered", answer={"extend": {"tokens": 7}})
    await settle_pending(memory, where, item.id, "answered", answer={"extend": {"tokens": 7}})
    assert (await counted(memory))["tenant/main/total"].extended == {"tokens": 7}


async def test_clients_cannot_set_budgets_by_metadata(memory: Store) -> None:
    async with served(memory, USER) as harness:
        wish = {"budgets": [{"scope": "user", "tokens": 10**9}], "budget": "none"}
        session = await harness.get_or_create("one", user="ann", metadata={"budgets": "none"})
        codes = [(await session.send("Hi", metadata=wish)).code for _ in range(3)]
        assert codes == [None, None, "limit_budget"]


async def test_two_processes_know_of_each_other_within_a_second_and_a_half(store: Store) -> None:
    async with served(store, TENANT) as one, served(store, TENANT) as two:
        session = await one.get_or_create("one")
        await session.send("Hi")
        await session.send("Hi")
        await until_counted(store, "tenant/main/total", 2 * EACH)
        other = await two.get_or_create("two")
        assert (await other.send("Hi")).code == "limit_budget"


async def test_concurrent_runs_exceed_a_budget_by_the_calls_in_flight(memory: Store) -> None:
    async with served(memory, TENANT) as harness:
        sessions = [await harness.get_or_create(f"s{n}") for n in range(12)]
        ends = await asyncio.gather(*(session.send("Hi") for session in sessions))
        after = [await session.send("Hi") for session in sessions]
        assert {end.code for end in after} == {"limit_budget"}
        done = sum(end.status == "done" for end in ends)
        assert (await tokens_in_logs(memory)) == done * EACH <= 12 * EACH


async def test_a_worker_counts_each_tenant_for_itself(memory: Store) -> None:
    budget = Budget(scope="tenant", runs=1)
    settings: Any = {"default_model": model(), "poll": 0.02, "budgets": [budget]}
    for tenant in ("acme", "globex"):
        await Sessions(memory, tenant=tenant).post("s", "Hi", agent="clerk")
    async with Worker(AGENT, tenants="all", store=memory, **settings):
        for tenant in ("acme", "globex"):
            await until_counted(memory, f"tenant/{tenant}/total", EACH, tenant)


async def test_charges_wait_while_the_store_is_unavailable(memory: Store) -> None:
    """Every append to a usage log fails at first; the run is done, and what it used is counted."""

    class Away(FaultyStore):
        left = 3

        async def append(self, key: Key, *args: Any, **options: Any) -> Any:
            if key.tenant.startswith("~usage:") and self.left:
                self.left -= 1
                await Fail(method="append").strike()
            return await super().append(key, *args, **options)

    async with served(Away(memory), TENANT) as harness:
        session = await harness.get_or_create("one")
        assert (await session.send("Hi")).status == "done"
        found = await until_counted(memory, "tenant/main/total", EACH)
        assert (found.tokens, found.runs) == (EACH, 1)


async def test_usage_logs_of_an_encrypted_store_use_the_keys_of_their_tenant(
    tmp_path: Path,
) -> None:
    vault = Vault([Vault.new_key("all")], tenants={"acme": [Vault.new_key("acme")]})
    async with connect(f"sqlite:{tmp_path / 'v.db'}", vault=vault) as store:
        async with served(store, USER, tenant="acme") as harness:
            session = await harness.get_or_create("one", user="ann")
            for _ in range(3):
                await session.send("Hi")
            [item] = await session.pending()
            await session.answer({"extend": {"tokens": EACH}}, item.id, actor="op")
            assert (await session.send("Hi")).status == "done"
        found = next(iter((await counted(store, "acme")).values()))
        assert (found.tokens, found.extended) == (3 * EACH, {"tokens": EACH})
    assert [key.name for key in vault.masters("~usage:acme")] == ["acme"]


async def test_a_forged_charge_in_a_session_counts_nothing(memory: Store) -> None:
    async with served(memory, USER) as harness:
        session = await harness.get_or_create("one", user="ann")
        await session.send("Hi")
        forged = NewEvent.of("run.charged", {"usage": {"extra_tokens": 10**9, "tokens": -(10**9)}})
        await memory.append(Key("main", "one", "main"), [forged])
        await session.send("Hi")
        assert (await session.send("Hi")).code == "limit_budget"

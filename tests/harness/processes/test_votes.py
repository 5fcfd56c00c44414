"""Calls to which several people must agree: each counts once, the last decides, and nothing that
one alone does lets the call pass."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from holdfast import AlreadyDecided, InvalidValue, Mode, NewEvent, Sessions, connect, key, tool
from holdfast.bundle import export_bundle, replay
from holdfast.events import PendingSettled, ToolFinished
from holdfast.harness.live.decisions import settle_pending
from holdfast.harness.session.session import core_of
from holdfast.log.catalog import PendingQuery
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.stores.memory import MemoryStore
from tests import servers
from tests.cli.conftest import Cli, cli  # noqa: F401 - the command line
from tests.harness.kernel.scene import helper, until

from .test_approvals import AT, PATIENCE, Paid, harness, results

PEOPLE = ["ann", "bob", "cat", "dan", "eve"]
STORES = ["memory", "file", "sqlite", "postgres", "mongodb"]


def place(kind: str, folder: Path) -> str:
    if kind in ("postgres", "mongodb"):
        return servers.url(kind, folder)
    return {"memory": "memory:", "file": f"file:{folder / 'f'}"}.get(kind, f"sqlite:{folder / 'x'}")


async def test_each_counts_once_and_the_last_decides() -> None:
    paid, store = Paid(), MemoryStore()
    async with harness(store, paid.tool(approvals=3)) as serving:
        session = await serving.get_or_create("s")
        (waiting,) = (await session.send("Pay.")).pending
        assert (waiting.approvals, waiting.approved_by) == (3, ())
        inbox = (await store.pending(PendingQuery(tenant="main"))).items
        assert [item.approvals for item in inbox] == [3]
        for n, who in enumerate(PEOPLE[:2], 1):
            made = await session.approve(waiting.id, actor=who, reason="fine")
            assert (made.outcome, made.by, made.left) == ("voted", who, 3 - n)
            (still,) = await session.pending()
            assert still.approved_by == (*PEOPLE[:n],)
            assert session.display.get().pending[waiting.id].approved_by == (*PEOPLE[:n],)
            with pytest.raises(AlreadyDecided) as again:
                await session.approve(waiting.id, actor=who)
            assert (again.value.outcome, again.value.by) == ("voted", who)
        assert paid.done == []
        made = await session.approve(waiting.id, actor="cat")
        assert (made.outcome, made.by, made.left) == ("approved", "cat", 0)
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "done"
        assert [n for _, n in paid.done] == [1]
        events = await session.events()
        assert [e.actor for e in events if e.kind == "pending.voted"] == PEOPLE[:3]
        assert [e.actor for e in events if e.kind == "pending.settled"] == ["cat"]
    (call,) = [one async for one in Sessions(store).audit("s")]
    assert [(one.by, one.outcome) for one in call.decisions] == [
        *((who, "voted") for who in PEOPLE[:3]),
        ("cat", "approved"),
    ]


@pytest.mark.parametrize("kind", STORES)
async def test_of_many_at_once_as_many_count_as_are_needed(kind: str, tmp_path: Path) -> None:
    paid, url = Paid(), place(kind, tmp_path)
    async with connect(url) as store, connect(url) as second:
        other = store if kind == "memory" else second
        async with harness(store, paid.tool(approvals=3)) as serving:
            session = await serving.get_or_create("s")
            (waiting,) = (await session.send("Pay.")).pending
            votes = [
                settle_pending((store, other)[n % 2], AT, waiting.id, "approved", actor=who)
                for n, who in enumerate(PEOPLE)
            ]
            said = await asyncio.gather(*votes, return_exceptions=True)
            outcomes = Counter(getattr(one, "outcome", repr(one)) for one in said)
            assert outcomes == {"voted": 2, "approved": 3}
            assert sum(isinstance(one, AlreadyDecided) for one in said) == 2
            async with asyncio.timeout(PATIENCE):
                await core_of(session).catch_up()  # with what was written past it
                assert (await session.wait()).status == "done"
            kinds = Counter(event.kind for event in await session.events())
        assert (kinds["pending.voted"], kinds["pending.settled"]) == (3, 1)
        assert len(paid.done) == 1


async def test_a_no_of_one_is_a_no() -> None:
    paid = Paid()
    async with harness(MemoryStore(), paid.tool(approvals=2)) as serving:
        session = await serving.get_or_create("s")
        (waiting,) = (await session.send("Pay.")).pending
        await session.approve(waiting.id, actor="ann")
        assert (await session.deny(waiting.id, "too much", actor="bob")).outcome == "denied"
        async with asyncio.timeout(PATIENCE):
            await session.wait()
        assert await results(session) == [(1, "denied", "This call was denied. Reason: too much")]
        with pytest.raises(AlreadyDecided):
            await session.approve(waiting.id, actor="cat")
    assert paid.done == []


async def test_nobody_agrees_for_nobody_nor_to_something_else() -> None:
    paid = Paid()
    async with harness(MemoryStore(), paid.tool(approvals=2)) as serving:
        session = await serving.get_or_create("s")
        (waiting,) = (await session.send("Pay.")).pending
        head = core_of(session).live.state.head
        with pytest.raises(InvalidValue, match="2 approvals") as unnamed:
            await session.approve(waiting.id)
        assert unnamed.value.field == "actor"
        with pytest.raises(InvalidValue, match="several approvals") as changed:
            await session.approve(waiting.id, actor="ann", arguments={"n": 99})
        assert changed.value.field == "arguments"
        assert (await core_of(session).catch_up()).head == head
    assert paid.done == []


async def test_a_yes_of_a_program_that_counts_no_votes_does_not_let_it_pass() -> None:
    paid, store = Paid(), MemoryStore()
    async with harness(store, paid.tool(approvals=2)) as serving:
        session = await serving.get_or_create("s")
        (waiting,) = (await session.send("Pay.")).pending
        await session.approve(waiting.id, actor="ann")
        said = PendingSettled(id=waiting.id, outcome="approved")
        event = NewEvent.of("pending.settled", said, id=f"settle:{waiting.id}", actor="ann")
        async with asyncio.timeout(PATIENCE):
            await core_of(session).append(event)
            await session.wait()
        (call,) = [c for message in await session.transcript() for c in message.calls]
        assert call.outcome is not None
        assert call.outcome.outcome == "cancelled"
    assert paid.done == []


async def test_no_rule_grant_or_mode_lets_it_pass() -> None:
    paid = Paid()
    auto = helper(
        tools=[paid.tool(approvals=2, category="money")], modes=[Mode("auto", approval="auto")]
    )
    serving = harness(MemoryStore())
    serving.agent = auto
    async with serving:
        session = await serving.get_or_create("s")
        await session.permissions.set(tool="pay", rule="allow")
        await session.permissions.set(category="money", rule="allow")
        await session.grant_tool("pay")
        assert (await session.send("Pay.")).status == "waiting"
    assert paid.done == []


async def test_a_recorded_agreement_is_played_again(tmp_path: Path) -> None:
    paid, store = Paid(), MemoryStore()
    async with harness(store, paid.tool(approvals=2)) as serving:
        session = await serving.get_or_create("s")
        (waiting,) = (await session.send("Pay.")).pending
        for who in ("ann", "bob"):
            await session.approve(waiting.id, actor=who)
        async with asyncio.timeout(PATIENCE):
            await session.wait()
        agent = serving.agent
    await export_bundle((store, key("s").scope), "local", to=tmp_path / "s.zip")
    played = await replay(tmp_path / "s.zip", agent=agent)
    assert (played.same, played.first) == (True, None)
    # Off the recording, since the model says other words: what people decided is handed in.
    use = Say("Well.", calls=[Use("pay", n=1)])
    other = await replay(tmp_path / "s.zip", agent=agent, model=ScriptedModel([use, "Done."]))
    (events,) = other.events.values()
    assert Counter(event.kind for event in events)["pending.voted"] == 2
    assert [e.payload(ToolFinished).outcome for e in events if e.kind == "tool.finished"] == ["ok"]
    assert len(paid.done) == 1


@pytest.mark.parametrize("approvals", [0, -1, 21, 1.5, "two", True])
def test_a_number_that_people_cannot_be_is_refused(approvals: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        tool(lambda: None, name="pay", approvals=approvals)  # type: ignore[call-overload]
    assert refused.value.field == "pay.approvals"


async def test_the_command_line_says_who_is_still_to_come(
    tmp_path: Path,
    cli: Cli,  # noqa: F811
) -> None:
    paid, url = Paid(), f"sqlite:{tmp_path / 'x'}"
    async with harness(url, paid.tool(approvals=2)) as serving:
        session = await serving.get_or_create("s")
        (waiting,) = (await session.send("Pay.")).pending

        async def run(*words: str) -> str:
            done = await asyncio.to_thread(cli, *words, "--store", url)
            assert done.code == 0
            return done.out + done.err

        assert "approval by 2" in await run("pending")
        said = await run("approve", "s", waiting.id, "--actor", "ann")
        assert "approval of ann" in said
        assert "1 more approval is required" in said
        assert "approved" in await run("approve", "s", waiting.id, "--actor", "bob")
        await until(lambda: paid.done)
        assert "approval of" in await run("show", "s")
    assert len(paid.done) == 1

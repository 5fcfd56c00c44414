"""The public members of `Session` and `Harness` are those that the docs list, and their reprs show
what they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import Agent, Harness, Result, tool
from holdfast.models import Say, ScriptedModel, Use

DOCS = Path(__file__).parents[2] / "docs"


def listed(page: str, *headings: str) -> set[str]:
    """The names in the first column of the tables below these headings."""
    sections = re.split(r"^## ", (DOCS / page).read_text(), flags=re.M)
    rows = [
        line.split("|")[1]
        for section in sections
        if section.split("\n", 1)[0] in headings
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    return {name for row in rows for name in re.findall(r"`(\w+)", row)}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@tool(approval="ask")
async def refund(order: str) -> str:
    """Refund an order."""
    return "refunded"


def harness() -> Harness:
    model = ScriptedModel([Say("One moment.", calls=[Use("refund", order="42")]), "Done."])
    return Harness(Agent("shop", "Help.", tools=[refund]), default_model=model)


async def test_public_members_of_a_session_are_the_documented_ones() -> None:
    async with harness() as serving:
        session = await serving.get_or_create("s")
        assert public(session) == listed("session.md", "Methods", "The parts")


async def test_public_members_of_a_harness_are_the_documented_ones() -> None:
    async with harness() as serving:
        assert public(serving) == listed("harness.md", "All methods")


async def test_repr_of_a_session_says_what_is_going_on() -> None:
    async with harness() as serving:
        session = await serving.get_or_create("customer-42")
        assert repr(session) == "Session('customer-42', agent='shop', run=None, pending=0, head=1)"
        await session.send("Refund it.")
        head = session.status.head
        about = f"agent='shop', run='waiting', pending=1, head={head}"
        assert repr(session) == f"Session('customer-42', {about})"
        fork = await session.threads.create(id="other")
        assert repr(fork) == "Session('customer-42', thread='other', agent='shop', run=None, " + (
            f"pending=0, head={fork.status.head})"
        )
        await serving.close("customer-42")
        assert repr(session).endswith("closed=True)")


async def test_repr_of_a_harness_says_whether_it_runs() -> None:
    serving = harness()
    assert repr(serving) == "Harness('shop', tenant='main', not started)"
    async with serving:
        await serving.get_or_create("s")
        about = "tenant='main', store=MemoryStore('this process'), live=1, started"
        assert repr(serving) == f"Harness('shop', {about})"
    assert repr(serving).endswith("closed)")


async def test_repr_of_a_result_fits_on_a_line() -> None:
    async with harness() as serving:
        session = await serving.get_or_create("s")
        waiting = await session.send("Refund it.")
        about = f"text='One moment.', pending=1, run={waiting.run!r}"
        assert repr(waiting) == f"Result('waiting', {about})"
    long = Result(session="s", thread="main", run="r", status="done", text="one\ntwo " + "x" * 100)
    shown = r"one\ntwo " + "x" * 51 + "…"
    assert repr(long) == f"Result('done', text='{shown}', pending=0, run='r')"
    failed = Result(session="s", thread="main", run="r", status="failed", code="limit_steps")
    assert repr(failed) == "Result('failed', text='', code='limit_steps', pending=0, run='r')"


@pytest.mark.parametrize("secret", ["hunter2"])
async def test_repr_of_a_harness_shows_no_secret_of_its_store(secret: str) -> None:
    serving = Harness(
        Agent("shop", "Help."),
        default_model=ScriptedModel([]),
        store=f"postgresql://shop:{secret}@db.invalid/shop",
    )
    assert secret not in repr(serving)

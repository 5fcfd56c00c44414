"""Words are found wherever they are in a session, also those that no model reads any more."""

from __future__ import annotations

import pytest

from holdfast import InvalidValue, SessionNotFound, Sessions, Store, tool
from holdfast.events import KINDS
from holdfast.log.search import SEARCHED
from holdfast.models.port import FromModel
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.sessions import Found
from tests.harness.kernel.scene import helper, only, read, script, serve


@tool
async def look(order: str) -> dict[str, str]:
    """Look an order up."""
    return {"state": f"the Heron of {order} is lost"}


async def found(store: Store, words: str, id: str = "s") -> list[Found]:
    return (await Sessions(store).search(words, session=id)).hits


@pytest.mark.parity("user-demand", 74)
async def test_what_was_put_away_is_found_and_read_back(store: Store) -> None:
    model = script(Say("I look.", calls=[Use("look", order="7")]), "Seen.")
    agent = helper(tools=[look])
    async with serve(agent, default_model=model, store=store, window_turns=2) as harness:
        session = await harness.get_or_create("s")
        await session.send("Where is my PELICAN? " + "x" * 500, actor="ann")
        for n in range(8):
            await session.send(f"number {n}")
        assert "PELICAN" not in str(model.calls[-1].messages)
        (hit,) = await found(store, "pelican")
        assert (hit.kind, hit.by, hit.thread) == ("message.received", "ann", "main")
        assert "Where is my PELICAN?" in hit.excerpt
        assert len(hit.excerpt) < 300
        back = await session.events(after=hit.seq - 1)
        assert back[0].json()["text"].startswith("Where is my PELICAN?")
        herons = await found(store, "the heron of 7")
        assert len(herons) == 9
        assert all(one.call for one in herons)
        assert len(await found(store, '"order":"7"')) == 9
        await session.threads.fork()
        assert await found(store, "pelican") == [hit]
    assert await found(store, "albatross") == []


@pytest.mark.parity("user-demand", 74)
async def test_what_is_put_away_is_measured_by_what_a_model_reads(store: Store) -> None:
    """The log grows and grows; only the prompt decides when older turns are put away."""
    model = script("ok")
    async with serve(helper(), default_model=model, store=store, window_turns=20) as harness:
        session = await harness.get_or_create("s")
        for n in range(60):
            await session.send(f"number {n}")
        made = only(await session.events(), "compaction.made")
    assert 3 <= len(made) <= 6  # each leaves ten turns, and ten more may come
    assert max(len(read(call)) for call in model.calls) <= 2 * 20 + 2


@pytest.mark.parity("user-demand", 74)
async def test_whoever_goes_back_takes_nothing_of_the_vendors_along(store: Store) -> None:
    said = [Say(f"answer {n}", bound=[{"response_id": f"r{n}"}]) for n in range(4)]
    model = ScriptedModel(said)
    async with serve(helper(), default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        first = await session.send("one")
        await session.send("two")
        back = await session.threads.fork(at=first.seq)
        await back.send("other")
        fresh = await session.threads.create("Anew")
        await fresh.send("clear")
    rewound, cleared = model.calls[-2:]
    kept = [m.bound for m in rewound.messages if isinstance(m, FromModel)]
    assert "r0" in str(kept)
    assert "r1" not in str(rewound)
    assert [m for m in cleared.messages if isinstance(m, FromModel)] == []


async def test_nothing_and_nowhere_are_refused(store: Store) -> None:
    with pytest.raises(SessionNotFound, match="nobody"):
        await found(store, "x", "nobody")
    with pytest.raises(InvalidValue, match="query"):
        await found(store, "")


def test_the_fields_that_are_searched_exist() -> None:
    for kind, fields in SEARCHED.items():
        assert {*fields} <= {*KINDS[kind].__struct_fields__}

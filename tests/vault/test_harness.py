"""A harness on an encrypted store: conversations, forks, sub-agents, and processes that die in the
middle go on as on a plain one; and nothing of what was said is found in the files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import (
    Agent,
    Delta,
    Event,
    Harness,
    InvalidValue,
    KeyMissing,
    LogConfig,
    Media,
    Store,
    Vault,
    connect,
    key,
    tool,
)
from holdfast.events import MessageInterrupted, RunResumed
from holdfast.harness.session.session import Session
from holdfast.models import RecordedModel
from holdfast.models.port import FromUser, ModelCall
from holdfast.models.scripted import Say, ScriptedModel, Step, Use
from holdfast.state import VERSION
from holdfast.testing.samples import read_all
from tests.crash.places import holding
from tests.crash.places import url as plain_url
from tests.harness.crash import kills as killing
from tests.harness.kernel.scene import read
from tests.harness.processes.stage import STORY
from tests.harness.processes.test_processes import Stage, _worker, events, seen, texts
from tests.harness.subagents.scene import ASKING, child, lead, plays
from tests.links.places import InPostgres

pytestmark = pytest.mark.parity("user-demand", 64)

PATIENCE = 40.0
KINDS = ["sqlite", "postgres"]
QUIET = LogConfig(level="silent")
SECRET = "xyzzy"  # is in all that people and models say here
AT = key("s")


def sealed(url: str, folder: Path, keys: tuple[str, ...] = ()) -> str:
    """The URL of a store with the vault that belongs to a folder."""
    file = folder / "vault.toml"
    if keys or not file.exists():
        made = keys or (Vault.new_key("first"),)
        file.write_text(f"keys = [{', '.join(repr(one) for one in made)}]")
    return f"{url}{'&' if '?' in url else '?'}vault={quote(str(file))}"


def unsealed(url: str) -> str:
    return url.partition("vault=")[0].rstrip("?&")


async def damages(url: str) -> list[Any]:
    async with connect(url) as store:
        return [one async for one in store.verify()]


async def stored(url: str, folder: Path) -> list[str]:
    """Where a store of these kinds holds the secret in clear."""
    if url.startswith("sqlite"):
        return await asyncio.to_thread(holding, folder, SECRET)
    found = []
    async with InPostgres(unsealed(url)).direct() as conn:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        for (name,) in await conn.fetch(names):
            for row in await conn.fetch(f"SELECT * FROM {name}"):
                if SECRET.encode() in b" ".join(_bytes(value) for value in row.values()):
                    found.append(name)
    return found


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray) else str(value).encode()


@tool(approval="ask")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def shop(**parts: Any) -> Agent:
    return Agent("shop", **{"instructions": f"Help. {SECRET}", "tools": [refund], **parts})


def serve(url: str, *steps: Step, agent: Agent | None = None, **settings: Any) -> Harness:
    model = settings.pop("default_model", None) or ScriptedModel(steps, per_turn=True)
    return Harness(agent or shop(), default_model=model, store=url, logging=QUIET, **settings)


REFUND = Say(f"Let me see, {SECRET}.", calls=[Use("refund", order=f"{SECRET}-42")])
DONE = f"Refunded, {SECRET}."


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return sealed(plain_url(request.param, tmp_path), tmp_path)


async def said(session: Session) -> list[Any]:
    return [
        (m.role, m.text, [(c.name, c.arguments, c.outcome and c.outcome.result) for c in m.calls])
        for m in await session.transcript()
    ]


async def test_a_conversation_with_an_approval_goes_on_in_the_next_process(
    url: str, tmp_path: Path
) -> None:
    picture = Media(f"a picture, {SECRET}".encode() * 100, "image/png", f"{SECRET}.png")
    async with serve(url, REFUND, DONE) as harness:
        session = await harness.get_or_create("s", user="ann", title=f"About {SECRET}")
        asked = await session.send([f"Refund it, {SECRET}.", picture])
        assert (asked.status, [ask.title for ask in asked.pending]) == (
            "waiting",
            [f"refund(order='{SECRET}-42')"],
        )
        row = (await harness.list()).items[0]
        assert (row.title, row.first_message) == (f"About {SECRET}", f"Refund it, {SECRET}.")
        (item,) = (await harness.pending()).items
        assert item.title == asked.pending[0].title
    assert await stored(url, tmp_path) == []
    prompts: list[ModelCall] = []

    def answer(call: ModelCall) -> Say:
        prompts.append(call)
        return Say(DONE)

    async with serve(url, REFUND, answer) as harness:
        session = await harness.get_or_create("s")
        await session.approve(actor="bob", reason=f"{SECRET}: right")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == DONE
        (prompt,) = prompts
        assert read(prompt)[0] == f"user: Refund it, {SECRET}. | <image/png>"
        first = prompt.messages[0]
        assert isinstance(first, FromUser)
        assert picture.data in [getattr(part, "data", b"") for part in first.content]
        calls = [("refund", {"order": f"{SECRET}-42"}, f"refunded {SECRET}-42")]
        assert (await said(session))[1:] == [
            ("assistant", f"Let me see, {SECRET}.", calls),
            ("assistant", DONE, []),
        ]
    assert await stored(url, tmp_path) == []
    assert await damages(url) == []


async def test_without_its_keys_no_harness_begins(url: str, tmp_path: Path) -> None:
    async with serve(url, DONE) as harness:
        await harness.send("s", "Hello")
    with pytest.raises(InvalidValue, match="this store is encrypted"):
        async with serve(unsealed(url), DONE):
            pass
    wrong = sealed(unsealed(url), tmp_path, (Vault.new_key("other"),))
    with pytest.raises(KeyMissing):
        async with serve(wrong, DONE) as harness:
            await harness.get_or_create("s")


async def test_an_answer_is_streamed_and_its_draft_is_encrypted(url: str, tmp_path: Path) -> None:
    words = " ".join(f"{SECRET}{n}" for n in range(40))
    async with serve(url, Say(words, delay=0.02)) as harness, connect(url) as other:
        session = await harness.get_or_create("s")
        await session.post("Tell.")
        drafts: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while not drafts or not drafts[-1]:
                drafts = [draft.text for draft in await other.drafts(AT)] or drafts
                await asyncio.sleep(0)
        assert words.startswith(drafts[-1])
        assert await stored(url, tmp_path) == []
        items = await seen(session, lambda items: bool(events(items, "run.finished")))
        (message,) = events(items, "message.completed")
        assert message.json()["text"] == words
        assert words.startswith(texts(items).get(message.id, ""))
        assert await other.drafts(AT) == []


# Processes that die


class Sealed(Stage):
    """The stage on an encrypted store."""

    def __init__(self, kind: str, folder: Path, worker: Any, ttl: float) -> None:
        self.url = sealed(plain_url(kind, folder), folder)
        self.folder, self.worker, self.ttl = folder, worker, ttl
        self.owner = worker.ask("open", url=self.url, folder=str(folder), ttl=ttl)["owner"]


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sealed]:
    with _worker() as worker:
        yield Sealed(request.param, tmp_path, worker, ttl=1.0)


@pytest.mark.slow
async def test_a_process_that_is_killed_in_the_middle_of_an_answer_is_replaced(
    stage: Sealed,
) -> None:
    async with stage.beside("Tell a story.") as session:
        watching = asyncio.create_task(
            seen(session, lambda items: bool(events(items, "run.finished")))
        )
        await seen(session, lambda items: isinstance(items[-1], Delta))
        stage.worker.kill()
        result = await session.wait()
        assert (result.status, result.text) == ("done", STORY)
        items = await watching
        (resumed,) = events(items, "run.resumed")
        assert resumed.payload(RunResumed).reason == "driver_lost"
        (left,) = events(items, "message.interrupted")
        part = left.payload(MessageInterrupted).text
        assert part
        assert STORY.startswith(part)
        told = texts(items)
        (whole,) = events(items, "message.completed")
        assert (told[left.id], told[whole.id]) == (part, STORY)
    assert await damages(stage.url) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_kills_before_and_after_its_writes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        killing, "url", lambda kind, folder: sealed(plain_url(kind, folder), folder)
    )
    found = killing.kills(kind, tmp_path, count=6)
    assert found.problems == []
    assert found.counts["kills"] >= 6
    assert asyncio.run(damages(sealed(plain_url(kind, tmp_path), tmp_path))) == []


# Threads


async def test_forks_and_second_tries_share_what_was_before(url: str) -> None:
    model = ScriptedModel([lambda call: f"re {read(call)[-1]}"], per_turn=True)
    async with serve(url, default_model=model) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        for text in ("one", "two", "three"):
            await session.send(f"{text} {SECRET}")
        before = await said(session)
        asked = [m.seq for m in await session.transcript() if m.role == "user"]
        fork = await session.threads.fork(at=asked[1] - 1, thread="other", title=f"If {SECRET}")
        assert (await fork.send("else")).text == "re user: else"
        again = await session.threads.regenerate(asked[1])
        assert (await again.wait()).text == f"re user: two {SECRET}"
        edited = await session.threads.edit(asked[2], "3")
        assert (await edited.wait()).text == "re user: 3"
        assert await said(session) == before
        rows = {row.thread: row for row in (await session.threads.list()).items}
        assert (rows["other"].title, len(rows)) == (f"If {SECRET}", 4)
    async with serve(url, default_model=model) as harness:
        fork = await harness.get_or_create("s", thread="other")
        assert [text for _, text, _ in await said(fork)] == [
            *[text for _, text, _ in before[:2]],
            "else",
            "re user: else",
        ]
    assert await damages(url) == []


async def test_a_sub_agent_asks_and_reports_across_processes(url: str) -> None:
    settings: dict[str, Any] = {"agent": lead(), "default_model": plays(ASKING)}
    async with serve(url, **settings) as harness, asyncio.timeout(PATIENCE):
        result = await (await harness.get_or_create("s")).send("Go.")
        assert (result.status, [ask.title for ask in result.pending]) == (
            "waiting",
            ["paint(what='sky')"],
        )
    async with serve(url, **settings) as harness, asyncio.timeout(PATIENCE):
        session = await harness.get_or_create("s")
        below = await child(session)
        await below.approve(actor="ann")
        assert (await session.wait()).text == "All is well."
        assert [text for _, text, _ in await said(below)][-1] == "It is painted."
    assert await damages(url) == []


async def test_the_user_state_and_settings_of_several_writers_are_kept(url: str) -> None:
    def add(state: dict[str, Any]) -> None:
        state["n"] += 1

    agent = shop(state={"n": 0, "note": SECRET})
    async with serve(url, DONE, agent=agent) as one, serve(url, DONE, agent=agent) as two:
        sessions = [await one.get_or_create("s"), await two.get_or_create("s")]
        await asyncio.gather(*(s.state.update(add) for s in sessions for _ in range(5)))
        await sessions[0].thread.settings.set(theme="dark")
    async with serve(url, DONE, agent=agent) as harness:
        session = await harness.get_or_create("s")
        assert session.state.get() == {"n": 10, "note": SECRET}
        assert session.thread.settings.all() == {"theme": "dark"}


async def test_a_long_session_is_opened_from_an_encrypted_snapshot(tmp_path: Path) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db?durability=process", tmp_path)
    async with serve(url, DONE) as harness:
        session = await harness.get_or_create("s")
        await session.state.update(note=SECRET)
        for n in range(110):
            await session.send(f"{n} {SECRET}")
        before = await said(session)
    async with connect(url) as store:
        kept = await store.load_snapshot(AT, VERSION)
        assert kept is not None
        assert SECRET.encode() in bytes(kept.state)
    assert await stored(url, tmp_path) == []
    async with serve(url, DONE) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("still here?")).text == DONE
        assert (await said(session))[:-2] == before
    # One that was tampered with is passed over, and the log is read instead.
    with closing(sqlite3.connect(tmp_path / "x.db")) as conn, conn:
        changed = conn.execute('UPDATE snapshots SET state = CAST(\'{"box":"x"}\' AS BLOB)')
        assert changed.rowcount == 1
    async with serve(url, DONE) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("and now?")).text == DONE
        assert (await said(session))[:-4] == before


async def test_a_log_is_played_again_from_what_was_recorded(url: str) -> None:
    async def play(session: Session) -> None:
        await session.send("Refund it.")
        await session.approve(actor="ann")
        async with asyncio.timeout(PATIENCE):
            (await session.wait()).raise_for_status()

    async with serve(url, REFUND, DONE) as harness:
        first = await harness.get_or_create("first")
        await play(first)
        wanted = await said(first)
    async with connect(url) as store:
        log = await read_all(store, key("first"))
    async with serve(url, default_model=RecordedModel(log)) as harness:
        again = await harness.get_or_create("again")
        await play(again)
        assert await said(again) == wanted


async def test_two_processes_follow_and_queue_in_one_session(url: str) -> None:
    """Both write; numbers and texts are what each of them reads."""
    steps = [lambda call: f"re {read(call)[-1]}"]
    async with (
        serve(url, default_model=ScriptedModel(steps, per_turn=True)) as one,
        serve(url, default_model=ScriptedModel(steps, per_turn=True)) as two,
        connect(url) as store,
    ):
        sessions = [await one.get_or_create("s"), await two.get_or_create("s")]
        await asyncio.gather(*(s.post(f"{n} {SECRET}") for n, s in enumerate(sessions * 4)))
        async with asyncio.timeout(PATIENCE):
            for session in sessions:
                await session.wait()
        logs = [await session.events() for session in sessions]
        assert logs[0] == logs[1] == await _log(store)
        came = [e.json()["text"] for e in logs[0] if e.kind == "message.received"]
        assert sorted(came) == [f"{n} {SECRET}" for n in range(8)]
        assert [event.seq for event in logs[0]] == list(range(1, len(logs[0]) + 1))


async def _log(store: Store) -> list[Event]:
    return await read_all(store, AT)

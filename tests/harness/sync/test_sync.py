"""`holdfast.sync`: the verbs of the harness without `await`, from scripts, threads, notebooks."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    AlreadyDecided,
    Delta,
    Event,
    HarnessClosed,
    InvalidAgent,
    InvalidValue,
    Mode,
    NotPending,
    Result,
)
from holdfast.harness.agents.agent import Agent
from holdfast.harness.session.session import Session
from holdfast.harness.tools import tool
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.sync import Harness, Remote

DONE: list[str] = []


@tool(approval="ask")
def refund(order: str) -> str:
    """Pay money back."""
    DONE.append(order)
    return f"refunded {order}"


AGENT = Agent(
    "Shop",
    instructions="Help.",
    tools=[refund],
    modes=[Mode("day"), Mode("night")],
    state={"seen": 0},
)


def model() -> ScriptedModel:
    return ScriptedModel.by_input(
        {
            "refund": [Say("I will.", calls=[Use("refund", order="42")]), Say("It is done.")],
            "slow": Say(chunks=["begun ", "ended"], delay=3600.0),
            "": Say("Good day to you."),
        }
    )


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    DONE.clear()
    with Harness(AGENT, default_model=model(), store=f"sqlite:{tmp_path}/s.db") as harness:
        yield harness


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast.sync"]


def test_a_message_is_sent_and_answered(harness: Harness) -> None:
    session = harness.get_or_create("customer-42")
    result = session.send("hello")
    assert isinstance(result, Result)
    assert (result.status, result.text) == ("done", "Good day to you.")
    assert session.id == "customer-42"
    assert [message.text for message in session.transcript()] == ["hello", "Good day to you."]


def test_an_approval_is_given_between_two_calls(harness: Harness) -> None:
    session = harness.get_or_create()
    waiting = session.send("refund")
    assert waiting.status == "waiting"
    assert DONE == []
    assert [item.id for item in session.pending()] == [waiting.pending[0].id]
    session.approve(actor="ann")
    assert session.wait().text == "It is done."
    assert DONE == ["42"]
    with pytest.raises(AlreadyDecided, match="approved by ann"):
        session.approve(waiting.pending[0].id)


def test_the_harness_answers_for_any_session(harness: Harness) -> None:
    assert harness.send("s", "refund").status == "waiting"
    assert [item.session for item in harness.pending().items] == ["s"]
    harness.deny("s", reason="no")
    assert harness.get("s").wait().text == "It is done."
    assert DONE == []
    assert [row.session for row in harness.list().items] == ["s"]
    with pytest.raises(NotPending):
        harness.approve("s")


def test_a_stream_is_iterated(harness: Harness) -> None:
    stream = harness.get_or_create("s").stream("hello")
    items = list(stream)
    text = "".join(item.text for item in items if isinstance(item, Delta))
    assert text == "Good day to you."
    events = [item for item in items if isinstance(item, Event)]
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    assert events[-1].kind == "run.finished"
    assert stream.result.text == text


def test_a_stream_that_is_left_stops_nothing(harness: Harness) -> None:
    session = harness.get_or_create("s")
    for item in session.stream("hello"):
        if isinstance(item, Event):
            break
    assert session.wait().status == "done"


def test_listening_begins_where_it_is_asked_to(harness: Harness) -> None:
    session = harness.get_or_create("s")
    session.send("hello")
    seen = []
    for item in session.subscribe(0):
        if isinstance(item, Event):
            seen.append(item.kind)
            if item.kind == "run.finished":
                break
    assert seen[0] == "session.created"


def test_views_are_used_like_the_session(harness: Harness) -> None:
    session = harness.get_or_create("s")
    assert session.state.get() == {"seen": 0}
    assert session.state.update(seen=1, name="ann") == {"seen": 1, "name": "ann"}
    daily = session.schedules.set("daily", message="Hi", every=86_400)
    assert session.schedules.list() == [daily]
    assert session.schedules.remove("daily")
    assert session.mode.name == "day"
    assert session.mode.switch("night") is True
    assert session.mode.name == "night"
    assert len(session.queue) == 0
    assert session.queue.list() == []
    made = session.checkpoints.create("here")
    assert [item.id for item in session.checkpoints.list()] == [made.id]
    session.model.set("scripted/demo")
    assert session.model.chosen == "scripted/demo"


def test_a_fork_is_a_session_too(harness: Harness) -> None:
    session = harness.get_or_create("s")
    session.send("hello")
    forked = session.threads.fork(thread="what-if")
    assert forked.send("again").thread == "what-if"
    assert len(session.transcript()) == 2


def test_the_same_session_is_equal_and_others_are_not(harness: Harness) -> None:
    assert harness.get_or_create("s") == harness.get_or_create("s")
    assert len({harness.get_or_create("s"), harness.get_or_create("s")}) == 1
    assert harness.get_or_create("s") != harness.get_or_create("t")
    assert harness.get("nobody") is None


@pytest.mark.parity("user-demand", 36)
def test_the_store_is_there_as_well(harness: Harness) -> None:
    harness.send("s", "hello")
    kinds = [event.kind for event in harness.store.read(holdfast.key("s"))]
    assert kinds[0] == "session.created"
    assert harness.store.info().kind == "sqlite"


@pytest.mark.parity("user-demand", 36)
def test_every_public_name_of_a_session_is_offered(harness: Harness) -> None:
    session = harness.get_or_create("s")
    wanted = {name for name in dir(Session) if not name.startswith("_")}
    assert wanted <= set(dir(session))
    for name in wanted:
        assert hasattr(session, name)
    assert inspect.signature(session.approve) == inspect.signature(Session.approve).replace(
        parameters=list(inspect.signature(Session.approve).parameters.values())[1:]
    )
    assert session.send.__doc__ == Session.send.__doc__
    with pytest.raises(AttributeError):
        session.nonsense  # noqa: B018
    assert not hasattr(session, "_repr_html_")


def test_many_threads_use_it_at_once(harness: Harness) -> None:
    results: list[str] = []

    def talk(number: int) -> None:
        results.append(harness.send(f"s{number % 3}", f"hello {number}").status)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["done"] * 12


def test_closing_ends_the_thread_and_everything_after_it(tmp_path: Path) -> None:
    harness = Harness(AGENT, default_model=model())
    assert ours() == []
    session = harness.get_or_create("s")
    assert session.send("hello").status == "done"
    assert len(ours()) == 1
    assert harness.close() is True
    assert ours() == []
    assert harness.close() is False
    with pytest.raises(HarnessClosed):
        session.send("again")
    with pytest.raises(HarnessClosed):
        harness.get_or_create("s")


def test_one_session_is_closed_and_the_rest_stay(harness: Harness) -> None:
    old = harness.get_or_create("s")
    assert harness.close("s") is True
    assert harness.close("s") is False
    with pytest.raises(HarnessClosed):
        old.send("hello")
    assert harness.send("s", "hello").status == "done"


def test_closing_hands_over_what_is_going(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    with Harness(AGENT, default_model=model(), store=url) as harness:
        for item in harness.get_or_create("s").stream("slow"):
            if isinstance(item, Delta):
                break
        harness.close(grace=0.1)
    with Harness(AGENT, default_model=model(), store=url, recovery="leave") as harness:
        row = harness.store.row(holdfast.key("s"))
        assert row.run == "waiting"


def test_what_is_wrong_is_said_at_once_and_leaves_no_thread() -> None:
    with pytest.raises(InvalidAgent):
        Harness(Agent("x"), default_model=model())
    assert ours() == []


def test_a_store_that_does_not_open_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "not.db").write_text("this is not a database, as anyone can see")
    harness = Harness(AGENT, default_model=model(), store=f"sqlite:{tmp_path}/not.db")
    with pytest.raises(holdfast.HoldfastError, match="not an SQLite database"), harness:
        raise AssertionError("it was opened")
    assert ours() == []


def test_a_thread_that_waits_is_told_when_another_closes(tmp_path: Path) -> None:
    told: list[BaseException] = []
    harness = Harness(AGENT, default_model=model(), store=f"sqlite:{tmp_path}/s.db").start()
    session = harness.get_or_create("s")

    def wait() -> None:
        try:
            session.send("slow")
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    next(item for item in session.subscribe(0) if isinstance(item, Delta))
    harness.close(grace=0.1)
    thread.join()
    assert isinstance(told[0], HarnessClosed), told


def test_a_call_from_its_own_loop_is_refused(harness: Harness) -> None:
    told: list[Exception] = []

    def listener(event: str, id: str, value: Any) -> None:
        try:
            harness.get_or_create("t")
        except InvalidValue as error:
            told.append(error)

    leave = harness.subscribe(listener)
    harness.send("s", "hello")
    leave()
    assert "its own event loop" in str(told[0])


def test_no_coroutine_is_left_unawaited(tmp_path: Path) -> None:
    harness = Harness(AGENT, default_model=model())
    harness.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HarnessClosed):
            harness.get_or_create("s")


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sync.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    ended = child(f"import os; os.chdir({str(tmp_path)!r})\n{code}")
    assert (ended.stdout, ended.stderr) == ("It is done.\nIt is done.", "")


NOTEBOOK = """
import asyncio
from tests.harness.sync.test_sync import AGENT, model
from holdfast.sync import Harness

async def cell() -> None:
    with Harness(AGENT, default_model=model()) as harness:
        print(harness.send("s", "hello").text)

asyncio.run(cell())
"""


def child(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )


def test_it_works_where_an_event_loop_runs() -> None:
    """As in a notebook: the thread has a loop that runs, and is held up meanwhile."""
    ended = child(NOTEBOOK)
    assert (ended.stdout, ended.stderr) == ("Good day to you.\n", "")


INTERRUPTED = """
import os, signal, sys, threading
from holdfast import Delta, key
from tests.harness.sync.test_sync import AGENT, model
from holdfast.sync import Harness

with Harness(AGENT, default_model=model(), store=sys.argv[1]) as harness:
    session = harness.get_or_create("s")

    def press() -> None:
        for item in session.subscribe(0):
            if isinstance(item, Delta):
                os.kill(os.getpid(), signal.SIGINT)
                return

    threading.Thread(target=press).start()
    try:
        if sys.argv[2] == "send":
            session.send("slow")
        else:
            for item in session.stream("slow"):
                pass
    except KeyboardInterrupt:
        print("interrupted", session.status.phase, flush=True)
    session.abort()
    print(session.wait().status, flush=True)
"""


@pytest.mark.parametrize("verb", ["send", "stream"])
def test_ctrl_c_raises_and_leaves_the_run_going(tmp_path: Path, verb: str) -> None:
    ended = child(INTERRUPTED, f"sqlite:{tmp_path}/s.db", verb)
    assert ended.stdout.split() == ["interrupted", "waiting_model", "aborted"], ended.stderr
    assert ended.returncode == 0
    assert ended.stderr == ""


def test_a_remote_says_what_it_stands_for(harness: Harness) -> None:
    session = harness.get_or_create("s")
    assert isinstance(session, Remote)
    assert "Session" in repr(session)
    assert "holdfast.sync" in repr(session)

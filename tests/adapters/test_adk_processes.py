"""What a process wrote before it was killed is there, whole, for the next one; agents of ADK with a
stand-in model, which another process continues."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.runners import Runner
from google.genai import types

from holdfast import connect, key
from holdfast.adapters.adk import HoldfastSessionService
from holdfast.log.transcript import transcript
from tests import forks

from .adk_agent import StandIn, confirmed, crash, look, run, runner, shop, user
from .adk_writer import EVENTS, STATES, WHO, event

ROOT = Path(__file__).parents[2]
NEEDED = ("google.adk.runners", "holdfast.adapters.adk")


async def test_process_killed_after_any_call_has_lost_nothing(tmp_path: Path) -> None:
    calls = len(EVENTS) + 2
    urls = [f"sqlite:{tmp_path}/{stop}.db" for stop in range(calls)]
    codes = await asyncio.gather(
        *(asyncio.to_thread(killed, url, stop + 1) for stop, url in enumerate(urls))
    )
    assert codes == [-signal.SIGKILL] * calls
    for stop, url in enumerate(urls):
        async with connect(url) as store:
            service = HoldfastSessionService(store)
            session = await service.get_session(**WHO)
            assert (session is None) == (stop == calls - 1)
            if session is not None:
                assert session.events == EVENTS[:stop]
                assert session.state == STATES[stop]
                await service.append_event(session, event("next", z=1))
                again = await service.get_session(**WHO)
                assert again is not None
                assert again.events == session.events
                assert again.state == {**STATES[stop], "z": 1}
            assert [damage async for damage in store.verify()] == []


def killed(url: str, stop: int) -> int:
    words = ("-m", "tests.adapters.adk_writer", url, str(stop))
    return forks.run(*words, needs=NEEDED, cwd=ROOT).returncode


def test_example_continues_its_conversation(tmp_path: Path) -> None:
    example = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    words = ("-c", example, str(ROOT / "examples/adk_agent.py"), f"sqlite:{tmp_path}/log.db")
    for events in (4, 8):
        done = forks.run(*words, needs=NEEDED, check=True, capture_output=True, text=True)
        assert done.stdout == f"It was shipped.\n{events} events in the conversation\n"


async def test_agent_continues_a_conversation(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    first = shop(("look", {"city": "Oslo"}), ("Rain in Oslo.",), tools=[look])
    async with HoldfastSessionService(url) as service:
        events = await run(runner(first, service), user("Weather?"))
        assert [each.is_final_response() for each in events] == [False, False, True]
    second = shop(("Still rain.",), tools=[look])
    async with HoldfastSessionService(url) as service:
        await run(runner(second, service), user("And now?"))
        session = await service.get_session(**WHO)
    assert session is not None
    assert session.state == {"last": "Still rain."}
    assert isinstance(second.model, StandIn)
    (prompt,) = second.model.prompts
    assert [said(content) for content in prompt] == [
        ("user", "Weather?"),
        ("model", "look"),
        ("user", {"result": "rain in Oslo"}),
        ("model", "Rain in Oslo."),
        ("user", "And now?"),
    ]


def said(content: types.Content) -> tuple[str | None, object]:
    assert content.parts is not None
    part = content.parts[0]
    if part.function_call is not None:
        return content.role, part.function_call.name
    response = part.function_response
    return content.role, part.text if response is None else response.response


async def test_streamed_answer_is_stored_once(tmp_path: Path) -> None:
    async with HoldfastSessionService(f"sqlite:{tmp_path}/log.db") as service:
        agent = shop(("Rain.",), tools=[])
        options = RunConfig(streaming_mode=StreamingMode.SSE)
        events = await run(runner(agent, service), user("Weather?"), run_config=options)
        assert len([each for each in events if each.partial]) == 5
        session = await service.get_session(**WHO)
        assert session is not None
        assert len(session.events) == 2


async def test_turn_that_adk_rewinds_is_left_out_by_adk(tmp_path: Path) -> None:
    async with HoldfastSessionService(f"sqlite:{tmp_path}/log.db") as service:
        agent = shop(("First.",), ("Second.",), ("Third.",), tools=[])
        turns = runner(agent, service)
        await run(turns, user("One?"))
        second = await run(turns, user("Two?"))
        await turns.rewind_async(
            user_id="u", session_id="s", rewind_before_invocation_id=second[0].invocation_id
        )
        session = await service.get_session(**WHO)
        assert session is not None
        assert len(session.events) == 5
        assert session.state == {"last": "First."}
        await run(turns, user("Three?"))
        assert isinstance(agent.model, StandIn)
        prompt = [said(content)[1] for content in agent.model.prompts[-1]]
        assert prompt == ["One?", "First.", "Three?"]


async def test_confirmed_tool_runs_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    async with HoldfastSessionService(url) as service:
        agent = shop(("look", {"city": "Oslo"}), ("Asked.",), tools=[confirmed(look)])
        events = await run(runner(agent, service), user("Weather?"))
    (asked,) = [
        call
        for each in events
        for call in each.get_function_calls()
        if call.name == "adk_request_confirmation"
    ]
    answer = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
    async with HoldfastSessionService(url) as service:
        agent = shop(("Rain in Oslo.",), tools=[confirmed(look)])
        message = types.Content(role="user", parts=[types.Part(function_response=answer)])
        events = await run(runner(agent, service), message)
        assert events[-1].is_final_response()
        session = await service.get_session(**WHO)
        assert session is not None
        assert session.state["last"] == "Rain in Oslo."
    async with connect(url) as store:
        messages = transcript([each async for each in store.read(key("s"))])
    outcomes = [call.outcome for message in messages for call in message.calls]
    assert [outcome and outcome.result for outcome in outcomes] == [
        "rain in Oslo",  # the refusal before the confirmation is no outcome
        {"confirmed": True},
    ]


@pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL")
async def test_crash_in_a_tool_is_resumed_by_another_process(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    words = ("-m", "tests.adapters.adk_agent", url)
    done = await asyncio.to_thread(forks.run, *words, needs=NEEDED, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    async with HoldfastSessionService(url) as service:
        session = await service.get_session(**WHO)
        assert session is not None
        assert [bool(each.get_function_calls()) for each in session.events] == [False, True]
        agent = shop(("It broke.",), tools=[crash])
        agent.tools = [survived]
        app = App(
            name="shop",
            root_agent=agent,
            resumability_config=ResumabilityConfig(is_resumable=True),
        )
        resumed = Runner(app=app, session_service=service)
        invocation = session.events[0].invocation_id
        events = await run(resumed, None, invocation_id=invocation)
        assert any(each.get_function_responses() for each in events)
        found = await service.get_session(**WHO)
        assert found is not None
        assert found.events[: len(session.events)] == session.events
        assert found.state["last"] == "It broke."


def survived(city: str) -> str:
    return city


survived.__name__ = "crash"

"""An agent of Google ADK with a stand-in model. As a program it is killed in the middle of a tool:
`adk_agent URL`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import Agent
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from holdfast.adapters.adk import HoldfastSessionService

WHO: dict[str, Any] = {"user_id": "u", "session_id": "s"}


class StandIn(BaseLlm):
    """Gives its answers one after the other, and keeps the prompts."""

    model: str = "stand-in"
    answers: list[Any] = []
    prompts: list[list[types.Content]] = []

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.prompts.append([*llm_request.contents])
        answer = self.answers.pop(0)
        call = types.FunctionCall(name=answer[0], args=answer[1]) if answer[1:] else None
        part = types.Part(function_call=call) if call else types.Part(text=answer[0])
        if stream and not call:
            for letter in answer[0]:
                said = types.Content(role="model", parts=[types.Part(text=letter)])
                yield LlmResponse(content=said, partial=True)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=3, candidates_token_count=2, total_token_count=5
        )
        content = types.Content(role="model", parts=[part])
        yield LlmResponse(content=content, usage_metadata=usage)


def look(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


def crash(city: str) -> str:
    """Do the same, if the process survives."""
    os.kill(os.getpid(), signal.SIGKILL)
    return city


def shop(*answers: tuple[Any, ...], tools: list[Any]) -> Agent:
    model = StandIn(answers=list(answers), prompts=[])
    return Agent(name="shop", model=model, tools=tools, output_key="last")


def confirmed(tool: Any) -> FunctionTool:
    return FunctionTool(tool, require_confirmation=True)


def runner(agent: Agent, service: HoldfastSessionService) -> Runner:
    return Runner(app_name="shop", agent=agent, session_service=service, auto_create_session=True)


def user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


async def run(runner: Runner, message: types.Content | None, **options: Any) -> list[Event]:
    turn = runner.run_async(**WHO, new_message=message, **options)
    return [event async for event in turn]


async def main(url: str) -> None:
    agent = shop(("crash", {"city": "Oslo"}), tools=[crash])
    await run(runner(agent, HoldfastSessionService(url)), user("Weather?"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

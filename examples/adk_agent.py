"""A Google ADK agent whose conversation is in a Holdfast store. Runs without a key: a stand-in
model answers. Run it twice: the second run continues the conversation of the first."""

import asyncio
import sys
from collections.abc import AsyncGenerator

from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.genai import types

from holdfast.adapters.adk import HoldfastSessionService


def look_up(order: int) -> str:
    """Return the status of an order."""
    return f"order {order} was shipped"


class StandIn(BaseLlm):
    """Calls the tool, then answers."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = llm_request.contents[-1].parts or []
        if parts and parts[0].function_response:
            part = types.Part(text="It was shipped.")
        else:
            part = types.Part.from_function_call(name="look_up", args={"order": 42})
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main(url: str) -> None:
    agent = Agent(name="shop", model=StandIn(model="stand-in"), tools=[look_up])
    who = {"user_id": "ann", "session_id": "customer-42"}
    async with HoldfastSessionService(url) as service:
        runner = Runner(
            app_name="shop", agent=agent, session_service=service, auto_create_session=True
        )
        message = types.Content(role="user", parts=[types.Part(text="Where is order 42?")])
        async for event in runner.run_async(**who, new_message=message):
            if event.is_final_response() and event.content and event.content.parts:
                print(event.content.parts[0].text)
        session = await service.get_session(app_name="shop", **who)
        print(f"{len(session.events) if session else 0} events in the conversation")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:adk.db"))

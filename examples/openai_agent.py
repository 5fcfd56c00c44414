"""An OpenAI Agents SDK agent whose conversation is in a Holdfast store. Runs without a key: a
scripted model stands in. Run it twice: the second run continues the conversation of the first."""

import asyncio
import sys

from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import function_tool

from holdfast.adapters.openai import HoldfastSession


@function_tool
def look_up(order: int) -> str:
    """Return the status of an order."""
    return f"order {order} was shipped"


def shop() -> Agent[None]:
    model = ScriptedModel(
        [
            [function_call("look_up", {"order": 42}, call_id="call_1")],
            [assistant_message("It was shipped.")],
        ]
    )
    return Agent("shop", instructions="Answer from the orders.", model=model, tools=[look_up])


async def main(url: str) -> None:
    async with HoldfastSession("customer-42", url) as session:
        quiet = RunConfig(tracing_disabled=True)
        result = await Runner.run(shop(), "Where is order 42?", session=session, run_config=quiet)
        print(result.final_output)
        print(f"{len(await session.get_items())} items in the conversation")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:openai.db"))

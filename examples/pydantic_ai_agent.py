"""A pydantic-ai agent whose conversation is in a Holdfast store. Runs without a key: a function is
the model. Run it twice: the second run continues the conversation of the first."""

import asyncio
import sys

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.adapters.pydantic_ai import HoldfastConversationStore


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart("It was shipped.")])
    call = ToolCallPart("look_up", {"order": 42}, tool_call_id=f"call_{len(messages)}")
    return ModelResponse(parts=[call])


shop = Agent(FunctionModel(model), instructions="Answer from the orders.")


@shop.tool_plain
def look_up(order: int) -> str:
    """Return the status of an order."""
    return f"order {order} was shipped"


async def main(url: str) -> None:
    async with HoldfastConversationStore(url) as store:
        conversation = await store.load("customer-42")
        conversation = conversation or Conversation(conversation_id="customer-42")
        result = await shop.run("Where is order 42?", conversation=conversation)
        await store.save(result)
        print(result.output)
        print(f"{len(await store.messages('customer-42'))} messages in the conversation")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:pydantic-ai.db"))

"""A process that is killed between two calls: `pydantic_ai_writer URL STOP`. It makes the calls of
`steps` one by one, until it has made `STOP` of them. With `STOP` `tool` it is killed in the middle
of a run of an agent, by its second tool."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from datetime import datetime

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_core import TzInfo

from holdfast.adapters.pydantic_ai import HoldfastConversationStore

AT = datetime(2026, 1, 2, tzinfo=TzInfo(0))
USER = ModelRequest(parts=[UserPromptPart("Hello.", timestamp=AT)])
CALL = ModelResponse(parts=[ToolCallPart("f", {}, tool_call_id="c")], timestamp=AT)
RESULT = ModelRequest(
    parts=[ToolReturnPart("f", "done", tool_call_id="c", timestamp=AT), *USER.parts]
)
ANSWER = ModelResponse(parts=[TextPart("Hi.")], timestamp=AT)

Messages = list[ModelMessage]
EXPECTED: list[tuple[Messages, Messages]] = [  # of the conversation, and of its fork
    ([USER, CALL], []),
    ([USER, CALL, RESULT, ANSWER], []),
    ([USER], []),
    ([USER], [USER]),
    ([USER, ANSWER], [USER]),
    ([USER, CALL, RESULT, ANSWER], [USER]),
    ([], [USER]),
]


async def steps(store: HoldfastConversationStore) -> AsyncGenerator[None, None]:
    """Make one call before each yield."""
    mine = Conversation(conversation_id="s", messages=[USER, CALL])
    await store.save(mine)
    yield
    mine.messages += [RESULT, ANSWER]
    last = (await store.save(mine))[-1]
    yield
    mine = await store.branch("s", at=1, expected_revision=mine.revision)
    yield
    await store.fork("s", new_conversation_id="f")
    yield
    mine.messages.append(ANSWER)
    await store.save(mine)
    yield
    await store.branch("s", from_entry=last.id, expected_revision=mine.revision)
    yield
    await store.delete("s")
    yield


def clerk() -> Agent[None, str]:
    """An agent that looks twice; the second time its process is killed."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("look", {"times": len(messages) // 2})])

    agent = Agent(FunctionModel(model))

    @agent.tool_plain
    def look(times: int) -> str:
        if times:
            os.kill(os.getpid(), signal.SIGKILL)
        return "nothing yet"

    return agent


async def main(url: str, stop: str) -> None:
    store = HoldfastConversationStore(url)
    if stop == "tool":
        loaded = await store.load("s")
        assert loaded is not None
        await store.save(await clerk().run("Look.", conversation=loaded))
    made = 0
    async for _ in steps(store):
        made += 1
        if made == int(stop):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

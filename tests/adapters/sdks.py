"""One turn of a real agent of each SDK, with a stand-in model, in session `s` of a store.

Each function of `SDKS` lets the model give its answers one after the other (a text, or the
arguments of a call of the tool `look`), and returns the prompt of its last call as `Part`s.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, TypeAlias

import agents
from agents.testing import ScriptedModel as OpenAIModel
from agents.testing import assistant_message, function_call
from google.adk.agents import Agent as AdkAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast import Agent, Harness, Store, key, tool
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.openai import HoldfastSession
from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from holdfast.models.port import FromTools, FromUser, ModelCall, Text
from holdfast.models.scripted import Say, ScriptedModel, Use

Answer: TypeAlias = str | dict[str, Any]
Part: TypeAlias = tuple[Any, ...]  # "user" or "model" and the text; "call" or "result" with an id
Turn: TypeAlias = Callable[..., Awaitable[list[Part]]]

ids = (f"call_{number}" for number in count())


def rain(city: str) -> str:
    return f"rain in {city}"


async def openai(store: Store, text: str, *answers: Answer) -> list[Part]:
    def look(city: str) -> str:
        return rain(city)

    steps = [
        assistant_message(answer)
        if isinstance(answer, str)
        else function_call("look", answer, call_id=next(ids))
        for answer in answers
    ]
    model = OpenAIModel([[step] for step in steps])
    agent = agents.Agent("weather", model=model, tools=[agents.function_tool(look)])
    quiet = agents.RunConfig(tracing_disabled=True)
    await agents.Runner.run(agent, text, session=HoldfastSession("s", store), run_config=quiet)
    assert model.last_call is not None
    return [_of_openai(item) for item in model.last_call.input]


def _of_openai(item: Any) -> Part:
    match item.get("type", "message"):
        case "function_call":
            return "call", item["call_id"], item["name"], json.loads(item["arguments"])
        case "function_call_output":
            return "result", item["call_id"], item["output"]
    content = item["content"]
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content)
    return ("user" if item["role"] == "user" else "model"), content


async def langgraph(store: Store, text: str, *answers: Answer) -> list[Part]:
    left, prompts = list(answers), list[Sequence[AnyMessage]]()

    def model(state: MessagesState) -> dict[str, Any]:
        prompts.append(state["messages"])
        answer = left.pop(0)
        if isinstance(answer, str):
            return {"messages": [AIMessage(answer)]}
        call = {"name": "look", "args": answer, "id": next(ids)}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def look(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        assert isinstance(last, AIMessage)
        return {
            "messages": [
                ToolMessage(rain(**call["args"]), tool_call_id=call["id"])
                for call in last.tool_calls
            ]
        }

    graph = StateGraph(MessagesState)
    graph.add_node(model)
    graph.add_node(look)
    graph.add_edge(START, "model")
    graph.add_edge("look", "model")
    graph.add_conditional_edges(
        "model", lambda state: "look" if state["messages"][-1].tool_calls else END
    )
    made: Any = graph.compile(checkpointer=HoldfastSaver(store))
    config: Any = {"configurable": {"thread_id": "s"}}
    await made.ainvoke({"messages": [("user", text)]}, config, durability="sync")
    return [part for message in prompts[-1] for part in _of_langchain(message)]


def _of_langchain(message: AnyMessage) -> list[Part]:
    if isinstance(message, ToolMessage):
        return [("result", message.tool_call_id, message.content)]
    if not isinstance(message, AIMessage):
        return [("user", message.content)]
    said: list[Part] = [("model", message.content)] if message.content else []
    return said + [("call", call["id"], call["name"], call["args"]) for call in message.tool_calls]


async def pydantic_ai(store: Store, text: str, *answers: Answer) -> list[Part]:
    left, prompts = list(answers), list[list[ModelMessage]]()

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(messages)
        answer = left.pop(0)
        if isinstance(answer, str):
            return ModelResponse(parts=[TextPart(answer)])
        return ModelResponse(parts=[ToolCallPart("look", answer, tool_call_id=next(ids))])

    agent = PydanticAgent(FunctionModel(model))

    @agent.tool_plain
    def look(city: str) -> str:
        return rain(city)

    conversations = HoldfastConversationStore(store)
    loaded = await conversations.load("s") or Conversation(conversation_id="s")
    await conversations.save(await agent.run(text, conversation=loaded))
    return [_of_pydantic_ai(part) for message in prompts[-1] for part in message.parts]


def _of_pydantic_ai(part: Any) -> Part:
    match part:
        case UserPromptPart():
            return "user", part.content
        case ToolReturnPart():
            return "result", part.tool_call_id, part.content
        case ToolCallPart():
            return "call", part.tool_call_id, part.tool_name, part.args_as_dict()
    assert isinstance(part, TextPart)
    return "model", part.content


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
        call = None if isinstance(answer, str) else types.FunctionCall(name="look", args=answer)
        part = types.Part(text=answer) if call is None else types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def adk(store: Store, text: str, *answers: Answer) -> list[Part]:
    def look(city: str) -> str:
        """Return the weather of a city."""
        return rain(city)

    service = import_module("holdfast.adapters.adk").HoldfastSessionService(store)
    model = StandIn(answers=[*answers], prompts=[])
    agent = AdkAgent(name="shop", model=model, tools=[look])
    runner = Runner(app_name="shop", agent=agent, session_service=service, auto_create_session=True)
    said = types.Content(role="user", parts=[types.Part(text=text)])
    turn = runner.run_async(user_id="u", session_id="s", new_message=said)
    _ = [event async for event in turn]
    contents = model.prompts[-1]
    return [_of_genai(content, part) for content in contents for part in content.parts or ()]


def _of_genai(content: types.Content, part: types.Part) -> Part:
    if part.function_call:
        return "call", part.function_call.id, part.function_call.name, part.function_call.args
    if part.function_response:
        response: Any = part.function_response.response
        return "result", part.function_response.id, response.get("result", response)
    return ("user" if content.role == "user" else "model"), part.text


async def harness(store: Store, text: str, *answers: Answer) -> list[Part]:
    @tool
    async def look(city: str) -> str:
        """Return the weather of a city."""
        return rain(city)

    steps = [
        each if isinstance(each, str) else Say(calls=[Use("look", **each)]) for each in answers
    ]
    model = ScriptedModel(steps, per_turn=True)
    agent = Agent("weather", instructions="Help.", tools=[look])
    async with Harness(agent, store=store, default_model=model) as weather:
        known = await store.row(key("s")) is not None
        session = await (weather.adopt("s") if known else weather.get_or_create("s"))
        done = await session.send(text)
        assert done.status == "done"
    return _of_harness(model.calls[-1])


def _of_harness(call: ModelCall) -> list[Part]:
    parts: list[Part] = []
    for message in call.messages:
        if isinstance(message, FromUser):
            texts = [part.text for part in message.content if isinstance(part, Text)]
            parts.append(("user", "".join(texts)))
        elif isinstance(message, FromTools):
            parts += [("result", each.id, each.content) for each in message.results]
        else:
            parts += [("model", message.text)] if message.text else []
            parts += [("call", each.id, each.name, each.arguments) for each in message.calls]
    return parts


SDKS: dict[str, Turn] = {
    "openai": openai,
    "langgraph": langgraph,
    "pydantic_ai": pydantic_ai,
    "harness": harness,
}
if getattr(find_spec("holdfast.adapters.adk"), "origin", None):
    SDKS["adk"] = adk

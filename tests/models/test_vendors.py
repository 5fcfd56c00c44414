"""Vendors' models over real HTTP: what is asked, and what the answer becomes."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from holdfast.errors import InvalidValue, ModelError
from holdfast.models import PydanticAIProvider
from holdfast.models.port import CallChunk, FromUser, Text, TextChunk, ToolSpec
from holdfast.values.media import Media

from .calls import (
    REFUND,
    again,
    bound,
    call,
    calls,
    end,
    listen,
    results,
    said,
    text,
    thought,
    user,
)
from .conftest import KEY
from .standin import Standin, chat, chat_call, claude, gemini, responses

HELLO = {"content": "Hello, you."}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(32))


def message(content: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": content, "annotations": []}]
    head = {"id": "m_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": parts}


# OpenAI, chat


async def test_text_comes_in_the_pieces_that_the_vendor_sends(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    vendor.stream(chat({"role": "assistant", "content": "Hel"}, {"content": "lo"}))
    heard = await listen(chatting.model("gpt-test"), call(user("hi"), system="Be kind."))
    assert heard[:-1] == [TextChunk("Hel"), TextChunk("lo")]
    assert end(heard).reason == "stop"
    asked = vendor.asked[0]
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body["model"] == "gpt-test"
    assert asked.body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
    ]


async def test_a_chunk_is_handed_on_before_the_answer_is_whole(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    vendor.stream(chat({"content": "Hel"}, finish=None), "stall")
    stream = chatting.model("gpt-test").stream(call())
    assert await anext(stream) == TextChunk("Hel")
    await stream.aclose()
    async with asyncio.timeout(30):
        await vendor.gone.wait()  # closing the stream ended the call


async def test_a_cancelled_call_hangs_up(vendor: Standin, chatting: PydanticAIProvider) -> None:
    vendor.stream(chat({"content": "Hel"}, finish=None), "stall")
    heard = asyncio.Event()

    async def listening() -> None:
        async for _ in chatting.model("gpt-test").stream(call()):
            heard.set()

    task = asyncio.create_task(listening())
    async with asyncio.timeout(30):
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await vendor.gone.wait()


async def test_parallel_calls_whose_arguments_come_interleaved(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    pieces = [
        chat_call(0, '{"ord', "a", "refund"),
        chat_call(1, '{"order"', "b", "refund"),
        chat_call(0, 'er": "1"}'),
        chat_call(1, ': "2"}'),
    ]
    vendor.stream(chat(*pieces, finish="tool_calls"))
    heard = await listen(chatting.model("gpt-test"), call(tools=(REFUND,)))
    assert calls(heard) == [
        CallChunk("refund", {"order": "1"}, "a"),
        CallChunk("refund", {"order": "2"}, "b"),
    ]
    assert end(heard).reason == "calls"
    tool = vendor.asked[0].body["tools"][0]["function"]
    assert (tool["name"], tool["description"]) == ("refund", "Give the money back.")
    assert tool["parameters"]["properties"] == {"order": {"type": "string"}}


async def test_arguments_that_are_not_json_come_as_they_are(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    broken = chat_call(0, '{"order": ', "a", "refund")
    nothing = chat_call(1, "", "b", "refund")
    vendor.stream(chat(broken, nothing, finish="tool_calls"))
    heard = await listen(chatting.model("gpt-test"), call(tools=(REFUND,)))
    assert [c.arguments for c in calls(heard)] == ['{"order": ', {}]


async def test_calls_and_their_results_go_back(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    vendor.stream(chat(HELLO))
    prompt = call(
        user("refund 1 and 2"),
        said("On it.", ("a", "refund", {"order": "1"}), ("b", "refund", {"order": "2"})),
        results(("a", "refund", "done"), ("b", "refund", "too late")),
        user("thanks"),
    )
    await listen(chatting.model("gpt-test"), prompt)
    sent = vendor.asked[0].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[1]["content"] == "On it."
    made = [(c["id"], json.loads(c["function"]["arguments"])) for c in sent[1]["tool_calls"]]
    assert made == [("a", {"order": "1"}), ("b", {"order": "2"})]
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:4]] == [
        ("a", "done"),
        ("b", "too late"),
    ]


async def test_the_same_call_is_the_same_bytes(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    prompt = call(
        user("refund"), said("", ("a", "refund", {"order": "1"})), results(("a", "refund", "ok"))
    )
    for _ in range(2):
        vendor.stream(chat(HELLO))
        await listen(chatting.model("gpt-test"), prompt)
    first, second = vendor.asked
    assert first.body == second.body
    assert first.headers["content-length"] == second.headers["content-length"]


async def test_usage_is_counted(vendor: Standin, chatting: PydanticAIProvider) -> None:
    vendor.stream(chat(HELLO))
    usage = end(await listen(chatting.model("gpt-test"), call())).usage
    assert (usage["input_tokens"], usage["output_tokens"]) == (20, 5)
    assert usage["cache_read_tokens"] == 8
    assert usage["reasoning_tokens"] == 3


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "filtered"), ("odd", "other")],
)
async def test_why_the_model_stopped(
    vendor: Standin, chatting: PydanticAIProvider, finish: str, reason: str
) -> None:
    vendor.stream(chat(HELLO, finish=finish))
    assert end(await listen(chatting.model("gpt-test"), call())).reason == reason


async def test_an_image_goes_in(vendor: Standin, chatting: PydanticAIProvider) -> None:
    vendor.stream(chat(HELLO))
    seen = FromUser((Text("What is this?"), Media(PNG, "image/png")))
    await listen(chatting.model("gpt-test"), call(seen))
    first, second = vendor.asked[0].body["messages"][0]["content"]
    assert first == {"type": "text", "text": "What is this?"}
    assert second["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()


@pytest.mark.parametrize("tools", [(), (REFUND,)])
async def test_structured_output_is_a_call_of_the_one_tool(
    vendor: Standin, chatting: PydanticAIProvider, tools: tuple[ToolSpec, ...]
) -> None:
    output = ToolSpec(
        "answer", "The answer.", {"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    vendor.stream(chat(chat_call(0, '{"n": 7}', "a", "answer"), finish="tool_calls"))
    heard = await listen(chatting.model("gpt-test"), call(tools=tools, output=output))
    assert calls(heard) == [CallChunk("answer", {"n": 7}, "a")]
    body = vendor.asked[0].body
    choice = body["tool_choice"]
    forced = choice == "required" and len(body["tools"]) == 1
    assert forced or choice["function"]["name"] == "answer"


async def test_settings_of_the_call_win_over_the_providers(vendor: Standin) -> None:
    url = f"{vendor.url}/v1"
    provider = PydanticAIProvider(
        "lab",
        kind="openai-chat",
        api_key=KEY,
        base_url=url,
        settings={"temperature": 0.5, "seed": 1},
    )
    vendor.stream(chat(HELLO))
    await listen(provider.model("gpt-test"), call(settings={"temperature": 0.0}))
    await provider.aclose()
    assert (vendor.asked[0].body["temperature"], vendor.asked[0].body["seed"]) == (0.0, 1)


async def test_reasoning_that_a_chat_server_shows_is_thought(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    vendor.stream(chat({"reasoning_content": "Let me "}, {"reasoning_content": "see."}, HELLO))
    heard = await listen(chatting.model("gpt-test"), call())
    assert (thought(heard), text(heard)) == ("Let me see.", "Hello, you.")


# OpenAI, responses


async def test_encrypted_reasoning_goes_back_in_its_place(
    vendor: Standin, responding: PydanticAIProvider
) -> None:
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA+/=="}
    function = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "a",
        "name": "refund",
        "arguments": '{"order":"1"}',
        "status": "completed",
    }
    vendor.stream(responses(reasoning, message("On it."), function))
    heard = await listen(responding.model("gpt-5"), call(tools=(REFUND,)))
    assert (text(heard), calls(heard)) == ("On it.", [CallChunk("refund", {"order": "1"}, "a")])
    assert end(heard).reason == "calls"
    assert end(heard).usage["cache_read_tokens"] == 8

    vendor.stream(responses(message("Done.")))
    kept = msgspec.json.decode(msgspec.json.encode(bound(heard)))
    back = msgspec.structs.replace(again(heard), bound=tuple(kept))
    prompt = call(user("hi"), back, results(("a", "refund", "ok")), tools=(REFUND,))
    assert text(await listen(responding.model("gpt-5"), prompt)) == "Done."
    sent = vendor.asked[1].body["input"]
    assert [item.get("type", "message") for item in sent] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert (sent[1]["id"], sent[1]["encrypted_content"]) == ("rs_1", "gAAA+/==")
    assert (sent[3]["call_id"], sent[4]["call_id"]) == ("a", "a")


# Anthropic

THINKING = {"type": "thinking", "thinking": "Hm. “Well”\n\n", "signature": "Eq/+AB=="}
HIDDEN = {"type": "redacted_thinking", "data": "EmwKAhgB/+=="}
USE = {"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {"order": "1"}}


async def test_thinking_and_its_signature_go_back_exactly_and_in_order(
    vendor: Standin, claude_provider: PydanticAIProvider
) -> None:
    first, second = {"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}
    vendor.stream(claude(THINKING, first, HIDDEN, second, USE, stop="tool_use"))
    model = claude_provider.model("claude-test")
    heard = await listen(model, call(tools=(REFUND,), system="Be kind."))
    assert thought(heard) == THINKING["thinking"]
    assert text(heard) == "One. Two."
    assert calls(heard) == [CallChunk("refund", {"order": "1"}, "toolu_1")]
    assert end(heard).reason == "calls"

    vendor.stream(claude({"type": "text", "text": "Done."}))
    kept = msgspec.json.decode(msgspec.json.encode(bound(heard)))
    back = msgspec.structs.replace(again(heard), bound=tuple(kept))
    failed = results(("toolu_1", "refund", "too late"), failed=True)
    await listen(model, call(user("hi"), back, failed, tools=(REFUND,)))
    asked = vendor.asked[1].body["messages"]
    assert asked[1]["content"] == [THINKING, first, HIDDEN, second, USE]
    result = asked[2]["content"][0]
    assert (result["tool_use_id"], result["is_error"]) == ("toolu_1", True)
    assert "too late" in json.dumps(result["content"])


async def test_a_message_that_was_changed_goes_back_without_what_was_bound(
    vendor: Standin, claude_provider: PydanticAIProvider
) -> None:
    vendor.stream(claude(THINKING, {"type": "text", "text": "One."}))
    model = claude_provider.model("claude-test")
    heard = await listen(model, call())
    changed = [
        msgspec.structs.replace(again(heard), text="Another text."),
        msgspec.structs.replace(again(heard), bound=({"form": "pydantic-ai/1"}, "odd", None)),
    ]
    for before in changed:
        vendor.stream(claude({"type": "text", "text": "Done."}))
        await listen(model, call(user("hi"), before, user("go on")))
        sent = vendor.asked[-1].body["messages"][1]["content"]
        assert sent == [{"type": "text", "text": before.text}]


async def test_what_is_bound_holds_no_text_and_no_arguments(
    vendor: Standin, claude_provider: PydanticAIProvider
) -> None:
    use = {**USE, "input": {"order": "a private matter"}}
    vendor.stream(claude(THINKING, {"type": "text", "text": "Hello, you."}, use, stop="tool_use"))
    heard = await listen(claude_provider.model("claude-test"), call(tools=(REFUND,)))
    kept = json.dumps(bound(heard))
    assert "Hello" not in kept
    assert "private" not in kept
    assert KEY not in kept


async def test_usage_of_the_cache_is_counted(
    vendor: Standin, claude_provider: PydanticAIProvider
) -> None:
    vendor.stream(claude({"type": "text", "text": "Hello, you."}))
    usage = end(await listen(claude_provider.model("claude-test"), call())).usage
    assert (usage["cache_read_tokens"], usage["cache_write_tokens"]) == (8, 4)
    assert (usage["input_tokens"], usage["output_tokens"]) == (24, 5)


async def test_an_image_goes_to_anthropic(
    vendor: Standin, claude_provider: PydanticAIProvider
) -> None:
    vendor.stream(claude({"type": "text", "text": "A cat."}))
    await listen(claude_provider.model("claude-test"), call(FromUser((Media(PNG, "image/png"),))))
    [image] = vendor.asked[0].body["messages"][0]["content"]
    assert image["source"]["media_type"] == "image/png"
    assert base64.b64decode(image["source"]["data"]) == PNG


async def test_structured_output_at_anthropic(
    vendor: Standin, claude_provider: PydanticAIProvider
) -> None:
    use = {**USE, "name": "answer", "input": {"n": 7}}
    vendor.stream(claude(use, stop="tool_use"))
    output = ToolSpec("answer", "", {"type": "object", "properties": {"n": {"type": "integer"}}})
    heard = await listen(claude_provider.model("claude-test"), call(tools=(REFUND,), output=output))
    assert calls(heard) == [CallChunk("answer", {"n": 7}, "toolu_1")]
    assert vendor.asked[0].body["tool_choice"]["type"] in ("any", "tool")
    assert "answer" in [tool["name"] for tool in vendor.asked[0].body["tools"]]


# Google


async def test_thought_signatures_of_google_go_back(
    vendor: Standin, gemini_provider: PydanticAIProvider
) -> None:
    signature = base64.b64encode(b"\x00\xff signed").decode()
    use = {
        "functionCall": {"name": "refund", "args": {"order": "1"}},
        "thoughtSignature": signature,
    }
    vendor.stream(gemini({"text": "Hm.", "thought": True}, {"text": "On it."}, use))
    model = gemini_provider.model("gemini-2.5-flash")
    heard = await listen(model, call(tools=(REFUND,)))
    assert (thought(heard), text(heard)) == ("Hm.", "On it.")
    assert calls(heard) == [CallChunk("refund", {"order": "1"}, None)]  # it gives no id
    assert end(heard).reason == "calls"

    vendor.stream(gemini({"text": "Done."}))
    kept = msgspec.json.decode(msgspec.json.encode(bound(heard)))
    back = msgspec.structs.replace(again(heard), bound=tuple(kept))
    prompt = call(user("hi"), back, results(("own-0", "refund", "ok")), tools=(REFUND,))
    assert text(await listen(model, prompt)) == "Done."
    sent = vendor.asked[1].body["contents"]
    made = [part for part in sent[1]["parts"] if "functionCall" in part]
    assert base64.urlsafe_b64decode(made[0]["thoughtSignature"]) == b"\x00\xff signed"
    assert sent[2]["parts"][0]["functionResponse"]["name"] == "refund"


# The provider itself


async def test_a_closed_provider_opens_again(vendor: Standin, chatting: PydanticAIProvider) -> None:
    model = chatting.model("gpt-test")
    for _ in range(2):
        vendor.stream(chat(HELLO))
        assert text(await listen(model, call())) == "Hello, you."
        await chatting.aclose()
        await chatting.aclose()


async def test_calls_at_once_share_one_client(
    vendor: Standin, chatting: PydanticAIProvider
) -> None:
    for _ in range(8):
        vendor.stream(chat(HELLO))
    models = [chatting.model(f"gpt-{n % 2}") for n in range(8)]
    answers = await asyncio.gather(*(listen(model, call()) for model in models))
    assert [text(answer) for answer in answers] == ["Hello, you."] * 8


def test_a_provider_serves_one_event_loop_after_another() -> None:
    async def once(provider: PydanticAIProvider | None, port: int) -> tuple[Any, int]:
        async with Standin(port) as vendor:
            url = f"{vendor.url}/v1"
            if provider is None:
                provider = PydanticAIProvider("lab", kind="openai-chat", api_key=KEY, base_url=url)
            vendor.stream(chat(HELLO))
            assert text(await listen(provider.model("gpt-test"), call())) == "Hello, you."
            await provider.aclose()
            return provider, vendor.port

    asyncio.run(once(*asyncio.run(once(None, 0))))


async def test_a_provider_that_nobody_knows() -> None:
    with pytest.raises(ModelError, match="has no provider 'opnai'") as caught:
        await listen(PydanticAIProvider("opnai").model("gpt"), call())
    assert not caught.value.retryable


async def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY"):
        await listen(PydanticAIProvider("anthropic").model("claude-test"), call())


async def test_an_option_that_the_vendor_does_not_take() -> None:
    provider = PydanticAIProvider("openai", api_key=KEY, http_client="a telephone")
    with pytest.raises(
        ModelError, match="cannot be created with api_key and http_client"
    ) as caught:
        await listen(provider.model("gpt"), call())
    assert KEY not in str(caught.value)


async def test_the_callers_http_client_is_used_and_left_open(vendor: Standin) -> None:
    import httpx2

    async with httpx2.AsyncClient(headers={"x-of": "the caller"}) as client:
        url = f"{vendor.url}/v1"
        provider = PydanticAIProvider(
            "lab", kind="openai-chat", api_key=KEY, base_url=url, http_client=client
        )
        vendor.stream(chat(HELLO))
        await listen(provider.model("gpt-test"), call())
        await provider.aclose()
        assert vendor.asked[0].headers["x-of"] == "the caller"
        assert not client.is_closed


def test_a_timeout_is_a_time() -> None:
    with pytest.raises(InvalidValue, match="timeout"):
        PydanticAIProvider("openai", timeout=0)


def test_no_vendor_is_imported_before_it_is_called() -> None:
    code = (
        "import sys, holdfast, holdfast.models as m\n"
        "m.Models().resolve('openai/gpt-5')\n"
        "print([name for name in ('pydantic', 'pydantic_ai', 'openai') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_without_pydantic_ai_the_extra_is_named() -> None:
    code = (
        "import sys, holdfast.models as m\n"
        "sys.modules['pydantic_ai'] = None\n"
        "try:\n"
        "    m.Models().resolve('openai/gpt-5')\n"
        "except m.pydantic_ai.MissingExtra as error:\n"
        "    print(error.extra, error.needed_for)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "models openai/gpt-5\n"

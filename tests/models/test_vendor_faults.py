"""How vendors fail, over real HTTP, and what each failure is called here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, NamedTuple

import pytest

from holdfast.errors import ModelError, ModelRateLimited, ModelTimeout, ModelUnavailable
from holdfast.models import ModelCall, PydanticAIProvider
from holdfast.models.port import CallChunk, Chunk, EndChunk, FromUser, TextChunk
from holdfast.values.media import Media

from .calls import call, listen, text
from .conftest import KEY
from .standin import Standin, chat, chat_call, claude, gemini, responses, sse

ITEM = {
    "id": "m_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
}


class Protocol(NamedTuple):
    """A protocol: which provider speaks it, at which path, and how an answer begins and ends."""

    kind: str
    path: str
    model: str
    begun: Callable[[], Sequence[bytes]]
    whole: Callable[[], Sequence[bytes]]


PROTOCOLS = {
    "chat": Protocol(
        "openai-chat",
        "/v1",
        "gpt-test",
        lambda: chat({"content": "Hello"}, finish=None),
        lambda: chat({"content": "Hello"}),
    ),
    "responses": Protocol(
        "openai", "/v1", "gpt-5", lambda: responses(ITEM, status=None), lambda: responses(ITEM)
    ),
    "messages": Protocol(
        "anthropic",
        "",
        "claude-test",
        lambda: claude({"type": "text", "text": "Hello"}, stop=None),
        lambda: claude({"type": "text", "text": "Hello"}),
    ),
    "gemini": Protocol(
        "google",
        "",
        "gemini-2.5-flash",
        lambda: gemini({"text": "Hello"}, finish=None),
        lambda: gemini({"text": "Hello"}),
    ),
}


class Caller:
    """One provider, and what it has heard."""

    def __init__(self, protocol: Protocol, vendor: Standin, timeout: float = 60.0) -> None:
        self.protocol = protocol
        url = vendor.url + protocol.path
        self.provider = PydanticAIProvider(
            "lab", kind=protocol.kind, api_key=KEY, base_url=url, timeout=timeout
        )
        self.heard: list[Chunk] = []

    async def _listen(self, asked: ModelCall) -> None:
        async for chunk in self.provider.model(self.protocol.model).stream(asked):
            self.heard.append(chunk)

    async def fails(self, **rest: Any) -> ModelError:
        """The failure of a call, which must show no secret and end in no `EndChunk`."""
        self.heard = []
        with pytest.raises(ModelError) as caught:
            await self._listen(call(**rest))
        assert not any(isinstance(chunk, EndChunk) for chunk in self.heard)
        assert KEY not in f"{caught.value} {caught.value.fields}"
        assert "private" not in f"{caught.value} {caught.value.fields}"
        assert caught.value.model == f"lab/{self.protocol.model}"
        return caught.value


@pytest.fixture(params=list(PROTOCOLS))
async def caller(request: pytest.FixtureRequest, vendor: Standin) -> AsyncIterator[Caller]:
    made = Caller(PROTOCOLS[request.param], vendor)
    yield made
    await made.provider.aclose()


def body(kind: str = "some_error") -> dict[str, Any]:
    told = f"Incorrect key: {KEY}, said a private person"
    return {"type": "error", "error": {"type": kind, "message": told}}


@pytest.mark.parity("user-demand", 57)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelError),
        (401, ModelError),
        (403, ModelError),
        (404, ModelError),
        (408, ModelTimeout),
        (409, ModelUnavailable),
        (413, ModelError),
        (422, ModelError),
        (429, ModelRateLimited),
        (500, ModelUnavailable),
        (502, ModelUnavailable),
        (503, ModelUnavailable),
        (529, ModelUnavailable),
    ],
)
async def test_a_refusal_says_by_its_class_whether_to_try_again(
    caller: Caller, vendor: Standin, status: int, kind: type[ModelError]
) -> None:
    vendor.refuse(status, body())
    error = await caller.fails()
    assert (type(error), error.status) == (kind, status)
    assert error.__cause__ is not None
    assert len(vendor.asked) == 1  # the vendor's own client has not tried again


async def test_a_refused_key_is_said_plainly(caller: Caller, vendor: Standin) -> None:
    vendor.refuse(401, body("authentication_error"))
    error = await caller.fails()
    assert "key" in error.problem
    assert error.remedy == "check the API key for 'lab' and its permissions"


async def test_an_unknown_model_is_named_in_the_remedy(caller: Caller, vendor: Standin) -> None:
    vendor.refuse(404, body("not_found_error"))
    error = await caller.fails()
    name = caller.protocol.model
    assert error.remedy == f"check the model name {name!r}, and the base URL of 'lab'"


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7.0, 7.0),
        ({"retry-after-ms": "1500"}, 1.5, 1.5),
        ({}, None, None),
        ({"Retry-After": "soon"}, None, None),
    ],
)
async def test_how_long_the_vendor_wants_us_to_wait(
    caller: Caller, vendor: Standin, headers: dict[str, str], least: float | None, most: float
) -> None:
    vendor.refuse(429, body("rate_limit_error"), headers)
    error = await caller.fails()
    assert isinstance(error, ModelRateLimited)
    if least is None:
        assert error.retry_after is None
    else:
        assert error.retry_after is not None
        assert least <= error.retry_after <= most


async def test_a_date_to_wait_for(caller: Caller, vendor: Standin) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    vendor.refuse(429, body(), {"Retry-After": date})
    error = await caller.fails()
    assert isinstance(error, ModelRateLimited)
    assert error.retry_after is not None
    assert 3000 < error.retry_after <= 3600


async def test_an_account_that_is_used_up_is_not_asked_again(vendor: Standin) -> None:
    caller = Caller(PROTOCOLS["chat"], vendor)
    told = {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "no"}}
    vendor.refuse(429, told)
    error = await caller.fails()
    assert (type(error), error.status) == (ModelError, 429)
    await caller.provider.aclose()


async def test_a_stream_cut_within_a_chunk(caller: Caller, vendor: Standin) -> None:
    vendor.stream(caller.protocol.begun(), "cut")
    error = await caller.fails()
    assert type(error) is ModelUnavailable
    assert text(caller.heard) == "Hello"  # what came is seen, and known to be a part


async def test_a_stream_that_just_ends_too_early(caller: Caller, vendor: Standin) -> None:
    vendor.stream(caller.protocol.begun())
    error = await caller.fails()
    assert (type(error), error.problem) == (ModelUnavailable, "the answer was truncated")
    assert text(caller.heard) == "Hello"


async def test_a_stream_without_anything(caller: Caller, vendor: Standin) -> None:
    vendor.stream([])
    assert isinstance(await caller.fails(), ModelUnavailable)
    assert caller.heard == []


async def test_a_chunk_that_is_not_json(caller: Caller, vendor: Standin) -> None:
    event = "content_block_delta" if caller.protocol.kind == "anthropic" else None
    vendor.stream([*caller.protocol.begun(), sse('{"choices": [{"del', event)])
    assert type(await caller.fails()) is ModelUnavailable
    assert text(caller.heard) == "Hello"


async def test_a_chunk_of_another_shape(caller: Caller, vendor: Standin) -> None:
    odd = {"type": "content_block_delta", "index": "x", "choices": 3, "candidates": 3}
    vendor.stream([*caller.protocol.begun(), sse(odd, "content_block_delta")])
    assert type(await caller.fails()) is ModelUnavailable


async def test_an_error_within_the_stream(vendor: Standin) -> None:
    caller = Caller(PROTOCOLS["messages"], vendor)
    vendor.stream([*caller.protocol.begun(), sse(body("overloaded_error"), "error")])
    assert type(await caller.fails()) is ModelUnavailable
    await caller.provider.aclose()


async def test_a_refusal_that_is_cut_is_no_answer(vendor: Standin) -> None:
    caller = Caller(PROTOCOLS["responses"], vendor)
    place = {"item_id": "m_1", "output_index": 0, "content_index": 0, "sequence_number": 9}
    piece = {"type": "response.refusal.delta", "delta": "I ca", **place}
    vendor.stream([*responses(status=None), sse(piece, "response.refusal.delta")])
    assert type(await caller.fails()) is ModelUnavailable
    await caller.provider.aclose()


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
@pytest.mark.parametrize("begun", [False, True])
async def test_a_vendor_that_falls_silent(vendor: Standin, protocol: str, begun: bool) -> None:
    caller = Caller(PROTOCOLS[protocol], vendor, timeout=2.0 if begun else 0.3)
    vendor.stream(caller.protocol.begun() if begun else [], "stall")
    assert type(await caller.fails()) is ModelTimeout
    assert text(caller.heard) == ("Hello" if begun else "")
    await caller.provider.aclose()


async def test_a_vendor_that_is_not_there(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    provider = PydanticAIProvider("lab", kind="openai-chat", api_key=KEY, base_url=url)
    with pytest.raises(ModelUnavailable) as caught:
        await listen(provider.model("gpt-test"), call())
    assert type(caught.value) is ModelUnavailable
    await provider.aclose()


async def test_no_call_of_a_cut_stream_is_ever_seen(vendor: Standin) -> None:
    caller = Caller(PROTOCOLS["chat"], vendor)
    whole = chat_call(0, '{"order": "1"}', "a", "refund")
    vendor.stream(chat({"content": "On it."}, whole, {"content": ""}, finish=None))
    await caller.fails()
    assert text(caller.heard) == "On it."
    assert not any(isinstance(chunk, CallChunk) for chunk in caller.heard)
    await caller.provider.aclose()


async def test_after_a_failure_the_next_call_is_well(caller: Caller, vendor: Standin) -> None:
    vendor.stream(caller.protocol.begun(), "cut")
    await caller.fails()
    vendor.refuse(500, body())
    await caller.fails()
    vendor.stream(caller.protocol.whole())
    model = caller.provider.model(caller.protocol.model)
    assert text(await listen(model, call())) == "Hello"


async def test_what_the_model_cannot_read_is_not_asked_again(vendor: Standin) -> None:
    caller = Caller(PROTOCOLS["chat"], vendor)
    odd = FromUser((Media(b"\x00", "application/x-odd"),))
    with pytest.raises(ModelError) as caught:
        await listen(caller.provider.model("gpt-test"), call(odd))
    assert type(caught.value) is ModelError
    assert vendor.asked == []
    await caller.provider.aclose()


async def test_a_listener_that_fails_is_not_the_vendors_failure(
    caller: Caller, vendor: Standin
) -> None:
    vendor.stream(caller.protocol.begun(), "stall")
    stream = caller.provider.model(caller.protocol.model).stream(call())
    assert isinstance(await anext(stream), TextChunk)
    with pytest.raises(KeyError):
        await stream.athrow(KeyError("the listener's own"))
    async with asyncio.timeout(30):
        await vendor.gone.wait()

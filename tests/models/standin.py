"""A vendor on this machine: real HTTP that speaks the streaming protocols of OpenAI (chat and
responses), Anthropic and Google, and fails as vendors do. What it answers is set by the test;
what it was asked is kept."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias

End: TypeAlias = Literal["whole", "cut", "stall"]


class Asked(NamedTuple):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: Any


class Reply(NamedTuple):
    """An answer. `cut` closes the connection within a chunk, `stall` says no more."""

    pieces: Sequence[bytes] = ()
    end: End = "whole"
    status: int = 200
    headers: Mapping[str, str] = {}


class Standin:
    """The server. Each request takes the next of `replies`."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.asked: list[Asked] = []
        self.replies: deque[Reply] = deque()
        self._handlers: set[asyncio.Task[None]] = set()
        self.gone = asyncio.Event()  # a client has hung up

    async def __aenter__(self) -> Standin:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        host, self.port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{self.port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    def stream(self, pieces: Sequence[bytes], end: End = "whole") -> None:
        self.replies.append(Reply(pieces, end))

    def refuse(
        self, status: int, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> None:
        text = json.dumps({} if body is None else body).encode()
        self.replies.append(Reply([text], status=status, headers=headers or {}))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._handlers.discard(task)
            self.gone.set()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append(Asked(head[0].split()[1], headers, json.loads(body or b"null")))
        reply = self.replies.popleft()
        kind = "text/event-stream" if reply.status == 200 else "application/json"
        lines = [f"HTTP/1.1 {reply.status} Said", f"content-type: {kind}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        lines += ["transfer-encoding: chunked", "", ""]
        writer.write("\r\n".join(lines).encode())
        for piece in reply.pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if reply.end == "cut":
            writer.write(b"400\r\ndata: {")
            await writer.drain()
            return False
        if reply.end == "stall":
            await reader.read(1)  # until the client hangs up
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def sse(data: Any, event: str | None = None) -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


# OpenAI, chat completions


def chat(*deltas: Mapping[str, Any], finish: str | None = "stop") -> list[bytes]:
    """The chunks of an answer; without `finish` they stop too early."""
    pieces = [_chat_chunk([{"index": 0, "delta": delta}]) for delta in deltas]
    if finish is None:
        return pieces
    ending = _chat_chunk([{"index": 0, "delta": {}, "finish_reason": finish}])
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 5,
        "total_tokens": 25,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    return [*pieces, ending, _chat_chunk([], usage=usage), sse("[DONE]")]


def _chat_chunk(choices: list[Any], **more: Any) -> bytes:
    envelope = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test"}
    return sse({**envelope, "choices": choices, **more})


def chat_call(index: int, arguments: str, id: str | None = None, name: str | None = None) -> Any:
    """A delta that is a piece of a tool call."""
    call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if id is not None:
        call |= {"id": id, "type": "function"}
        call["function"]["name"] = name
    return {"tool_calls": [call]}


# OpenAI, responses


def responses(*items: Mapping[str, Any], status: str | None = "completed") -> list[bytes]:
    """The events of an answer made of `items`; without `status` they stop too early."""
    base: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-test",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    started = {**base, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(items):
        events += _item_events(index, dict(item))
    if status is not None:
        usage = {
            "input_tokens": 20,
            "output_tokens": 5,
            "total_tokens": 25,
            "input_tokens_details": {"cached_tokens": 8},
            "output_tokens_details": {"reasoning_tokens": 3},
        }
        ended = {**base, "status": status, "output": list(items), "usage": usage}
        events.append({"type": f"response.{status}", "response": ended})
    return [sse({**e, "sequence_number": n}, e["type"]) for n, e in enumerate(events)]


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    place = {"output_index": index, "item_id": item["id"]}
    added = dict(item)
    middle: list[dict[str, Any]] = []
    if item["type"] == "message":
        text = item["content"][0]["text"]
        added["content"] = []
        middle = [
            {"type": "response.output_text.delta", "content_index": 0, "delta": d, "logprobs": []}
            for d in (text[:3], text[3:])
        ]
    elif item["type"] == "function_call":
        added["arguments"] = ""
        middle = [{"type": "response.function_call_arguments.delta", "delta": item["arguments"]}]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": added},
        *({**event, **place} for event in middle),
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


# Anthropic, messages


def claude(*blocks: Mapping[str, Any], stop: str | None = "end_turn") -> list[bytes]:
    """The events of an answer made of `blocks`; without `stop` they stop too early."""
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 12,
            "cache_read_input_tokens": 8,
            "cache_creation_input_tokens": 4,
            "output_tokens": 1,
        },
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        events += _block_events(index, dict(block))
    if stop is not None:
        ending = {"stop_reason": stop, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 5}})
        events.append({"type": "message_stop"})
    return [sse(event, event["type"]) for event in events]


def _block_events(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    begun = dict(block)
    deltas: list[dict[str, Any]] = []
    if block["type"] == "text":
        begun["text"] = ""
        halves = (block["text"][:4], block["text"][4:])
        deltas = [{"type": "text_delta", "text": half} for half in halves if half]
    elif block["type"] == "thinking":
        begun |= {"thinking": "", "signature": ""}
        halves = (block["thinking"][:4], block["thinking"][4:])
        deltas = [{"type": "thinking_delta", "thinking": half} for half in halves if half]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "tool_use":
        begun["input"] = {}
        text = json.dumps(block["input"])
        halves = (text[:5], text[5:])
        deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


# Google


def gemini(*parts: Mapping[str, Any], finish: str | None = "STOP") -> list[bytes]:
    """The pieces of an answer, one per part; without `finish` they stop too early."""
    pieces: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}
        for part in parts
    ]
    if finish is not None:
        pieces[-1]["candidates"][0]["finishReason"] = finish
        counts = {"promptTokenCount": 20, "candidatesTokenCount": 5, "totalTokenCount": 25}
        pieces[-1]["usageMetadata"] = counts
    return [sse({**piece, "modelVersion": "gemini-test", "responseId": "r1"}) for piece in pieces]

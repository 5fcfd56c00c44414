"""A stand-in for the Messages API on this machine: answers every request, and keeps it.

The answer names how many messages the request had, so that a test sees what the model was told.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"input_tokens": 1, "output_tokens": 1}


class Api(ThreadingHTTPServer):
    """`requests` holds the bodies of all messages that were to be answered, in order, `keys` the
    keys that came with them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.more = ""  # what else is answered

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def texts(self) -> list[list[str]]:
        """What each request told, as texts of its messages."""
        return [[_text(message) for message in body["messages"]] for body in self.requests]


class _Answers(BaseHTTPRequestHandler):
    server: Api

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        path = self.path.partition("?")[0]
        if path != "/v1/messages":
            self._send("application/json", json.dumps({"input_tokens": 1}).encode())
            return
        self.server.requests.append(body)
        self.server.keys.append(self.headers.get("x-api-key"))
        answer = f"Answer {len(self.server.requests)}.{self.server.more}"
        if body.get("stream"):
            events = "".join(
                f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                for event in _stream(answer, body["model"])
            )
            self._send("text/event-stream", events.encode())
        else:
            message = _message(body["model"]) | {
                "content": [{"type": "text", "text": answer}],
                "stop_reason": "end_turn",
            }
            self._send("application/json", json.dumps(message).encode())

    def do_GET(self) -> None:
        self._send("application/json", b"{}")

    def do_HEAD(self) -> None:
        self._send("application/json", b"")

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _message(model: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }


def _stream(text: str, model: str) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _message(model)}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in (text[:20], text[20:]):
        delta = {"type": "text_delta", "text": piece}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": USAGE}
    yield {"type": "message_stop"}


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


@contextmanager
def standing_in() -> Iterator[Api]:
    """The API, up while the block runs."""
    with Api() as api:
        thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join()

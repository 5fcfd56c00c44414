"""Lines as Claude Code writes them."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

SESSION = "78b5e434-5a8e-4bfc-857b-914ef99a8705"
PNG = b"\x89PNG\r\n\x1a\n and so on"
IMAGE = {
    "type": "image",
    "source": {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(PNG).decode(),
    },
}


class Lines:
    """Lines of one transcript, each linked to the one before unless said otherwise."""

    def __init__(self, agent: str | None = None) -> None:
        self.entries: list[dict[str, Any]] = []
        self._agent = agent
        self._last: str | None = None

    def text(self) -> bytes:
        return b"".join(json.dumps(entry).encode() + b"\n" for entry in self.entries)

    def add(self, type: str, *, parent: Any = ..., **more: Any) -> str:
        number = len(self.entries) + 1
        id = str(uuid.UUID(int=number + (1000 if self._agent else 0)))
        common: dict[str, Any] = {
            "parentUuid": self._last if parent is ... else parent,
            "isSidechain": self._agent is not None,
            "userType": "external",
            "cwd": "/srv/shop",
            "sessionId": SESSION,
            "version": "2.1.0",
            "gitBranch": "main",
            "type": type,
            "uuid": id,
            "timestamp": f"2026-03-01T10:00:{number:02d}.500Z",
        }
        if self._agent:
            common["agentId"] = self._agent
        self.entries.append({**common, **more})
        self._last = id
        return id

    def user(self, content: Any, **more: Any) -> str:
        return self.add("user", message={"role": "user", "content": content}, **more)

    def answer(self, id: str, block: dict[str, Any], **more: Any) -> str:
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        message = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": "claude-x-4",
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5, "service_tier": "standard"},
        }
        return self.add("assistant", message=message, requestId="req_1", **more)

    def said(self, id: str, text: str, **more: Any) -> str:
        return self.answer(id, {"type": "text", "text": text}, **more)

    def use(self, id: str, call: str, name: str, **input: Any) -> str:
        return self.answer(id, {"type": "tool_use", "id": call, "name": name, "input": input})

    def result(self, call: str, content: Any, *, error: bool = False, **more: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        return self.user([{**block, "is_error": True} if error else block], **more)


def session() -> Lines:
    """A session with thoughts, parallel calls, an image, a sub-agent and lines of other types."""
    lines = Lines()
    lines.entries.append({"type": "summary", "summary": "A refund", "leafUuid": "x"})
    lines.add("file-history-snapshot", snapshot={"files": {}})
    lines.user([{"type": "text", "text": "What is this?"}, IMAGE], parent=None)
    lines.answer("msg_1", {"type": "thinking", "thinking": "A receipt.", "signature": "c2ln"})
    lines.said("msg_1", "I look.")
    first = lines.use("msg_1", "toolu_1", "Read", path="a")
    second = lines.use("msg_1", "toolu_2", "Bash", command="ls")
    lines.result("toolu_1", "text of a", parent=first, toolUseResult={"file": {"path": "a"}})
    lines.result("toolu_2", "no such command", error=True, parent=second, toolUseResult="Error: no")
    lines.said("msg_2", "It is a receipt.")
    lines.user("Ask a clerk.")
    lines.use("msg_3", "toolu_3", "Task", description="look", prompt="look it up")
    told = [{"type": "text", "text": "found"}, IMAGE]
    lines.result("toolu_3", told, toolUseResult={"agentId": "a1", "status": "completed"})
    lines.said("msg_4", "The clerk found it.")
    return lines


def clerk() -> Lines:
    lines = Lines(agent="a1")
    lines.user("look it up", parent=None)
    lines.said("msg_9", "found")
    return lines

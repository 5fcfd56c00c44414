"""Requests and responses of the Vercel AI SDK's chat transport. Unknown fields are ignored, since
versions of the SDK, and applications, add their own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from .requests import Id, Name

Text = Annotated[str, Meta(max_length=400)]


class ChatMessage(Struct, frozen=True, kw_only=True):
    """A message as the client has it. Only the last message is read: the server has the others."""

    id: Name
    role: Literal["user", "assistant", "system"]
    parts: Annotated[list[dict[str, Any]], Meta(max_length=2_000)] = []
    metadata: Any = None


class ChatRequest(Struct, frozen=True, kw_only=True, rename={"message_id": "messageId"}):
    """The body that `DefaultChatTransport` sends. `agent` is used if the session does not exist
    yet; `thread` and `model` are optional."""

    id: Id
    messages: Annotated[list[ChatMessage], Meta(max_length=20_000)]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: Text | None = None
    agent: Name | None = None
    model: Name | None = None
    thread: Name = "main"


class UiMessage(Struct, frozen=True, kw_only=True):
    """A message in the form of the AI SDK. All messages of one run are one message."""

    id: str
    role: Literal["user", "assistant"]
    parts: list[dict[str, Any]]
    metadata: dict[str, Any] = {}


class UiMessages(Struct, frozen=True, kw_only=True):
    """The newest messages of a conversation, oldest first. `cursor` is the position after the last
    event of the log."""

    items: list[UiMessage]
    cursor: str

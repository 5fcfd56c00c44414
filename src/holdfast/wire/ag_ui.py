"""The request of AG-UI. Unknown fields are ignored, since newer versions of the protocol and
applications add fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from .requests import Id, Name

Long = Annotated[str, Meta(max_length=600)]


class RunMessage(Struct, frozen=True, kw_only=True, rename={"tool_call_id": "toolCallId"}):
    """A message as the client has it. Only the last messages are read: the server has the
    others."""

    id: Name
    role: Name
    content: Any = None
    tool_call_id: Long | None = None
    error: str | None = None


class ResumeEntry(Struct, frozen=True, kw_only=True, rename={"interrupt_id": "interruptId"}):
    """An answer to an interrupt, which is a pending item."""

    interrupt_id: Annotated[str, Meta(min_length=1, max_length=512)]
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ForwardedProps(Struct, frozen=True, kw_only=True):
    """What an application may add: the `agent` of a new session, the `model` of the message, the
    `thread`, and the `cursor` from which a client continues."""

    agent: Name | None = None
    model: Name | None = None
    thread: Name = "main"
    cursor: Long | None = None


class RunInput(
    Struct,
    frozen=True,
    kw_only=True,
    rename={"thread_id": "threadId", "run_id": "runId", "forwarded_props": "forwardedProps"},
):
    """The body that `HttpAgent` sends. `threadId` is the id of the session."""

    thread_id: Id
    run_id: Name
    messages: Annotated[list[RunMessage], Meta(max_length=20_000)] = []
    resume: Annotated[list[ResumeEntry], Meta(max_length=200)] | None = None
    forwarded_props: ForwardedProps | None = None

"""The conversation whose driver is killed: three steps with tools, one that a person allows, one
that a person denies, and a pair at once. What tools do outside is a line in a file, so that it can
be counted whatever the log says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast import Agent, Event, tool
from holdfast.errors import ModelError
from holdfast.events import Key, key
from holdfast.harness.live.prompt_history import History
from holdfast.harness.tools import Tool, ToolContext
from holdfast.models.port import FromUser, ModelCall, Text
from holdfast.models.scripted import Say, ScriptedModel, Use, check_prompt
from holdfast.transcript import transcript

SESSION = "customer-42"
ASKED = "Refund order 42."
ENDED = ("done", "failed", "aborted", "interrupted")
REASON = "keep the account"
ANSWER = "All is done, and the account stays."
THANKS, WELCOME = "Thank you.", "You are welcome."

Said = list[tuple[str, str, list[tuple[str, Any, str, Any]]]]

# What stands in the end, wherever the driver died on the way.
WHOLE: Said = [
    ("user", ASKED, []),
    ("assistant", "First the refund.", [("refund", {"order": 42}, "ok", "refunded 42")]),
    ("assistant", "Now the account.", [("close_account", {}, "denied", REASON)]),
    (
        "assistant",
        "I tell people.",
        [
            ("mail", {"to": "ann"}, "ok", "mailed ann"),
            ("index", {"order": 42}, "ok", "indexed 42"),
        ],
    ),
    ("assistant", ANSWER, []),
]
RESULTS = {"refund": "refunded 42", "mail": "mailed ann", "index": "indexed 42"}


class Effect(Struct, frozen=True):
    """Something that a tool did, and the idempotency key that it was given."""

    tool: str
    key: str


class Effects:
    """What was done outside of the log, in a file that outlives every process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, name: str, key: str, *, once: bool = False) -> None:
        """Do it; `once`: as a service does that drops a repeated request."""
        if once and any(done.key == key for done in self.all()):
            return
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{name} {key}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)

    def all(self) -> list[Effect]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [Effect(*line.split(" ")) for line in lines]


def tools(effects: Effects) -> list[Tool]:
    @tool(approval="ask")
    def refund(order: int, context: ToolContext) -> str:
        """Pay an order back."""
        effects.add("refund", context.key)
        return f"refunded {order}"

    @tool(approval="ask")
    def close_account(context: ToolContext) -> str:
        """Close the account."""
        effects.add("close_account", context.key)
        return "closed"

    @tool
    def mail(to: str, context: ToolContext) -> str:
        """Write to someone."""
        effects.add("mail", context.key)
        return f"mailed {to}"

    @tool(repeat_safe=True)
    def index(order: int, context: ToolContext) -> str:
        """Note an order; the same key twice is noted once."""
        effects.add("index", context.key, once=True)
        return f"indexed {order}"

    return [refund, close_account, mail, index]


def agent(effects: Effects) -> Agent:
    return Agent("Shop", instructions="Help with orders.", tools=tools(effects))


def model(delay: float = 0.0) -> ScriptedModel:
    """With a delay, the last answer comes so slowly that its drafts are written."""
    return ScriptedModel.by_input(
        {
            THANKS: WELCOME,
            ASKED: [
                Say("First the refund.", calls=[Use("refund", order=42)]),
                Say("Now the account.", calls=[Use("close_account")]),
                Say("I tell people.", calls=[Use("mail", to="ann"), Use("index", order=42)]),
                Say(ANSWER, delay=delay),
            ],
        }
    )


def place(tenant: str) -> Key:
    return key(SESSION, tenant=tenant)


# What is right


def said(events: list[Event]) -> Said:
    """The conversation as people see it, without what broke off."""
    return [
        (
            message.role,
            message.text,
            [
                (
                    call.name,
                    call.arguments,
                    call.outcome.outcome if call.outcome else "open",
                    (call.outcome.error or call.outcome.result) if call.outcome else None,
                )
                for call in message.calls
            ],
        )
        for message in transcript(events)
        if not message.interrupted
    ]


def illegal(events: list[Event]) -> str | None:
    """What a strict model would refuse in this history, with a message behind it."""
    history = History()
    for event in events:
        history.add(event)
    messages = history.messages("scripted/demo", {})
    call = ModelCall(model="demo", messages=(*messages, FromUser((Text("And now?"),))))
    try:
        check_prompt(call)
    except ModelError as error:
        return str(error)
    return None


def doubled(events: list[Event]) -> list[str]:
    """Calls with more than one outcome, and messages that came twice."""
    ended = [event.json()["call"] for event in events if event.kind == "tool.finished"]
    texts = [event.json()["text"] for event in events if event.kind == "message.completed"]
    came = [event.json()["text"] for event in events if event.kind == "message.received"]
    return [item for all in (ended, texts, came) for item in set(all) if all.count(item) > 1]

"""A log as a killed process leaves it, in the middle of a call of a tool that has a probe."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import Agent, Event, Harness, NewEvent, Store, ToolContext, connect, key, tool
from holdfast import events as ev
from holdfast.harness.session.session import Session
from holdfast.models import Say, ScriptedModel, Use
from holdfast.testing.samples import read_all
from tests.crash.places import url

AT = key("s")
PAID = "paid 5"


class Bank:
    """A bank that does not take idempotency keys, but finds payments by the reference in them."""

    def __init__(self, answer: Any = None, *, at: dict[str, int] | None = None) -> None:
        self.answer, self.paid = answer, dict(at or {})
        self.asked: list[tuple[Any, ...]] = []
        self.made: list[tuple[str, int]] = []

    def pay(self, key: str, cents: int) -> str:
        self.made.append((key, cents))
        self.paid[key] = cents
        return f"paid {cents}"


def agent(bank: Bank, **options: Any) -> Agent:
    async def did_pay(cents: int, context: ToolContext) -> Any:
        bank.asked.append((context.key, cents))
        if callable(bank.answer):
            return await bank.answer(context)
        return bank.answer

    @tool(**{"probe": did_pay, **options})
    async def pay(cents: int, context: ToolContext) -> str:
        """Pay."""
        return bank.pay(context.key, cents)

    return Agent("shop", instructions="Help.", tools=[pay])


def model(*steps: Any) -> ScriptedModel:
    """A model that pays and then says so; or that plays these steps."""
    played: list[Any] = [*steps] or [use(cents=5), "Done."]
    return ScriptedModel(played, per_turn=True)


async def lost_call(
    store: Store, *more: tuple[str, ev.Payload], arguments: Any = None, **start: Any
) -> None:
    """A log that ends in the middle of a call, as a killed process leaves it."""
    call = ev.Call(id="c1", name="pay", arguments={"cents": 5})
    begun = ev.ToolStarted(
        **{"call": "c1", "name": "pay", "key": "c1", "probe": True, "arguments": arguments, **start}
    )
    await store.append(AT, [NewEvent.of("session.created", {"agent": "shop"})], create=True)
    events: list[tuple[str, ev.Payload]] = [
        ("message.received", ev.MessageReceived(text="go")),
        ("run.started", ev.RunStarted(driver="gone", inputs=[2])),
        ("model.called", ev.ModelCalled(model="scripted/demo")),
        ("message.completed", ev.MessageCompleted(calls=[call], model="scripted/demo")),
        ("tool.started", begun),
        *more,
    ]
    run = [NewEvent.of(kind, payload, run="r") for kind, payload in events[1:]]
    await store.append(AT, [NewEvent.of(*events[0]), *run])


@asynccontextmanager
async def taken_up(
    bank: Bank,
    *more: tuple[str, ev.Payload],
    place: str = "memory:",
    lost: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncGenerator[Session]:
    """The session of a lost call in the next process."""
    async with connect(place) as store:
        await lost_call(store, *more, **(lost or {}))
        chosen = {"default_model": model(), "store": store, **(settings or {})}
        async with Harness(agent(bank, **options), **chosen) as harness:
            yield await harness.get_or_create("s")


def place(kind: str, folder: Path) -> str:
    return "memory:" if kind == "memory" else url(kind, folder)


async def ended(session: Session) -> list[tuple[str, Any]]:
    """The outcomes of the calls, as the model reads them."""
    return [
        (call.outcome.outcome, call.outcome.content or call.outcome.result)
        for message in await session.transcript()
        for call in message.calls
        if call.outcome is not None
    ]


async def kinds(session: Session) -> list[str]:
    return [event.kind for event in await session.events()]


async def logged(store: Store) -> list[Event]:
    return await read_all(store, AT)


def use(**arguments: Any) -> Say:
    return Say(calls=[Use("pay", **arguments)])

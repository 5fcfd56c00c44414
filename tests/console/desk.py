"""The agent that the console's tests serve with `holdfast serve`. What it does is in the message:
`Refund 42`, `Large` (a number that JavaScript rounds), `Wire 900` (two approvers), `Charge 42`
(never ends), `Ask`, `Plan`, `Story`, `Report`, `Delegate`, `Fail`, and `Echo` with a text, which
the tool returns as it is."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Agent, Harness, LogConfig, SubAgent, ToolContext, tool
from holdfast.errors import ModelError
from holdfast.harness.builtins import ask_user, submit_plan
from holdfast.models import ModelCall
from holdfast.models.scripted import Fail, Say, ScriptedModel, Use, last_input

LARGE = 2**53 + 1
STORY = " ".join(f"word{number}" for number in range(120))
REPORT = """## Refund report

The order was **returned** on *Monday*. See [the policy](https://example.com/policy).

| order | amount |
|---|---|
| 42 | 19.99 |

1. check the order
2. refund it with `refund`

```python
def total(orders: list[int]) -> int:
    return sum(orders)
```
"""


@tool(approval="ask", category="payments", risk="write")
async def refund(order: str, cents: int = 1999) -> str:
    """Refund an order."""
    return f"refunded {cents} cents of order {order}"


@tool(approval="ask", approvals=2, expires=3600, category="payments", risk="destructive")
async def wire(account: str, amount: int = 9000) -> str:
    """Send money to an account."""
    return f"sent {amount} to {account}"


@tool(category="payments", risk="write")
async def charge(order: str, context: ToolContext) -> str:
    """Charge a card. It never ends, so that a test can kill the server meanwhile."""
    await context.progress({"charging": order})
    await asyncio.sleep(3600)
    return f"charged {order}"


@tool
async def lookup(order: str) -> dict[str, Any]:
    """Look an order up."""
    if order == "0":
        raise ValueError("there is no order 0")
    return {"order": order, "state": "delivered", "cents": 1999, "customer": "ann"}


@tool
async def echo(text: str) -> str:
    """Return a text as it is."""
    return text


def last(call: ModelCall) -> str:
    """Return what follows the first word of the user's last message."""
    return last_input(call).partition(" ")[2] or "42"


def uses(name: str, parameter: str, said: str = "", end: str = "Done.") -> list[Any]:
    return [lambda call: Say(said, calls=[Use(name, **{parameter: last(call)})]), end]


USAGE = {"input_tokens": 812, "output_tokens": 96}
MODEL: dict[str, Any] = {
    "^Refund": uses("refund", "order", "I can refund that.", "The refund is on its way."),
    "^Large": [Say("", calls=[Use("refund", order="1", cents=LARGE)]), "Done."],
    "^Wire": uses("wire", "account"),
    "^Charge": uses("charge", "order", "", "So it was charged."),
    "^Look": [
        lambda call: Say("Let me look.", calls=[Use("lookup", order=last(call))], usage=USAGE),
        Say("It was delivered.", usage=USAGE),
    ],
    "^Ask": [
        Say(
            "",
            calls=[
                Use(
                    "ask_user",
                    question="Which day?",
                    options=[
                        {"label": "Monday"},
                        {"label": "Friday", "description": "after 5 pm"},
                    ],
                )
            ],
        ),
        "Thank you.",
    ],
    "^Name": [Say("", calls=[Use("ask_user", question="What is your name?")]), "Hello."],
    "^Plan": [
        Say("", calls=[Use("submit_plan", title="Move the shop", plan="1. pack\n2. drive")]),
        "So be it.",
    ],
    "^Echo": uses("echo", "text"),
    "^Delegate": [
        Say("", calls=[Use("subagent", agent="clerk", task="Look 42")]),
        "The clerk did.",
    ],
    "^Fail": Fail(ModelError(model="scripted/demo", problem="the model is overloaded"), "Let me"),
    "^Report": Say(REPORT, usage=USAGE),
    "^Story": Say(STORY, delay=0.02),
    "": Say("Good day.", usage=USAGE),
}


def desk(**settings: Any) -> Harness:
    """The harness that the server runs."""
    clerk = Agent("clerk", instructions="Look orders up.", tools=[lookup])
    agent = Agent(
        "desk",
        instructions="Help with orders.",
        tools=[refund, wire, charge, lookup, echo, ask_user, submit_plan],
        subagents=[SubAgent("clerk", "Looks orders up.", agent=clerk)],
    )
    quiet = {"default_model": ScriptedModel.by_input(MODEL), "logging": LogConfig(level="silent")}
    return Harness(agent, **{**settings, **quiet})

"""A shop agent that hands refunds to a sub-agent, whose tool a person approves."""

import asyncio

from holdfast import Agent, Harness, SubAgent, tool
from holdfast.models import Say, ScriptedModel, Use


@tool(approval="ask")
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


clerk = SubAgent("clerk", "refunds orders", instructions="Refund the order.", tools=["refund"])
agent = Agent("shop", instructions="Help customers.", tools=[refund], subagents=[clerk])
model = ScriptedModel.by_input(  # in place of a vendor's model, so that the program needs no key
    {
        "I paid twice.": [Say(calls=[Use("subagent", agent="clerk", task="Refund 42.")]), "Done."],
        "Refund 42.": [Say(calls=[Use("refund", order="42")]), "Order 42 is refunded."],
    }
)


async def main() -> None:
    async with Harness(agent, default_model=model, store="sqlite:subagents.db") as harness:
        session = await harness.get_or_create("customer-42")
        result = await session.send("I paid twice.")
        for item in result.pending:
            print("approve:", item.title)
            await session.approve(item.id, actor="ann")
        print((await session.wait()).text)
        for each in await session.subagents.list():
            print(each.agent, each.status)


if __name__ == "__main__":
    asyncio.run(main())

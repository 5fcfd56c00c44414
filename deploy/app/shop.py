"""The agents that the container serves. Replace them with yours."""

from holdfast import Agent, tool


@tool(approval="ask")
async def refund(order: str, cents: int) -> str:
    """Refund an order."""
    return f"refunded {cents} cents of order {order}"


support = Agent("shop", instructions="Help with orders.", tools=[refund])

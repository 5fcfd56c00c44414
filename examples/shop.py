"""A shop's agent whose refunds a person approves. It needs no account: without the API key of a
vendor, a model on this machine answers."""

from holdfast import Agent, tool


@tool(approval="ask", category="payments")
async def refund(order: str, cents: int = 100) -> str:
    """Refund an order.

    Args:
        order: The number of the order.
        cents: How much.
    """
    return f"refunded {cents} cents of order {order}"


agent = Agent("shop", instructions="Help with orders. Refund what is asked for.", tools=[refund])

"""A chat over HTTP with Flask and no `await`: `flask --app flask_app run`."""

from typing import Any

from flask import Flask, request

from holdfast import Agent, tool
from holdfast.models import offline
from holdfast.sync import Harness


@tool(approval="ask")
def refund(order: str, cents: int = 100) -> str:
    """Refund an order."""
    return f"refunded {cents} cents of order {order}"


agent = Agent("shop", instructions="Help customers.", tools=[refund])
harness = Harness(agent, default_model=offline(), store="sqlite:shop.db")
app = Flask(__name__)


def shown(result: Any) -> dict[str, Any]:
    pending = [{"id": item.id, "title": item.title} for item in result.pending]
    return {"status": result.status, "text": result.text, "pending": pending}


@app.post("/chats/<id>/messages")
def send(id: str) -> dict[str, Any]:
    body = request.get_json()
    session = harness.get_or_create(id)
    return shown(session.send(body["text"], key=body["key"]))


@app.post("/chats/<id>/pending/<item>")
def decide(id: str, item: str) -> dict[str, Any]:
    session = harness.get_or_create(id)
    settle = session.approve if request.get_json()["approved"] else session.deny
    settle(item, actor="ann")
    return shown(session.wait())

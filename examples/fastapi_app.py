"""A chat in a web page with FastAPI: `uvicorn fastapi_app:app`, then open http://127.0.0.1:8000."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse

from holdfast import Agent, AlreadyDecided, Harness, NotPending, tool
from holdfast.models import offline
from holdfast.web import sse


@tool(approval="ask")
async def refund(order: str, cents: int = 100) -> str:
    """Refund an order."""
    return f"refunded {cents} cents of order {order}"


agent = Agent("shop", instructions="Help customers.", tools=[refund])
harness = Harness(agent, default_model=offline(), store="sqlite:shop.db")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    async with harness:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("fastapi_chat.html"))


@app.get("/chats/{id}/events")
async def events(id: str, request: Request) -> Response:
    return sse(await harness.get_or_create(id), request)


@app.post("/chats/{id}/messages", status_code=202)
async def send(id: str, text: Annotated[str, Body()], key: Annotated[str, Body()]) -> None:
    await (await harness.get_or_create(id)).post(text, key=key)


@app.post("/chats/{id}/pending/{item}", status_code=202)
async def decide(id: str, item: str, approved: Annotated[bool, Body(embed=True)]) -> None:
    try:
        await (harness.approve if approved else harness.deny)(id, item)
    except (AlreadyDecided, NotPending) as error:
        raise HTTPException(409, "this was decided before") from error

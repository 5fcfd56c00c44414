"""Approves tool calls over a link in an e-mail: `uvicorn email_approval:app`."""

import hmac
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, Form, HTTPException, Response
from shop import agent  # its tool `refund` asks for approval

from holdfast import AlreadyDecided, Harness, NotPending
from holdfast.models import offline

SECRET = os.environ["LINK_SECRET"].encode()
PAGE = '<form method="post"><input name="verdict" placeholder="approve or deny"><button>OK</button>'
harness = Harness(agent, default_model=offline(), store="sqlite:shop.db")


def signed(session: str, item: str) -> str:
    return hmac.digest(SECRET, f"{session}/{item}".encode(), "sha256").hex()


def mail(event: str, session: str | None, value: Any) -> None:
    if session and event == "session.event" and value.kind == "pending.opened":
        asked = value.json()
        link = f"/decide/{session}/{asked['id']}/{signed(session, asked['id'])}"
        print(f"Approve {asked['title']}? http://127.0.0.1:8000{link}", flush=True)  # mail it


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    async with harness:
        harness.subscribe(mail)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chats/{id}/messages", status_code=202)
async def send(id: str, text: Annotated[str, Body(embed=True)]) -> None:
    await (await harness.get_or_create(id)).post(text)


@app.get("/decide/{session}/{item}/{signature}")
async def page(session: str, item: str, signature: str) -> Response:
    if not hmac.compare_digest(signed(session, item), signature):
        raise HTTPException(403)
    return Response(PAGE, media_type="text/html")


@app.post("/decide/{session}/{item}/{signature}")
async def decide(session: str, item: str, signature: str, verdict: Annotated[str, Form()]) -> str:
    await page(session, item, signature)
    try:
        settle = harness.approve if verdict == "approve" else harness.deny
        return (await settle(session, item, actor="boss@example.com")).outcome
    except (AlreadyDecided, NotPending) as error:
        raise HTTPException(409, "this was decided before") from error

"""Takes webhooks and posts each once: `uvicorn webhook:app`. Workers answer (see worker.py)."""

import hashlib
import hmac
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

from holdfast import Sessions, connect

SECRET = os.environ["WEBHOOK_SECRET"].encode()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    async with connect(os.environ.get("HOLDFAST_STORE", "sqlite:work.db")) as store:
        app.state.sessions = Sessions(store, tenant="acme")
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/hooks/orders", status_code=202)
async def order_changed(request: Request) -> dict[str, int]:
    body = await request.body()
    signature = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, request.headers.get("x-signature", "")):
        raise HTTPException(401, "the signature does not match")
    event = json.loads(body)
    seq = await request.app.state.sessions.post(
        f"order-{event['order']}",
        f"Order {event['order']} is now {event['status']}.",
        agent="clerk",
        key=event["id"],  # the sender repeats a delivery with the same id
        metadata={"source": "orders"},
    )
    return {"seq": seq}

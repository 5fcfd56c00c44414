"""Routes for the webhook endpoints of the caller's tenant. All of them need the scope `webhooks`,
because an endpoint gets the events of all users."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from litestar import delete, get, post
from litestar.params import JSONBody, PathParameter

from ...values.webhooks import NewWebhook, WebhookEndpoint, WebhookReply
from ...webhooks import Webhooks
from ...wire import AddWebhook, RedeliverWebhook, RotateWebhook, WebhookList
from ..http.context import Context, RequestContext

BASE = "/webhooks"
ONE = BASE + "/{endpoint:str}"
MANAGE = {"scope": "webhooks"}
AGAIN = {"scope": "webhooks", "once": "same"}  # no secret is stored with a response
Endpoint: TypeAlias = Annotated[str, PathParameter(min_length=1, max_length=200)]


@get(BASE, opt=MANAGE, operation_id="list_webhooks")
async def endpoints(ctx: Context) -> WebhookList:
    """List the webhook endpoints, the newest first, without their secrets."""
    return WebhookList(items=await (await _webhooks(ctx)).list())


@post(BASE, status_code=201, opt=AGAIN, operation_id="add_webhook")
async def add(ctx: Context, data: JSONBody[AddWebhook]) -> NewWebhook:
    """Add a webhook endpoint. Its secret is returned only here."""
    ctx.service.webhook_delivery.check(data.url)
    made = await (await _webhooks(ctx)).add(
        data.url,
        kinds=data.kinds,
        agents=data.agents,
        labels=data.labels,
        since=data.since,
        give_up=data.give_up,
        key=ctx.once,
    )
    ctx.note(endpoint=made.endpoint.id)
    return made


@get(ONE, opt=MANAGE, operation_id="get_webhook")
async def endpoint(ctx: Context, endpoint: Endpoint) -> WebhookEndpoint:
    """Return a webhook endpoint, without its secret."""
    return await (await _webhooks(ctx)).get(endpoint)


@delete(ONE, status_code=200, opt=MANAGE, operation_id="remove_webhook")
async def remove(ctx: Context, endpoint: Endpoint) -> WebhookList:
    """Remove a webhook endpoint with its secrets and positions. Returns the others."""
    hooks = await _webhooks(ctx)
    await hooks.remove(endpoint)
    return WebhookList(items=await hooks.list())


@post(ONE + "/rotate", status_code=200, opt=AGAIN, operation_id="rotate_webhook")
async def rotate(
    ctx: Context, endpoint: Endpoint, data: JSONBody[RotateWebhook | None] = None
) -> NewWebhook:
    """Add a new secret to an endpoint. Its old secret also signs for `grace` seconds."""
    grace = (data or RotateWebhook()).grace
    return await (await _webhooks(ctx)).rotate(endpoint, grace=grace, key=ctx.once)


@post(ONE + "/test", status_code=200, opt=MANAGE, operation_id="test_webhook")
async def send_test(ctx: Context, endpoint: Endpoint) -> WebhookReply:
    """Send a test delivery now, and return what the receiver answered."""
    hooks = await _webhooks(ctx)
    return await hooks.test(endpoint, ctx.service.webhook_delivery.sender)


@post(ONE + "/redeliver", status_code=200, opt=MANAGE, operation_id="redeliver_webhook")
async def redeliver(
    ctx: Context, endpoint: Endpoint, data: JSONBody[RedeliverWebhook | None] = None
) -> WebhookEndpoint:
    """Deliver again: the events of a session after a number, everything since a time, or with
    neither the dead letters. A stopped endpoint takes deliveries again."""
    body, hooks = data or RedeliverWebhook(), await _webhooks(ctx)
    await hooks.redeliver(
        endpoint, session=body.session, thread=body.thread, after=body.after, since=body.since
    )
    return await hooks.get(endpoint)


async def _webhooks(ctx: RequestContext) -> Webhooks:
    store = await ctx.service.places.store()
    return Webhooks(store, tenant=ctx.caller.tenant, actor=ctx.actor)


HANDLERS: list[Any] = [endpoints, add, endpoint, remove, rotate, send_test, redeliver]

"""Manages the webhook endpoints of a server."""

from __future__ import annotations

from collections.abc import Sequence

from ..values.webhooks import NewWebhook, WebhookEndpoint, WebhookReply
from ..wire import AddWebhook, RedeliverWebhook, RotateWebhook, WebhookList
from .transport import Transport, part

WEBHOOKS = "/v1/webhooks"
ANSWERS = 30.0  # seconds that a test delivery may take


class WebhookEndpoints:
    """Adds, lists, changes and removes the webhook endpoints of the key's tenant. The key needs the
    scope `webhooks`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(
        self,
        url: str,
        *,
        kinds: Sequence[str] = (),
        agents: Sequence[str] = (),
        labels: Sequence[str] = (),
        since: int | None = None,
        give_up: int = 3 * 86_400,
    ) -> NewWebhook:
        """Add an endpoint, which gets the events from now on, or since a time (UTC ms). The secret
        is returned only here."""
        body = AddWebhook(
            url=url,
            kinds=[*kinds],
            agents=[*agents],
            labels=[*labels],
            since=since,
            give_up=give_up,
        )
        return await self._transport.call("POST", WEBHOOKS, NewWebhook, body=body)

    async def get(self, id: str) -> WebhookEndpoint:
        """Return an endpoint."""
        return await self._transport.call("GET", _path(id), WebhookEndpoint)

    async def remove(self, id: str) -> None:
        """Remove an endpoint with its secrets and positions."""
        await self._transport.call("DELETE", _path(id), WebhookList)

    async def rotate(self, id: str, *, grace: int = 86_400) -> NewWebhook:
        """Add a new secret to an endpoint. Its old secret also signs for `grace` seconds."""
        body = RotateWebhook(grace=grace)
        return await self._transport.call("POST", f"{_path(id)}/rotate", NewWebhook, body=body)

    async def test(self, id: str) -> WebhookReply:
        """Let the server send a test delivery now, and return what the receiver answered."""
        path = f"{_path(id)}/test"
        return await self._transport.call("POST", path, WebhookReply, wait=ANSWERS)

    async def redeliver(
        self,
        id: str,
        *,
        session: str | None = None,
        thread: str = "main",
        after: int = 0,
        since: int | None = None,
    ) -> WebhookEndpoint:
        """Deliver again: the events of a session after a number, everything since a time (UTC ms),
        or with neither the dead letters."""
        body = RedeliverWebhook(session=session, thread=thread, after=after, since=since)
        path = f"{_path(id)}/redeliver"
        return await self._transport.call("POST", path, WebhookEndpoint, body=body)

    async def list(self) -> list[WebhookEndpoint]:
        """Return all endpoints, the newest first."""
        return (await self._transport.call("GET", WEBHOOKS, WebhookList)).items


def _path(id: str) -> str:
    return f"{WEBHOOKS}/{part(id, 'id')}"

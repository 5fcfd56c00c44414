"""The requests and responses of the routes for webhook endpoints."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from ..values.webhooks import WebhookEndpoint
from .requests import Name, Request

Time: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Year: TypeAlias = Annotated[int, Meta(ge=60, le=365 * 86_400)]
Grace: TypeAlias = Annotated[int, Meta(ge=0, le=365 * 86_400)]
Url: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2_000)]
Filter: TypeAlias = Annotated[list[Name], Meta(max_length=100)]


class AddWebhook(Request, frozen=True, kw_only=True):
    """A webhook endpoint to add. Without `kinds`, `agents` and `labels` it gets all events. `since`
    is the time (UTC ms) of the first event to deliver, by default now. After `give_up` seconds, an
    event that cannot be delivered becomes a dead letter."""

    url: Url
    kinds: Filter = []
    agents: Filter = []
    labels: Filter = []
    since: Time | None = None
    give_up: Year = 3 * 86_400


class RotateWebhook(Request, frozen=True, kw_only=True):
    """A request for a new secret. Deliveries are signed with the old one too for `grace`
    seconds."""

    grace: Grace = 86_400


class RedeliverWebhook(Request, frozen=True, kw_only=True):
    """What to deliver again: the events of a session after the number `after`, or everything since
    a time (UTC ms), or with neither the dead letters."""

    session: Name | None = None
    thread: Name = "main"
    after: Time = 0
    since: Time | None = None


class WebhookList(Struct, frozen=True, kw_only=True):
    """The webhook endpoints of a tenant, the newest first."""

    items: list[WebhookEndpoint]

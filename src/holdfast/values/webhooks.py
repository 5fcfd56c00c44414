"""Webhook endpoints as lists show them, without their secrets."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

DAY = 86_400


class WebhookEndpoint(Struct, frozen=True, kw_only=True):
    """A webhook endpoint. `kinds`, `agents` and `labels` filter its events; an empty list matches
    all. `since` is the time (UTC ms) of the first event to deliver. An event that cannot be
    delivered becomes a dead letter after `give_up` seconds. `failing` is the number of logs whose
    next event could not be delivered, `dead` the number of dead letters, `error` the latest error.
    A `stopped` endpoint takes no deliveries, because its receiver answered 410.

    See [webhooks](../webhooks.md).
    """

    id: str
    url: str
    kinds: list[str] = []
    agents: list[str] = []
    labels: list[str] = []
    give_up: int = 3 * DAY
    since: int = 0
    created: int = 0
    state: Literal["active", "failing", "stopped"] = "active"
    failing: int = 0
    dead: int = 0
    error: str | None = None


class NewWebhook(Struct, frozen=True, kw_only=True):
    """A webhook endpoint and its new secret, which is shown only here.

    See [webhooks](../webhooks.md).
    """

    endpoint: WebhookEndpoint
    secret: str

    def __repr__(self) -> str:
        return f"NewWebhook(id={self.endpoint.id!r})"


class WebhookReply(Struct, frozen=True, kw_only=True):
    """The result of one delivery: the HTTP status, or the error if there was no answer.
    `retry_after` is in seconds, as the receiver asked for.

    See [webhooks](../webhooks.md).
    """

    status: int | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the receiver accepted the delivery."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def problem(self) -> str:
        """A description of a failed delivery."""
        return self.error or f"HTTP status {self.status}"

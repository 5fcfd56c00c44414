"""Outbound webhooks: delivers the events of sessions to HTTP endpoints, signed by the Standard
Webhooks specification, at least once and in order per log.

`Webhooks` manages the endpoints of a tenant, and `Deliverer` delivers to them. No harness is
needed. Sending over HTTP needs the extra `client`.
"""

from ..values.webhooks import NewWebhook, WebhookEndpoint, WebhookReply
from .addresses import networks
from .deliverer import Deliverer
from .endpoints import Webhooks
from .http import HttpSender, Sender
from .signatures import new_secret, signature

__all__ = [
    "Deliverer",
    "HttpSender",
    "NewWebhook",
    "Sender",
    "WebhookEndpoint",
    "WebhookReply",
    "Webhooks",
    "networks",
    "new_secret",
    "signature",
]


def __dir__() -> list[str]:
    return sorted(__all__)

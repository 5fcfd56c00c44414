"""The delivery of webhooks by a server: to the endpoints of all tenants, from the default store."""

from __future__ import annotations

from functools import cached_property

from ..redact import Redactor
from ..stores.port import Store
from ..webhooks import Deliverer, HttpSender, networks
from ..webhooks.addresses import check_literal


class WebhookDelivery:
    """Delivers webhooks while the server runs, if the settings say so. `networks` are the private
    networks that endpoints may be in."""

    def __init__(self, allowed: list[str], redactor: Redactor, *, deliver: bool) -> None:
        self._allowed, self._redactor, self._deliver = allowed, redactor, deliver
        self._deliverer: Deliverer | None = None

    @cached_property
    def sender(self) -> HttpSender:
        """What sends the test deliveries."""
        return HttpSender(networks(self._allowed))

    def check(self, url: str) -> None:
        """Reject the URL of an endpoint whose host is an address that is not allowed. Names are
        checked at each delivery."""
        check_literal(url, networks(self._allowed))

    def start(self, store: Store) -> None:
        """Begin to deliver."""
        if self._deliver and self._deliverer is None:
            deliverer = Deliverer(store, networks=self._allowed, redactor=self._redactor)
            self._deliverer = deliverer.start()

    async def aclose(self) -> None:
        """Stop delivering; other processes continue."""
        if self._deliverer is not None:
            await self._deliverer.aclose()
        if "sender" in self.__dict__:
            await self.sender.aclose()

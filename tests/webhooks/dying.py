"""A process that delivers webhooks and kills itself: python -m tests.webhooks.dying URL N

It counts the moments before and after each request and each write to a log of an endpoint, and
dies by SIGKILL at moment N."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, cast

import holdfast
from holdfast import Store
from holdfast.stores.wrapped import WrappedStore
from holdfast.webhooks import Deliverer, Sender, WebhookReply, log_delivery

from .scene import POLL, sender

TTL = 1.0


class Moments:
    """Counts moments, and dies at one of them."""

    def __init__(self, last: int) -> None:
        self.left = last

    def pass_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingStore(WrappedStore):
    def __init__(self, inner: Store, moments: Moments) -> None:
        super().__init__(inner)
        self._moments = moments

    async def append(self, key: Any, *args: Any, **options: Any) -> Any:
        self._moments.pass_one()
        done = await self.inner.append(key, *args, **options)
        self._moments.pass_one()
        return done


class DyingSender:
    def __init__(self, moments: Moments) -> None:
        self._inner, self._moments = sender(), moments

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookReply:
        self._moments.pass_one()
        reply = await self._inner.post(url, headers, body)
        self._moments.pass_one()
        return reply

    async def aclose(self) -> None:
        await self._inner.aclose()


async def main(url: str, last: int) -> None:
    log_delivery.FIRST = 0.05
    moments = Moments(last)
    async with holdfast.connect(url) as inner:
        store = cast(Store, DyingStore(inner, moments))
        one: Sender = DyingSender(moments)
        async with Deliverer(store, sender=one, poll=POLL, ttl=TTL):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

"""The client for scripts and notebooks: the same methods, without `await`.

One event loop in a daemon thread does the work, as in `holdfast.sync`; the objects here forward
every call to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..sync_proxy import Loop, RemoteContext
from .client import Client as AsyncClient

__all__ = ["Client"]


def __dir__() -> list[str]:
    return sorted(__all__)


class Client(RemoteContext):
    """`holdfast.client.Client` without `await`: the same settings and methods.

        with Client("https://agents.example.com", key="hk_…") as client:
            session = client.get_or_create("customer-42")
            for item in session.stream("Refund order 42"):
                ...

    Any thread may use it, even one that runs an event loop, as in a notebook. Ctrl-C during a call
    raises `KeyboardInterrupt` in the caller; the run on the server continues.

    See [the client](../client.md).
    """

    __slots__ = ()

    def __init__(self, url: str | Sequence[str], key: str | None = None, **settings: Any) -> None:
        super().__init__(AsyncClient(url, key, **settings), Loop("the client"))

    def close(self) -> bool:
        """Close the connections and end the thread. Returns False if the client was closed
        before."""
        return self._loop.close(self._target.aclose)

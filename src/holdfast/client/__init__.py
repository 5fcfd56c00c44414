"""The client of a Holdfast server: remote sessions with the same methods, return values and errors
as local sessions.

Needs the extra `client`. `holdfast.client.sync` has the same API without `await`.
"""

from ..errors import MissingExtra

try:
    import httpx as _httpx  # noqa: F401
except ImportError as error:
    raise MissingExtra(extra="client", needed_for="a client of a server") from error

from .client import Client
from .session import Session
from .streams import Follow, Stream
from .transport import Patience

__all__ = ["Client", "Follow", "Patience", "Session", "Stream"]


def __dir__() -> list[str]:
    return sorted(__all__)

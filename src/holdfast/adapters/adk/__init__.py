"""Google ADK's sessions on any Holdfast store (extra `adk`).

`HoldfastSessionService` implements ADK's `BaseSessionService`. Messages and tool calls are stored
as native events, which every other reader of the log understands. `register` adds the service to
ADK's registry, for its command line.
"""

from .service import HoldfastSessionService, register

__all__ = ["HoldfastSessionService", "register"]


def __dir__() -> list[str]:
    return sorted(__all__)

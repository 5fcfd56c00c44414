"""The OpenAI Agents SDK's sessions on any Holdfast store (extra `openai`).

`HoldfastSession` implements the SDK's `Session`. Messages and tool calls are stored as native
events, which every other reader of the log understands.
"""

from .session import HoldfastSession

__all__ = ["HoldfastSession"]


def __dir__() -> list[str]:
    return sorted(__all__)

"""pydantic-ai's conversations on any Holdfast store (extra `pydantic-ai`).

`HoldfastConversationStore` implements the SDK's `ConversationStore`. Messages and tool calls are
stored as native events, which every other reader of the log understands.
"""

from .store import HoldfastConversationStore

__all__ = ["HoldfastConversationStore"]


def __dir__() -> list[str]:
    return sorted(__all__)

"""pydantic-ai's conversations on any Holdfast store (extra `pydantic-ai`).

`HoldfastConversationStore` is the SDK's `ConversationStore`. Its messages and tool calls are native
events, which every other reader of the log understands.
"""

from .store import HoldfastConversationStore

__all__ = ["HoldfastConversationStore"]


def __dir__() -> list[str]:
    return sorted(__all__)

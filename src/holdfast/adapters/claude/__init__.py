"""The Claude Agent SDK's sessions on any Holdfast store (extra `claude`).

`ClaudeSessionStore` is the SDK's `SessionStore`; beside it stand wrappers for any such store,
the transcripts that the Claude Code CLI keeps on disk, and the SDK as a model of a harness.
"""

from .keys import Aliases, InvalidKey
from .provider import ClaudeProvider
from .replay import history, next_turn, turn
from .store import ClaudeSessionStore
from .wrappers import PinnedSessionStore, ValidatingSessionStore, session_uuid

__all__ = [
    "Aliases",
    "ClaudeProvider",
    "ClaudeSessionStore",
    "InvalidKey",
    "PinnedSessionStore",
    "ValidatingSessionStore",
    "history",
    "next_turn",
    "session_uuid",
    "turn",
]


def __dir__() -> list[str]:
    return sorted(__all__)

"""The Claude Agent SDK's sessions on any Holdfast store (extra `claude`).

`ClaudeSessionStore` implements the SDK's `SessionStore`. There are also wrappers for any such
store, an import and export of the Claude Code CLI's transcripts, and the SDK as a model of a
harness.
"""

from .keys import Aliases, InvalidKey
from .provider import ClaudeProvider
from .store import ClaudeSessionStore
from .turns import history, next_turn, turn
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

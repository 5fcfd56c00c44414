"""The Claude Agent SDK's sessions on any Holdfast store (extra `claude`).

`ClaudeSessionStore` is the SDK's `SessionStore`; beside it stand wrappers for any such store and
the transcripts that the Claude Code CLI keeps on disk.
"""

from .keys import Aliases, InvalidKey
from .replay import history, next_turn, turn
from .store import ClaudeSessionStore
from .wrappers import PinnedSessionStore, ValidatingSessionStore, session_uuid

__all__ = [
    "Aliases",
    "ClaudeSessionStore",
    "InvalidKey",
    "PinnedSessionStore",
    "ValidatingSessionStore",
    "history",
    "next_turn",
    "session_uuid",
    "turn",
]

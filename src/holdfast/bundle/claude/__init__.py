"""Converts Claude Code transcripts to bundles, and bundles to transcripts.

`holdfast.adapters.claude` stores transcripts unchanged. This package converts them to sessions that
any agent can continue.
"""

from .files import ClaudeFiles, save_claude
from .read import read_claude
from .write import write_claude

__all__ = ["ClaudeFiles", "read_claude", "save_claude", "write_claude"]


def __dir__() -> list[str]:
    return sorted(__all__)

"""Claude Code's transcripts: read as bundles of ours, and written from them.

`holdfast.adapters.claude` keeps such transcripts as they are; here they become sessions that any
agent can go on with.
"""

from .files import ClaudeFiles, save_claude
from .read import read_claude
from .write import write_claude

__all__ = ["ClaudeFiles", "read_claude", "save_claude", "write_claude"]


def __dir__() -> list[str]:
    return sorted(__all__)

"""LangGraph's checkpoints on any Holdfast store (extra `langgraph`).

`HoldfastSaver` is a LangGraph checkpointer. The messages of a graph are stored as native events,
which every other reader of the log understands.
"""

from .saver import HoldfastSaver

__all__ = ["HoldfastSaver"]


def __dir__() -> list[str]:
    return sorted(__all__)

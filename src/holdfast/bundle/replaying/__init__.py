"""Replays: a recorded conversation run again, with recorded answers and nothing else.

`play` is what is called; `track` what was recorded and how far it is played, `stage` the store
that compares, `standins` who answers for models and tools, `values` what is said in the end.
"""

from .play import replay
from .values import Divergence, Replayed

__all__ = ["Divergence", "Replayed", "replay"]

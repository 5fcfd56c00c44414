"""Replay: runs a recorded conversation again, with the recorded answers of models and tools.

`play` is the entry point. `recording` contains the recorded events, and `track` the position of the
replay in them. `store` compares the events that drivers write with the recorded events,
`recorded_models` and `recorded_tools` return the recorded answers and results, and `report`
contains the result.
"""

from .player import play
from .recording import Recording, stored_recording
from .report import Divergence, Replayed

__all__ = ["Divergence", "Recording", "Replayed", "play", "stored_recording"]

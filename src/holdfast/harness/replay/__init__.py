"""Replay: runs a recorded conversation again, with the recorded answers.

`play` is the entry point. `recording` and `track` contain the recorded events and the position of
the replay, `store` compares the events that drivers write, `recorded_models` and `recorded_tools`
return the recorded answers and results, and `report` contains the result.
"""

from .player import play
from .recording import Recording, stored_recording
from .report import Divergence, Replayed

__all__ = ["Divergence", "Recording", "Replayed", "play", "stored_recording"]

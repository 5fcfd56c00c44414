"""Replays: a recorded conversation run again with the recorded answers.

`play` is the entry point; `recording` and `track` have what was recorded and the position of the
replay, `store` compares what drivers write, `recorded_models` and `recorded_tools` answer,
`report` is the result.
"""

from .player import play
from .recording import Recording, stored_recording
from .report import Divergence, Replayed

__all__ = ["Divergence", "Recording", "Replayed", "play", "stored_recording"]

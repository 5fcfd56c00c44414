"""The drivers of a replay. Each stops at the events at which the recorded driver stopped."""

from __future__ import annotations

from dataclasses import replace

from ...errors import LeaseLost
from ...log import events as ev
from ...log.events import Key
from ..agents.config import Config
from ..loop.driver import Driving
from . import recorded_config
from .track import Track


class ReplayDrivers:
    """The running driver and the configuration of each log."""

    def __init__(self) -> None:
        self.drives: dict[Key, Driving] = {}
        self.configs: dict[Key, Config] = {}

    def stop(self, track: Track) -> None:
        """Stop the driver if, at this position, the recorded driver crashed, handed the run over to
        another process, or was cancelled."""
        coming = track.following()
        driving = self.drives.get(track.key)
        if coming is None or driving is None or track.stopped or track.outside() is not None:
            return
        payload = coming[1]
        broken = recorded_config.breaks(track)
        if broken == "lost":
            self.crash(track)
        elif broken == "left" and not isinstance(payload, ev.MessageInterrupted):
            self.leave(track)
        elif isinstance(payload, ev.ToolFinished) and payload.code == "cancelled":
            track.stopped, track.late = True, recorded_config.ends_with(track, "limit_time")
            driving.halt()

    def crash(self, track: Track) -> LeaseLost:
        """Stop the driver as if its process had crashed. Returns the error that the driver gets."""
        track.stopped, error = True, self.gone(track)
        if (driving := self.drives.get(track.key)) is not None:
            driving.lost(error)
        return error

    def leave(self, track: Track) -> None:
        """Stop the driver as if it handed the run over to another process."""
        track.stopped = True
        if (driving := self.drives.get(track.key)) is not None:
            driving.stop()
            driving.halt()

    def run_out(self, track: Track) -> None:
        """Make the run end by its time limit, as it did in the recording."""
        track.late = True
        self.tune(track)
        if (driving := self.drives.get(track.key)) is not None:
            driving.halt()

    def gone(self, track: Track) -> LeaseLost:
        """Return the `LeaseLost` error for the driver of a log."""
        key = track.key
        return LeaseLost(
            tenant=key.tenant,
            session=key.session,
            thread=key.thread,
            token=0,
            newest=1,
            owner=track.owner,
        )

    def tune(self, track: Track) -> None:
        """Set the driver's limits, owner and model to the recorded values."""
        if (config := self.configs.get(track.key)) is not None and not track.free:
            config = self.configs[track.key] = replace(
                config,
                bounds=recorded_config.bounds(track),
                owner=recorded_config.driver(track),
                default_model=recorded_config.model(track) or config.default_model,
            )
            if (driving := self.drives.get(track.key)) is not None:
                driving.use(config)

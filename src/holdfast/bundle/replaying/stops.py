"""The drivers of a replay, and how they come to stop where they did then."""

from __future__ import annotations

from dataclasses import replace

from ...errors import LeaseLost
from ...harness.agents.config import Config
from ...harness.loop.driver import Driving
from ...log import events as ev
from ...log.events import Key
from .track import Track


class Stops:
    """Who drives which log, and what each has been told to decide by."""

    def __init__(self) -> None:
        self.drives: dict[Key, Driving] = {}
        self.configs: dict[Key, Config] = {}

    def strike(self, track: Track) -> None:
        """Stop the driver where it was stopped: a process died, or left the run to others."""
        coming = track.following()
        driving = self.drives.get(track.key)
        if coming is None or driving is None or track.struck or track.outside() is not None:
            return
        payload = coming[1]
        broken = track.breaks()
        if broken == "lost":
            self.crash(track)
        elif broken == "left" and not isinstance(payload, ev.MessageInterrupted):
            self.leave(track)
        elif isinstance(payload, ev.ToolFinished) and payload.code == "cancelled":
            track.struck, track.late = True, track.ends_with("limit_time")
            driving.halt()

    def crash(self, track: Track) -> LeaseLost:
        """The driver is gone, without a word."""
        track.struck, error = True, self.gone(track)
        if (driving := self.drives.get(track.key)) is not None:
            driving.lost(error)
        return error

    def leave(self, track: Track) -> None:
        """The driver ends, and hands over."""
        track.struck = True
        if (driving := self.drives.get(track.key)) is not None:
            driving.stop()
            driving.halt()

    def run_out(self, track: Track) -> None:
        """The time of the run is up."""
        track.late = True
        self.tune(track)
        if (driving := self.drives.get(track.key)) is not None:
            driving.halt()

    def gone(self, track: Track) -> LeaseLost:
        """What a driver is told that has lost its log."""
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
        """Let the driver decide within the bounds that were met, as who drove then."""
        if (config := self.configs.get(track.key)) is not None and not track.free:
            config = self.configs[track.key] = replace(
                config,
                bounds=track.bounds(),
                owner=track.driver(),
                default_model=track.model() or config.default_model,
            )
            if (driving := self.drives.get(track.key)) is not None:
                driving.use(config)

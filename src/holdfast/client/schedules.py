"""The recurring schedules of a session on a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import wire
from ..values.schedule import Missed, Overlap, Scheduled
from .session_parts import RemotePart
from .transport import part


class SchedulesPart(RemotePart):
    """Messages that are sent again and again, at the times of a schedule."""

    async def set(
        self,
        name: str,
        *,
        message: str,
        cron: str | None = None,
        every: float | None = None,
        timezone: str | None = None,
        missed: Missed = "once",
        overlap: Overlap = "skip",
        metadata: Mapping[str, Any] | None = None,
    ) -> Scheduled:
        """Send `message` at the times of a cron expression, by the clocks of `timezone` (default:
        UTC), or `every` so many seconds. Replaces the schedule with this name; the same schedule
        is left unchanged."""
        body = wire.SetSchedule(
            message=message,
            cron=cron,
            every=every,
            timezone=timezone,
            missed=missed,
            overlap=overlap,
            metadata=dict(metadata or {}),
        )
        return await self._place.call("PUT", _path(name), Scheduled, body=body)

    async def list(self) -> list[Scheduled]:
        """Return the schedules, those that were set first at the beginning."""
        return (await self._place.call("GET", "/schedules", wire.SchedulesShown)).items

    async def pause(self, name: str) -> Scheduled:
        """Stop a schedule until it is resumed."""
        return await self._place.call("POST", f"{_path(name)}/pause", Scheduled)

    async def resume(self, name: str) -> Scheduled:
        """Resume a paused schedule with its next time after now."""
        return await self._place.call("POST", f"{_path(name)}/resume", Scheduled)

    async def remove(self, name: str) -> bool:
        """Remove a schedule. Returns False if there is none with this name."""
        return (await self._place.call("DELETE", _path(name), wire.ScheduleRemoved)).removed


def _path(name: str) -> str:
    return f"/schedules/{part(name, 'name')}"

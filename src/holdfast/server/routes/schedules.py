"""Routes for the recurring schedules of a session."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import delete, get, post, put
from litestar.params import JSONBody, PathParameter

from ...values.schedule import Scheduled
from ...wire import ScheduleRemoved, SchedulesShown, SetSchedule
from ..http.context import Context, check_metadata
from .messages import check_said
from .parameters import READ, SESSION, WRITE, SessionId, Thread

BASE = f"{SESSION}/schedules"
Name = Annotated[str, PathParameter(min_length=1, max_length=128)]


@get(BASE, opt=READ, operation_id="list_schedules")
async def schedules(ctx: Context, session_id: SessionId, thread: Thread = "main") -> SchedulesShown:
    """Return the schedules of a thread."""
    async with ctx.session(session_id, thread, current=True) as session:
        return SchedulesShown(items=await session.schedules.list())


@put(BASE + "/{name:str}", opt=WRITE, operation_id="set_schedule")
async def set_schedule(
    ctx: Context,
    session_id: SessionId,
    name: Name,
    data: JSONBody[SetSchedule],
    thread: Thread = "main",
) -> Scheduled:
    """Send a message again and again. Replaces the schedule with this name; the same schedule goes
    on unchanged."""
    check_said("message", data.message)
    check_metadata(*data.metadata)
    async with ctx.session(session_id, thread, current=True) as session:
        return await session.schedules.set(
            name,
            message=data.message,
            cron=data.cron,
            every=data.every,
            timezone=data.timezone,
            missed=data.missed,
            overlap=data.overlap,
            metadata=data.metadata,
            actor=ctx.actor,
        )


@post(BASE + "/{name:str}/pause", status_code=200, opt=WRITE, operation_id="pause_schedule")
async def pause(
    ctx: Context, session_id: SessionId, name: Name, thread: Thread = "main"
) -> Scheduled:
    """Stop a schedule until it is resumed."""
    async with ctx.session(session_id, thread, current=True) as session:
        return await session.schedules.pause(name, actor=ctx.actor)


@post(BASE + "/{name:str}/resume", status_code=200, opt=WRITE, operation_id="resume_schedule")
async def resume(
    ctx: Context, session_id: SessionId, name: Name, thread: Thread = "main"
) -> Scheduled:
    """Resume a paused schedule with its next time after now."""
    async with ctx.session(session_id, thread, current=True) as session:
        return await session.schedules.resume(name, actor=ctx.actor)


@delete(BASE + "/{name:str}", status_code=200, opt=WRITE, operation_id="remove_schedule")
async def remove(
    ctx: Context, session_id: SessionId, name: Name, thread: Thread = "main"
) -> ScheduleRemoved:
    """Remove a schedule. Messages that it has sent stay."""
    async with ctx.session(session_id, thread, current=True) as session:
        removed = await session.schedules.remove(name, actor=ctx.actor)
        return ScheduleRemoved(removed=removed or ctx.again)


HANDLERS: list[Any] = [schedules, set_schedule, pause, resume, remove]

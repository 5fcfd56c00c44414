"""`holdfast schedules`: list, set, pause, resume and remove the schedules of a session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from ..log.events import Key
from ..sessions.schedules import Schedules, StoredLog
from ..values.schedule import Missed, Overlap, Scheduled
from .options import DEFAULTS, By, Common, Session, Thread, seconds
from .render import moment_or, table_text
from .sessions import pair

Name: TypeAlias = Annotated[str, Parameter(help="Name of the schedule.")]
Actor: TypeAlias = Annotated[
    str | None, Parameter(help="Name of the actor. Default: cli:USER, with your user name.")
]


async def list_(session: Session, /, *, thread: Thread = "main", common: Common = DEFAULTS) -> None:
    """List the schedules of a session.

    ```
    holdfast schedules list customer-42
    ```

    With `--json`, prints one JSON list.
    """
    out = common.output()
    async with _opened(session, thread, common) as schedules:
        found = await schedules.list()
    rows = [
        {
            "NAME": one.name,
            "TIMES": _times(one),
            "NEXT": "paused" if one.paused else moment_or("never", one.next),
            "LAST": moment_or("", one.last),
            "MESSAGE": one.message,
        }
        for one in found
    ]
    table = table_text(rows, out.console.width, optional=("LAST",))
    out.show(msgspec.to_builtins(found), table, f"session {session!r} has no schedules")


async def set_(
    session: Session,
    name: Name,
    /,
    *,
    message: str,
    cron: str | None = None,
    every: str | None = None,
    timezone: str | None = None,
    missed: Missed = "once",
    overlap: Overlap = "skip",
    metadata: list[str] | None = None,
    thread: Thread = "main",
    actor: Actor = None,
    common: Common = DEFAULTS,
) -> None:
    """Send a message to a session again and again.

    ```
    holdfast schedules set customer-42 check --message "Anything new?" --every 15min
    holdfast schedules set customer-42 report --message "Report." --cron "0 9 * * 1-5"
    ```

    Replaces the schedule with this name; setting the same schedule again changes nothing. A worker
    or server that serves the session's agent sends the messages. With `--json`, prints one JSON
    object.

    :param message: Text of the message.
    :param cron: Cron expression of five fields: minute, hour, day of month, month, day of week.
    :param every: Interval, such as 15min, 2h or 1d.
    :param timezone: Time zone of the cron expression, such as Europe/Berlin. Default: UTC.
    :param missed: What to do about firings that no worker made within a minute: skip them, send the
        message once for all of them, or for all of them.
    :param overlap: What to do while a run is open or an earlier message is queued: skip the firing,
        or queue its message.
    :param metadata: Metadata of the messages as NAME=VALUE; repeatable.
    """
    interval = None if every is None else seconds("--every", every)
    given: dict[str, Any] = dict(pair("--metadata", one) for one in metadata or ())
    async with _opened(session, thread, common) as schedules:
        made = await schedules.set(
            name,
            message=message,
            cron=cron,
            every=interval,
            timezone=timezone,
            missed=missed,
            overlap=overlap,
            metadata=given,
            actor=By(actor=actor).who,
        )
    _show(common, made)


async def pause(
    session: Session,
    name: Name,
    /,
    *,
    thread: Thread = "main",
    actor: Actor = None,
    common: Common = DEFAULTS,
) -> None:
    """Stop a schedule until it is resumed.

    ```
    holdfast schedules pause customer-42 report
    ```

    With `--json`, prints one JSON object.
    """
    async with _opened(session, thread, common) as schedules:
        _show(common, await schedules.pause(name, actor=By(actor=actor).who))


async def resume(
    session: Session,
    name: Name,
    /,
    *,
    thread: Thread = "main",
    actor: Actor = None,
    common: Common = DEFAULTS,
) -> None:
    """Resume a paused schedule with its next time after now.

    ```
    holdfast schedules resume customer-42 report
    ```

    With `--json`, prints one JSON object.
    """
    async with _opened(session, thread, common) as schedules:
        _show(common, await schedules.resume(name, actor=By(actor=actor).who))


async def remove(
    session: Session,
    name: Name,
    /,
    *,
    thread: Thread = "main",
    actor: Actor = None,
    common: Common = DEFAULTS,
) -> int:
    """Remove a schedule. Messages that it has sent stay.

    ```
    holdfast schedules remove customer-42 report
    ```

    The exit code is 1 if there is no schedule with this name. With `--json`, prints one object:
    `{"name": …, "removed": …}`.
    """
    async with _opened(session, thread, common) as schedules:
        removed = await schedules.remove(name, actor=By(actor=actor).who)
    text = f"{name} is removed" if removed else f"session {session!r} has no schedule {name!r}"
    common.output().show({"name": name, "removed": removed}, text)
    return int(not removed)


def _show(common: Common, made: Scheduled) -> None:
    when = "is paused" if made.paused else f"fires next: {moment_or('never', made.next)}"
    common.output().show(msgspec.to_builtins(made), f"{made.name} {when}")


def _times(one: Scheduled) -> str:
    return f"every {one.every:g} s" if one.cron is None else f"{one.cron} {one.timezone}"


@asynccontextmanager
async def _opened(session: str, thread: str, common: Common) -> AsyncGenerator[Schedules, None]:
    async with common.open() as store:
        yield Schedules(StoredLog(store, Key(common.tenant, session, thread)))

"""`holdfast tail`: follow the events of one thread."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter

from ..cancellation import ended
from ..errors import LogDamaged
from ..log.catalog import Row
from ..log.events import Key
from ..stores.pages import existing_row
from ..stores.port import Store
from ..values.stream_items import CaughtUp
from .options import DEFAULTS, Common, Session, Thread
from .output import Output
from .show import After, Count, Full, checked, put, read_on, start


async def tail(
    session: Session,
    /,
    *,
    thread: Thread = "main",
    events: Count = 10,
    after: After = None,
    follow: Annotated[bool, Parameter(negative="--no-follow")] = True,
    full: Full = False,
    common: Common = DEFAULTS,
) -> int:
    """Show the latest events of a session and follow new ones.

    ```
    holdfast tail customer-42
    holdfast tail customer-42 --json | jq -r .kind
    ```

    Runs until Ctrl-C. Shows the events of all processes, each event once. With `--json`, prints one
    line per event.

    :param follow: Keep running and show new events.
    """
    out = common.output()
    async with common.open() as store:
        row = await existing_row(store, Key(common.tenant, session, thread))
        first = start(row, events, after)
        if follow:
            await while_read(_follow(out, store, row, first, full=full))
        code = 0
        async with aclosing(read_on(store, row, first, None, inline=full or out.json)) as found:
            async for item in found:
                code |= put(out, item, full=full)
    return code


async def _follow(out: Output, store: Store, row: Row, after: int, *, full: bool) -> None:
    while True:
        try:
            async with aclosing(store.follow(row.key, after=after, log=row.log)) as following:
                async for item in following:
                    if not isinstance(item, CaughtUp):
                        put(out, checked(row.key, item), full=full)
                        after = item.seq
        except LogDamaged as error:
            put(out, error, full=full)
            after = max(error.seq, after + 1)


async def while_read(work: Coroutine[None, None, None]) -> None:
    """Run `work` until it ends or the reader of the output pipe exits (`BrokenPipeError`).

    Otherwise `holdfast tail … | head -1` would run until the next event.
    """
    loop = asyncio.get_running_loop()
    task, left = loop.create_task(work), loop.create_future()
    pipe = _pipe()
    if pipe is not None:
        loop.add_reader(pipe, left.cancel)
    try:
        await asyncio.wait([task, left], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise BrokenPipeError
    finally:
        if pipe is not None:
            loop.remove_reader(pipe)
        left.cancel()
        await ended(task)
    task.result()


def _pipe() -> int | None:
    # The write end of a pipe becomes readable only when the other end is closed.
    try:
        number = sys.stdout.fileno()
    except OSError:
        return None
    piped = sys.platform != "win32" and stat.S_ISFIFO(os.fstat(number).st_mode)
    return number if piped else None

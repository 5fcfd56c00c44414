"""`holdfast rewind`: rewind the conversation of a thread to an earlier event."""

from __future__ import annotations

from ..log.events import Key
from ..sessions.changes import check_live
from ..sessions.rewind import rewind as rewind_log
from ..stores.pages import existing_row
from .options import DEFAULTS, By, Common, Session, Thread


async def rewind(
    session: Session,
    /,
    *,
    to: int,
    thread: Thread = "main",
    actor: str | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Rewind a conversation to an earlier event.

    ```
    holdfast rewind customer-42 --to 17
    holdfast rewind customer-42 --to 0
    ```

    Restores the conversation as it was right after that event; 0 clears it. Nothing is deleted:
    `holdfast show` lists the events with their numbers, and you can rewind to any of them. Queued
    messages after that event are dropped. Fails while a run or a pending item is open: use `abort`
    first. With `--json`, prints one object: `{"session": …, "thread": …, "to": …, "seq": …}`.

    :param to: Number of the event to rewind to.
    :param actor: Name of the actor. Default: cli:USER, with your user name.
    """
    async with common.open() as store:
        check_live(await existing_row(store, Key(common.tenant, session, "main")), "rewind")
        key = Key(common.tenant, session, thread)
        seq = await rewind_log(store, key, to, actor=By(actor=actor).who)
    about = {"session": session, "thread": thread, "to": to, "seq": seq}
    common.output().show(about, f"rewound to event {to} (event {seq})")

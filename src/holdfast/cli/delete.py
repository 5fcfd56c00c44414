"""`holdfast delete` and `purge`: remove data permanently."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..harness import LocalSandbox
from ..log.catalog import Row
from ..log.events import Key, Scope
from ..sessions import Sessions
from ..sessions.changes import check_held
from ..stores.port import Store
from ..values.records import Receipt
from .error_report import UsageError
from .options import DEFAULTS, Common, Session, Yes, confirmed
from .render import number, receipt_text
from .verify import target_of, threads_of


def delete(
    session: Session,
    /,
    *,
    thread: str | None = None,
    yes: Yes = False,
    common: Common = DEFAULTS,
) -> int:
    """Delete a session or one of its threads permanently.

    ```
    holdfast delete customer-42 --yes
    ```

    Threads, attachments and names are deleted with the session. Asks for confirmation; without a
    terminal, `--yes` is required. A session under legal hold is not deleted. Prints what was
    removed, and what remains until `holdfast purge`. With `--json`, prints one JSON object.

    :param thread: Only this thread. Default: the whole session.
    """
    out = common.output()
    target = target_of(session, thread, common)
    assert target is not None
    if not yes and not confirmed("delete", _question(asyncio.run(_look(target, common)), target)):
        out.remark("nothing was deleted")
        return 1
    receipt = asyncio.run(_delete(target, common))
    out.show(receipt, receipt_text(receipt))
    return 0


async def _look(target: Scope | Key, common: Common) -> list[Row]:
    async with common.open() as store:
        rows = await threads_of(store, target)
    for row in rows if isinstance(target, Scope) else ():
        check_held(row)
    return rows


async def _delete(target: Scope | Key, common: Common) -> Receipt:
    async with common.open() as store:
        thread = target.thread if isinstance(target, Key) else None
        receipt = await Sessions(store, tenant=target.tenant).delete(target.session, thread)
        if not any(receipt.removed.values()):
            await threads_of(store, target)
    return receipt


def _question(rows: list[Row], target: Scope | Key) -> str:
    events = number(sum(row.head - (row.parent.at if row.parent else 0) for row in rows), "event")
    session = f"session {target.session!r}"
    if isinstance(target, Key):
        return f"Delete thread {target.thread!r} of {session} ({events}) permanently?"
    return f"Delete {session} ({number(len(rows), 'thread')}, {events}) permanently?"


async def purge(
    *,
    sandbox: Path | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Remove deleted data from the files of a store.

    ```
    holdfast purge
    holdfast purge --sandbox sandboxes
    ```

    Deleted data can remain in free pages and logs; this removes it, for all tenants. Run it while
    no other process uses the store; otherwise it prints what remains. `--sandbox` is the folder
    that was passed to `holdfast serve`. With `--json`, prints one JSON object.

    :param sandbox: Also remove the folders of deleted sessions in this sandbox folder.
    """
    out = common.output()
    if sandbox is not None and not await asyncio.to_thread(sandbox.is_dir):
        raise UsageError(f"--sandbox: folder {str(sandbox)!r} does not exist")
    async with common.open() as store:
        with out.working("purging"):
            receipt = await store.purge()
            if sandbox is not None:
                receipt = await _sweep_folders(store, sandbox, receipt)
    out.show(receipt, receipt_text(receipt))


async def _sweep_folders(store: Store, sandbox: Path, receipt: Receipt) -> Receipt:
    async def is_gone(scope: Scope, location: str) -> bool | None:
        if location != store.info().location:
            return None
        return await store.row(Key(scope.tenant, scope.session, "main")) is None

    swept = await LocalSandbox(sandbox).sweep(is_gone)
    removed = {**receipt.removed, **({"folders": swept.folders} if swept.folders else {})}
    return Receipt(removed=removed, remains=(*receipt.remains, *swept.remains))

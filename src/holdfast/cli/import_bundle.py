"""`holdfast import`: a session out of a file."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ..bundle.conversion_loss import LossReport
from ..bundle.read import Prepared, import_prepared, prepare_import
from ..errors import SessionExists
from ..log.catalog import Query
from ..stores import connect
from ..stores.creation import StoreCreation
from ..stores.memory import MemoryStore
from ..stores.port import Store
from ..values.records import Imported
from .bundlefiles import Format, read_file, tell_loss, told_format
from .export import Counter
from .failure import UsageError
from .options import EVERYWHERE, Common, look_into
from .output import Output, plain
from .render import number

TRIED = 256 << 20  # bytes of events up to which a dry run tries everything, in memory


async def import_(
    file: Annotated[Path, Parameter(help="The file: a bundle, Harn's, or a transcript.")],
    /,
    *,
    as_: Annotated[
        str | None, Parameter(name="--as", help="The id of the session. Default: its own.")
    ] = None,
    read_only: Annotated[
        bool, Parameter(help="To be read, never to be continued: it takes no more events.")
    ] = False,
    accept_redacted: Annotated[
        bool, Parameter(help="Continue with texts that were replaced, or without attachments.")
    ] = False,
    format: Annotated[
        Literal["auto", "holdfast", "harn", "claude"],
        Parameter(help="The format; by default it is told by what is in the file."),
    ] = "auto",
    dry_run: Annotated[bool, Parameter(help="Check everything; write nothing.")] = False,
    create: Annotated[bool, Parameter(help="Make the store if there is none.")] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Bring a session from a file into the store, under its own id or another.

    ```
    holdfast import customer-42.zip
    holdfast import customer-42.zip --as copy-of-42 --tenant test
    ```

    The file is checked whole before anything is written. The same file again is the same
    session. A session that was exported to be continued goes on with `holdfast resume`. With
    `--json`: one document.
    """
    out = common.output()
    known: Format | None = None if format == "auto" else format
    store: Store | None = None
    async with AsyncExitStack() as stack:
        told = stack.enter_context(out.working(f"importing {plain(file.name)}"))
        if not create or dry_run:
            there = look_into(common.url) if create else common.open()
            store = await stack.enter_async_context(there)
        path, found = await told_format(file, known)
        # Ours is checked by `prepare_import`, once.
        read = None if found == "holdfast" and not dry_run else await read_file(path, found)
        ready = await prepare_import(
            path if read is None else read.bundle,
            session=as_,
            tenant=common.tenant,
            purpose="read" if read_only else "continue",
            accept_redacted=accept_redacted,
            allow_secrets=None if read is None else True,
        )
        if store is not None and dry_run:
            await _check_free(store, ready)
            store = MemoryStore()
        if store is None:  # made last: not for what cannot be imported
            await stack.enter_async_context(StoreCreation(common.url, folders=True))
            store = await stack.enter_async_context(connect(common.url))
        done = await import_prepared(store, ready, progress=Counter(told))
    loss = read.loss if read is not None else None
    _tell(out, done, found, loss, dry_run)
    tell_loss(out, loss)
    return 0


import_.__name__ = "import"


async def _check_free(store: Store, ready: Prepared) -> None:
    """Refuse a dry run of what is too large to be tried, or has the id of another session."""
    document, scope = ready.bundle.document, ready.scope
    if sum(part.size for part in document.parts) > TRIED:
        raise UsageError(
            f"a dry run takes {TRIED >> 20} MiB at most: `holdfast bundle validate` checks more"
        )
    page = await store.find(Query(tenant=scope.tenant, session=scope.session), limit=1)
    origin = f"bundle:{document.bundle_id}"
    mine = [name for name in await store.claims(scope) if name.startswith(origin)]
    if page.items and not mine:
        raise SessionExists(tenant=scope.tenant, session=scope.session, thread=page.items[0].thread)


def _tell(
    out: Output, done: Imported, format: Format, loss: LossReport | None, dry_run: bool
) -> None:
    if out.json:
        out.emit(
            {
                "session": done.session,
                "tenant": done.tenant,
                "fresh": done.fresh,
                "purpose": done.purpose,
                "liveness": done.liveness,
                "threads": done.threads,
                "events": done.events,
                "blobs": done.blobs,
                "held": done.held,
                "bundle_id": done.bundle_id,
                "format": format,
                "loss": loss.losses if loss is not None else [],
                "dry_run": dry_run,
            }
        )
        return
    what = [number(len(done.threads), "thread"), number(done.events, "event")]
    if done.blobs:
        what.append(number(done.blobs, "attachment"))
    status = "would be imported" if dry_run else "imported" if done.fresh else "was there"
    out.print(plain(f"{done.session}  {status}  {', '.join(what)}, {done.liveness}"))
    for name in done.held:
        out.print(plain(f"    another session holds the name {name}"))
    if done.purpose == "continue" and done.liveness == "continuable" and not dry_run:
        out.remark(plain(f"it goes on with: holdfast resume {done.session} --agent MODULE:NAME"))

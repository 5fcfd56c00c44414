"""`holdfast import`: read a session from a file into the store."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..bundle.read import Prepared, import_prepared, prepare_import
from ..errors import SessionExists
from ..log.catalog import Query
from ..stores.memory import MemoryStore
from ..stores.port import Store
from ..values.records import Imported
from .bundle_files import Format, detect_format, loss_json, read_file, show_loss
from .error_report import UsageError
from .export import event_counter
from .options import DEFAULTS, Common, Create, DryRun, create_store, open_for_dry_run, option_group
from .output import Output, plain
from .render import number

TRIED = 256 << 20  # maximum size of the events in a dry run, which imports them into memory


@option_group
class ImportOptions:
    """How a session is imported.

    :param as_: Id of the new session. Default: the original id.
    :param read_only: Import for reading only: the session accepts no more events.
    :param accept_redacted: Continue the session even if content is redacted or missing.
    :param format: Format of the file; `auto` detects it.
    """

    as_: Annotated[str | None, Parameter(name="--as")] = None
    read_only: bool = False
    accept_redacted: bool = False
    format: Literal["auto", "holdfast", "harn", "claude"] = "auto"
    dry_run: DryRun = False
    create: Create = False


DEFAULT = ImportOptions()


async def import_(
    file: Path,
    /,
    *,
    how: ImportOptions = DEFAULT,
    common: Common = DEFAULTS,
) -> None:
    """Import a session from a file.

    ```
    holdfast import customer-42.zip
    holdfast import customer-42.zip --as copy-of-42 --tenant test
    ```

    The file is checked completely before anything is written. Importing the same file again changes
    nothing. `holdfast resume` continues a session that was exported with `--purpose copy` or
    `move`. With `--json`, prints one JSON object.

    :param file: File: a bundle, a Harn bundle or a Claude Code transcript.
    """
    out = common.output()
    known: Format | None = None if how.format == "auto" else how.format
    async with AsyncExitStack() as stack:
        show_progress = stack.enter_context(out.working(f"importing {plain(file.name)}"))
        store: Store | None = None
        if not how.create or how.dry_run:
            there = open_for_dry_run(common.url) if how.create else common.open()
            store = await stack.enter_async_context(there)
        path, format = await detect_format(file, known)
        # `prepare_import` reads and checks Holdfast's format, so it is read here only for dry runs.
        read = None if format == "holdfast" and not how.dry_run else await read_file(path, format)
        ready = await prepare_import(
            path if read is None else read.bundle,
            session=how.as_,
            tenant=common.tenant,
            purpose="read" if how.read_only else "continue",
            accept_redacted=how.accept_redacted,
            allow_secrets=None if read is None else True,
        )
        if store is not None and how.dry_run:
            await _check_free(store, ready)
            store = MemoryStore()
        if store is None:  # created last, so that a file that cannot be imported creates no store
            store = await stack.enter_async_context(create_store(common.url, folders=True))
        done = await import_prepared(store, ready, progress=event_counter(show_progress))
    loss = read.loss if read is not None else None
    more = {"format": format, "loss": loss_json(loss), "dry_run": how.dry_run}
    _show(out, done, more)
    show_loss(out, loss)


async def _check_free(store: Store, ready: Prepared) -> None:
    """Raise an error if the file is too large for a dry run, or if another session has the id."""
    document, scope = ready.bundle.document, ready.scope
    if sum(part.size for part in document.parts) > TRIED:
        raise UsageError(
            f"the file is too large for a dry run (limit {TRIED >> 20} MiB); check it with "
            "`holdfast bundle validate`"
        )
    page = await store.find(Query(tenant=scope.tenant, session=scope.session), limit=1)
    origin = f"bundle:{document.bundle_id}"
    mine = [name for name in await store.claims(scope) if name.startswith(origin)]
    if page.items and not mine:
        raise SessionExists(tenant=scope.tenant, session=scope.session, thread=page.items[0].thread)


FIELDS = ("session", "tenant", "fresh", "purpose", "liveness", "threads", "events", "blobs", "held")


def _show(out: Output, done: Imported, more: dict[str, Any]) -> None:
    dry_run = more["dry_run"]
    what = [number(len(done.threads), "thread"), number(done.events, "event")]
    if done.blobs:
        what.append(number(done.blobs, "attachment"))
    what.append("read-only" if done.purpose == "read" else done.liveness)
    status = "would be imported" if dry_run else "imported" if done.fresh else "already imported"
    lines = [f"{done.session}  {status}  {', '.join(what)}"]
    lines += [f"    name {name} belongs to another session" for name in done.held]
    found = {name: getattr(done, name) for name in FIELDS}
    out.show({**found, "bundle_id": done.bundle_id, **more}, lines)
    continues = done.purpose == "continue" and done.liveness == "continuable"
    if continues and not dry_run:
        out.note(f"continue it with: holdfast resume {done.session} --agent MODULE:NAME")

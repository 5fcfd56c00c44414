"""`holdfast copy`: copy or move sessions from one store to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter
from msgspec import Struct
from rich.text import Text

from ..errors import HoldfastError, StoreUnavailable
from ..log.catalog import Query
from ..log.events import Scope
from ..stores import connect
from ..stores.copy import ThreadCopy, copy_session, sessions_of, undo_move
from ..stores.creation import StoreCreation
from ..stores.port import Store
from .error_report import UsageError, error_json
from .options import DEFAULTS, Common, DryRun, open_for_dry_run, open_store, option_group
from .output import Output, plain
from .render import number

STYLES = {"conflict": "yellow", "failed": "red", "same": "dim"}


@option_group
class CopyOptions:
    """The source and the target of a copy, and whether it moves the sessions.

    :param source: Store to copy from. Default: --store.
    :param target: Store to copy to; created if it does not exist.
    :param to_tenant: Tenant in that store. Default: the same tenant.
    :param move: Move: the source accepts no more events of the session.
    :param undo: Undo an unfinished move between the same stores.
    """

    source: Annotated[str | None, Parameter(name="--from")] = None
    target: Annotated[str, Parameter(name="--to")]
    to_tenant: str | None = None
    move: bool = False
    undo: bool = False
    dry_run: DryRun = False

    def open_target(self) -> AbstractAsyncContextManager[Store]:
        """Open the target store, and create it if this command writes to it."""
        if self.dry_run:
            return open_for_dry_run(self.target)
        return open_store(self.target) if self.undo else connect(self.target)


async def copy(
    sessions: list[str] = [],  # noqa: B006 - cyclopts makes it anew
    /,
    *,
    how: CopyOptions,
    common: Common = DEFAULTS,
) -> int:
    """Copy or move sessions to another store.

    ```
    holdfast copy --from sqlite:shop.db --to postgresql://db/shop
    ```

    Events are checked by hash. Existing events are kept, so an interrupted copy is completed by
    running it again; different events are a conflict and are never overwritten. In a copy, pending
    approvals and runs are closed. A move keeps them and seals the source. The exit code is 1 after
    a conflict or a failure. With `--json`, prints one line per session.

    :param sessions: Session ids. Default: all sessions of the tenant.
    """
    if how.undo and (how.move or how.dry_run or not sessions):
        raise UsageError("--undo requires SESSIONS and cannot be combined with --move or --dry-run")
    out = common.output()
    creation = StoreCreation(how.target)
    async with (
        open_store(how.source or common.url) as here,
        creation,
        how.open_target() as there,
    ):
        if how.undo:
            work = partial(_undo, here, there, tenant=how.to_tenant)
        else:
            work = partial(
                _copy, here, there, tenant=how.to_tenant, move=how.move, dry_run=how.dry_run
            )
        total = len(sessions) or await _count(here, common.tenant)
        with out.counting("moving" if how.move else "copying", total) as bar:
            results = await _each(_scopes(here, common.tenant, sessions), work, out, bar)
        # A new target store that received no session is removed.
        creation.drop = results["failed"] > 0
    if not out.json:
        _sum_up(out, results, dry_run=how.dry_run)
    return int(results["conflict"] + results["failed"] > 0)


class CopiedSession(Struct, frozen=True, kw_only=True):
    """The result of copying one session, as printed with `--json`."""

    session: str
    status: str
    threads: tuple[ThreadCopy, ...] = ()
    blobs: int = 0
    claims: int = 0
    held: tuple[str, ...] = ()
    reopened: int = 0
    error: dict[str, Any] | None = None


Work: TypeAlias = Callable[[Scope], Awaitable[CopiedSession]]


async def _each(
    scopes: AsyncGenerator[Scope, None], work: Work, out: Output, bar: Callable[[str], None]
) -> Counter[str]:
    """Process each session, show its result, and count the results by status."""
    results: Counter[str] = Counter()
    async with aclosing(scopes):
        async for scope in scopes:
            bar(scope.session)
            done = await _attempt(work, scope)
            results[done.status] += 1
            out.show(done, _lines(done))
    return results


async def _attempt(work: Work, scope: Scope) -> CopiedSession:
    """Process one session. If it fails, return the error as its result, so that the other sessions
    are still processed; but raise `StoreUnavailable`.
    """
    try:
        return await work(scope)
    except StoreUnavailable:
        raise
    except HoldfastError as error:
        return CopiedSession(session=scope.session, status="failed", error=error_json(error))


async def _copy(here: Store, there: Store, scope: Scope, **how: Any) -> CopiedSession:
    done = await copy_session(here, there, scope, **how)
    names = ("status", "threads", "blobs", "claims", "held")
    return CopiedSession(session=scope.session, **{name: getattr(done, name) for name in names})


async def _undo(here: Store, there: Store, scope: Scope, *, tenant: str | None) -> CopiedSession:
    reopened = await undo_move(here, there, scope, tenant=tenant)
    status = "reopened" if reopened else "same"
    return CopiedSession(session=scope.session, status=status, reopened=reopened)


async def _scopes(store: Store, tenant: str, names: list[str]) -> AsyncGenerator[Scope, None]:
    for name in names:
        yield Scope(tenant, name)
    if not names:
        async with aclosing(sessions_of(store, tenant)) as scopes:
            async for scope in scopes:
                yield scope


async def _count(store: Store, tenant: str) -> int:
    page = await store.find(Query(tenant=tenant, total=True), limit=1)
    return page.total or 0


def _lines(done: CopiedSession) -> Iterator[str | Text]:
    status = (done.status, STYLES.get(done.status, "green"))
    yield Text.assemble((plain(done.session), "bold"), "  ", status, "  ", plain(_what(done)))
    for thread in done.threads:
        if thread.status == "conflict":
            yield f"    thread {thread.thread}: {thread.detail}"
    for name in done.held:
        yield f"    name {name} belongs to another session of the target"


def _what(done: CopiedSession) -> str:
    if done.error is not None:
        return str(done.error["message"])
    if done.reopened:
        return number(done.reopened, "thread")
    counts = {
        "thread": len(done.threads),
        "event": sum(thread.events for thread in done.threads),
        "attachment": done.blobs,
        "name": done.claims,
    }
    what = [number(count, noun) for noun, count in counts.items() if count]
    if closed := sum(thread.closed for thread in done.threads):
        what.append(f"closed with {number(closed, 'event')}")
    return ", ".join(what)


def _sum_up(out: Output, results: Counter[str], *, dry_run: bool) -> None:
    if not results:
        out.remark("no sessions")
        return
    counts = ", ".join(f"{count:,} {status}" for status, count in results.items())
    out.print(f"{number(results.total(), 'session')}: {counts}{' (dry run)' if dry_run else ''}")
    if results["moved"] and not dry_run:
        out.remark(
            "moved sessions accept no more events in the old store; delete them there with: "
            "holdfast delete SESSION --store URL"
        )

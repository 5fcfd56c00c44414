"""`holdfast copy`: copy or move sessions from one store to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
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
from .options import EVERYWHERE, Common, DryRun, look_into, open_store
from .output import Output, plain
from .render import number

STYLES = {"conflict": "yellow", "failed": "red", "same": "dim"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CopyOptions:
    """Which stores a copy uses, and what it does there."""

    source: Annotated[
        str | None, Parameter(name="--from", help="Store to copy from. Default: --store.")
    ] = None
    target: Annotated[
        str, Parameter(name="--to", help="Store to copy to; created if it does not exist.")
    ]
    to_tenant: Annotated[
        str | None, Parameter(help="Tenant in that store. Default: the same tenant.")
    ] = None
    move: Annotated[
        bool, Parameter(help="Move: the source accepts no more events of the session.")
    ] = False
    undo: Annotated[bool, Parameter(help="Undo an unfinished move between the same stores.")] = (
        False
    )
    dry_run: DryRun = False

    def open_target(self) -> AbstractAsyncContextManager[Store]:
        """Open the target store, and create it if this command writes to it."""
        if self.dry_run:
            return look_into(self.target)
        return open_store(self.target) if self.undo else connect(self.target)


async def copy(
    sessions: Annotated[
        list[str], Parameter(help="Session ids. Default: all sessions of the tenant.")
    ] = [],  # noqa: B006 - cyclopts makes it anew
    /,
    *,
    how: CopyOptions,
    common: Common = EVERYWHERE,
) -> int:
    """Copy or move sessions to another store.

    ```
    holdfast copy --from sqlite:shop.db --to postgresql://db/shop
    ```

    Events are checked by hash. Existing events are kept, so an interrupted copy is completed by
    running it again; different events are a conflict and are never overwritten. In a copy, pending
    approvals and runs are closed. A move keeps them and seals the source. The exit code is 1 after
    a conflict or a failure. With `--json`: one line per session.
    """
    if how.undo and (how.move or how.dry_run or not sessions):
        raise UsageError("--undo needs SESSIONS, and works with neither --move nor --dry-run")
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
            told = await _each(_scopes(here, common.tenant, sessions), work, out, bar)
        creation.drop = told["failed"] > 0  # removes a new target store that got no session
    if not out.json:
        _sum_up(out, told, dry_run=how.dry_run)
    return int(told["conflict"] + told["failed"] > 0)


class CopiedSession(Struct, frozen=True, kw_only=True):
    """The result for one session, as it is written in JSON."""

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
    told: Counter[str] = Counter()
    async with aclosing(scopes):
        async for scope in scopes:
            bar(scope.session)
            done = await _attempt(work, scope)
            told[done.status] += 1
            out.show(done, _lines(done))
    return told


async def _attempt(work: Work, scope: Scope) -> CopiedSession:
    """Process one session. A failure does not stop the others, unless a store is unavailable."""
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


def _sum_up(out: Output, told: Counter[str], *, dry_run: bool) -> None:
    if not told:
        out.remark("no sessions")
        return
    counts = ", ".join(f"{count:,} {status}" for status, count in told.items())
    out.print(f"{number(told.total(), 'session')}: {counts}{' (dry run)' if dry_run else ''}")
    if told["moved"] and not dry_run:
        out.remark(
            "moved sessions accept no more events in the old store; delete them there with: "
            "holdfast delete SESSION --store URL"
        )

"""`holdfast copy`: sessions from one store to another, and moving them there."""

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
from .failure import UsageError, told_of
from .options import EVERYWHERE, Common, look_into, open_store
from .output import Output, plain
from .render import number

STYLES = {"conflict": "yellow", "failed": "red", "same": "dim"}


async def copy(
    sessions: Annotated[
        list[str], Parameter(help="The sessions. Default: all of the tenant.")
    ] = [],  # noqa: B006 - cyclopts makes it anew
    /,
    *,
    source: Annotated[
        str | None, Parameter(name="--from", help="The store they are in. Default: --store.")
    ] = None,
    target: Annotated[
        str, Parameter(name="--to", help="The store to copy them to; made if there is none.")
    ],
    to_tenant: Annotated[
        str | None, Parameter(help="The tenant to copy them into. Default: the same.")
    ] = None,
    move: Annotated[
        bool, Parameter(help="Go on in the other store: here the session takes no more events.")
    ] = False,
    undo: Annotated[
        bool, Parameter(help="Take a move back that was not finished; names the same stores.")
    ] = False,
    dry_run: Annotated[bool, Parameter(help="Say what would be done; write nothing.")] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Copy sessions to another store, whole and checked by hash, or move them there.

    ```
    holdfast copy --from sqlite:shop.db --to postgresql://db/shop
    ```

    What is there already is left alone, so a copy that was cut is finished by running it
    again; what differs there is a conflict and never overwritten. In a copy nothing stays
    open: approvals and runs are ended in it. A move takes them along and seals the source.
    The exit code is 1 after a conflict or a failure. With `--json`: one line a session.
    """
    if undo and (move or dry_run or not sessions):
        raise UsageError("--undo takes SESSIONs, and neither --move nor --dry-run")
    out = common.output()
    creation = StoreCreation(target)
    async with (
        open_store(source or common.url) as here,
        creation,
        _target(target, undo, dry_run) as there,
    ):
        if undo:
            work = partial(_undo, here, there, tenant=to_tenant)
        else:
            work = partial(_copy, here, there, tenant=to_tenant, move=move, dry_run=dry_run)
        total = len(sessions) or await _count(here, common.tenant)
        with out.counting("moving" if move else "copying", total) as bar:
            told = await _each(_scopes(here, common.tenant, sessions), work, out, bar)
        creation.drop = told["failed"] > 0  # of a target that nothing came into, nothing stays
    if not out.json:
        _sum_up(out, told, dry_run=dry_run)
    return int(told["conflict"] + told["failed"] > 0)


def _target(url: str, undo: bool, dry_run: bool) -> AbstractAsyncContextManager[Store]:
    """The store to copy to: made if there is none, but not by what writes nothing there."""
    if dry_run:
        return look_into(url)
    return open_store(url) if undo else connect(url)


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of one session, as it is told."""

    session: str
    status: str
    threads: tuple[ThreadCopy, ...] = ()
    blobs: int = 0
    claims: int = 0
    held: tuple[str, ...] = ()
    reopened: int = 0
    error: dict[str, Any] | None = None


Work: TypeAlias = Callable[[Scope], Awaitable[Outcome]]


async def _each(
    scopes: AsyncGenerator[Scope, None], work: Work, out: Output, bar: Callable[[str], None]
) -> Counter[str]:
    """Do it with each session, and tell what became of it; how often each came."""
    told: Counter[str] = Counter()
    async with aclosing(scopes):
        async for scope in scopes:
            bar(scope.session)
            outcome = await _attempt(work, scope)
            told[outcome.status] += 1
            out.emit(outcome) if out.json else out.print(*_lines(outcome))
    return told


async def _attempt(work: Work, scope: Scope) -> Outcome:
    """Do it. One session that cannot be copied does not keep the others back; a store that
    is away would."""
    try:
        return await work(scope)
    except StoreUnavailable:
        raise
    except HoldfastError as error:
        return Outcome(session=scope.session, status="failed", error=told_of(error))


async def _copy(here: Store, there: Store, scope: Scope, **how: Any) -> Outcome:
    done = await copy_session(here, there, scope, **how)
    return Outcome(
        session=scope.session,
        status=done.status,
        threads=done.threads,
        blobs=done.blobs,
        claims=done.claims,
        held=done.held,
    )


async def _undo(here: Store, there: Store, scope: Scope, *, tenant: str | None) -> Outcome:
    reopened = await undo_move(here, there, scope, tenant=tenant)
    return Outcome(
        session=scope.session, status="reopened" if reopened else "same", reopened=reopened
    )


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


def _lines(outcome: Outcome) -> Iterator[Text]:
    status = (outcome.status, STYLES.get(outcome.status, "green"))
    yield Text.assemble((plain(outcome.session), "bold"), "  ", status, "  ", _what(outcome))
    for thread in outcome.threads:
        if thread.status == "conflict":
            yield Text(plain(f"    thread {thread.thread}: {thread.detail}"))
    for name in outcome.held:
        yield Text(plain(f"    another session of the target holds the name {name}"))


def _what(outcome: Outcome) -> str:
    if outcome.error is not None:
        return plain(outcome.error["message"])
    if outcome.reopened:
        return number(outcome.reopened, "thread")
    counts = {
        "thread": len(outcome.threads),
        "event": sum(thread.events for thread in outcome.threads),
        "attachment": outcome.blobs,
        "name": outcome.claims,
    }
    what = [number(count, noun) for noun, count in counts.items() if count]
    if closed := sum(thread.closed for thread in outcome.threads):
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
            "what was moved takes no more events in its old store, and can be deleted there: "
            "holdfast delete SESSION --store URL"
        )

"""`holdfast sweep`: suspend what is stale, expire what was stale for long, and delete what
expired where a retention policy says so; once, or every so often."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter, validators
from rich.text import Text

from ..cancellation import cancellable
from ..errors import HoldfastError
from ..sessions import Purged, Retention, Sessions, Swept
from ..values.records import Receipt
from . import failure
from .failure import UsageError
from .options import EVERYWHERE, Common, seconds
from .output import Output, plain
from .render import moment, number, receipt_text
from .session import BY
from .tail import while_read
from .upkeep import Yes, agreed, check_can_ask


def sweep(
    *,
    ttl: Annotated[
        str | None,
        Parameter(help="Stale is what was idle for longer than this, whatever it says itself."),
    ] = None,
    limit: Annotated[
        int,
        Parameter(help="How many sessions at most.", validator=validators.Number(gte=1)),
    ] = 10_000,
    retention: Annotated[
        str | None,
        Parameter(help="Delete expired sessions that were last active longer ago than this."),
    ] = None,
    grace: Annotated[
        str | None,
        Parameter(help="But none that expired less than this ago. Default: 7d."),
    ] = None,
    dry_run: Annotated[bool, Parameter(help="Say what would be done; change nothing.")] = False,
    every: Annotated[
        str | None, Parameter(help="Sweep again and again, about so often, until Ctrl-C.")
    ] = None,
    yes: Yes = False,
    common: Common = EVERYWHERE,
) -> int:
    """Suspend sessions that are stale, and expire those that were suspended for their time.

    ```
    holdfast sweep --ttl 2h --dry-run
    holdfast sweep --retention 90d --yes --every 5min
    ```

    Never one that is in use. Durations are such as 90s, 30min, 2h or 3d. Without `--retention`
    nothing is deleted; with it, asks before it deletes. With `--json`: one document a sweep.
    """
    out = common.output()
    plan = _plan(ttl, limit, retention, grace, dry_run)
    if every is not None:
        pause = seconds("--every", every)
        if pause < 1:
            raise UsageError("--every takes at least 1s")
        if plan.deletes and not yes:
            raise UsageError("with --every nobody is asked; add --yes to delete by --retention")
        asyncio.run(while_read(_for_ever(out, plan, pause, common)))
    if plan.deletes and not yes:
        check_can_ask("sweep --retention")
        return _sweep_and_ask(out, plan, common)
    _tell(out, plan, *asyncio.run(_once(out, plan, common)))
    return 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one sweep is to do."""

    ttl: int | None
    limit: int
    retention: Retention | None
    dry_run: bool

    @property
    def deletes(self) -> bool:
        return self.retention is not None and not self.dry_run


def _plan(
    ttl: str | None, limit: int, retention: str | None, grace: str | None, dry_run: bool
) -> Plan:
    if grace is not None and retention is None:
        raise UsageError("--grace needs --retention")
    policy = None
    if retention is not None:
        policy = Retention(keep=seconds("--retention", retention))
        if grace is not None:
            policy = Retention(keep=policy.keep, grace=seconds("--grace", grace))
    age = None if ttl is None else seconds("--ttl", ttl)
    return Plan(ttl=age, limit=limit, retention=policy, dry_run=dry_run)


def _sweep_and_ask(out: Output, plan: Plan, common: Common) -> int:
    swept, would = asyncio.run(_once(out, plan, common, ask=True))
    assert would is not None
    count = len(would.deleted)
    if not count:
        _tell(out, plan, swept, would)
        return 0
    out.remarks.print(*_purged_lines(would), sep="\n", soft_wrap=True)
    if not agreed("sweep", f"Delete {number(count, 'expired session')} for ever?"):
        _tell(out, plan, swept, would)
        out.remark("nothing was deleted")
        return 1
    # No more than was asked about, though time has passed.
    _tell(out, plan, swept, asyncio.run(_purge(plan, common, limit=count)))
    return 0


async def _once(
    out: Output, plan: Plan, common: Common, *, ask: bool = False
) -> tuple[Swept, Purged | None]:
    async with common.open() as store:
        sessions = Sessions(store, tenant=common.tenant, actor=BY.who)
        with out.working("sweeping"):
            swept = await sessions.sweep_stale(plan.ttl, dry_run=plan.dry_run, limit=plan.limit)
            if plan.retention is None:
                return swept, None
            return swept, await sessions.purge_expired(
                plan.retention, dry_run=ask or plan.dry_run, limit=plan.limit
            )


async def _purge(plan: Plan, common: Common, *, limit: int) -> Purged:
    assert plan.retention is not None
    async with common.open() as store:
        sessions = Sessions(store, tenant=common.tenant)
        return await sessions.purge_expired(plan.retention, limit=limit)


async def _for_ever(out: Output, plan: Plan, pause: int, common: Common) -> None:
    while True:
        try:
            with cancellable():
                _tell(out, plan, *await _once(out, plan, common))
        except HoldfastError as error:
            if not error.retryable:
                raise
            failure.report(error, json=out.json)
        # Spread, so that the sweepers of many machines do not all come at once.
        await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311


def _tell(out: Output, plan: Plan, swept: Swept, purged: Purged | None) -> None:
    if out.json:
        did = {"suspended": swept.suspended, "expired": swept.expired, "skipped": swept.skipped}
        out.emit({"dry_run": plan.dry_run, **did, "purged": purged})
        return
    verbs = ("to suspend", "to expire") if plan.dry_run else ("suspended", "expired")
    for verb, ids in zip(verbs, (swept.suspended, swept.expired), strict=True):
        out.print(*(_line(verb, id) for id in ids))
    if purged is not None:
        out.print(*_purged_lines(purged))
    out.print(_sum(plan, swept, purged))
    if purged is not None and purged.removed:
        out.print(*receipt_text(Receipt(removed=purged.removed, remains=tuple(purged.remains))))
    if len(swept.suspended) + len(swept.expired) >= plan.limit:
        out.remark("there may be more: run it again, or raise --limit")


def _line(verb: str, session: str, more: str = "") -> Text:
    return Text.assemble((f"{verb:<10}  ", "cyan"), plain(session), plain(f"  {more}".rstrip()))


def _purged_lines(purged: Purged) -> Iterator[Text]:
    verb = "to delete" if purged.dry_run else "deleted"
    yield from (_line(verb, id) for id in purged.deleted)
    for id, until in purged.in_grace.items():
        yield _line("in grace", id, f"until {moment(until)}")
    yield from (_line("kept", id, why) for id, why in purged.kept.items())


def _sum(plan: Plan, swept: Swept, purged: Purged | None) -> str:
    be = "to be " if plan.dry_run else ""
    counts = {f"{be}suspended": len(swept.suspended), f"{be}expired": len(swept.expired)}
    if purged is not None:
        counts["to be deleted" if purged.dry_run else "deleted"] = len(purged.deleted)
    text = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    passed = ", ".join(f"{count:,} {plain(why)}" for why, count in swept.skipped.items())
    return f"{text}{f'; passed over: {passed}' if passed else ''}"

"""`holdfast sweep`: suspend, expire and delete sessions by age, once or periodically."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter, validators
from rich.text import Text

from ..cancellation import cancellable
from ..errors import HoldfastError
from ..sessions import Purged, Retention, Sessions, Swept
from ..values.records import Receipt
from . import error_report
from .error_report import UsageError
from .options import (
    BY,
    DEFAULTS,
    Common,
    DryRun,
    Yes,
    check_can_ask,
    confirmed,
    option_group,
    seconds,
)
from .output import Output, plain
from .render import moment, number, receipt_text
from .tail import while_read


@option_group
class SweepOptions:
    """The limits and rules of one sweep.

    :param ttl: Suspend sessions after this idle time, instead of after their own limit.
    :param limit: Maximum number of sessions to change.
    :param retention: Delete expired sessions whose last activity is longer ago than this.
    :param grace: With --retention: keep sessions that expired within this time. Default: 7d.
    """

    ttl: str | None = None
    limit: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 10_000
    retention: str | None = None
    grace: str | None = None
    dry_run: DryRun = False

    @property
    def age(self) -> int | None:
        return None if self.ttl is None else seconds("--ttl", self.ttl)

    @property
    def deletes(self) -> bool:
        return self.retention is not None and not self.dry_run

    @property
    def policy(self) -> Retention | None:
        if self.retention is None:
            if self.grace is not None:
                raise UsageError("--grace needs --retention")
            return None
        keep = seconds("--retention", self.retention)
        if self.grace is None:
            return Retention(keep=keep)
        return Retention(keep=keep, grace=seconds("--grace", self.grace))


DEFAULT = SweepOptions()


def sweep(
    *,
    how: SweepOptions = DEFAULT,
    every: str | None = None,
    yes: Yes = False,
    common: Common = DEFAULTS,
) -> int:
    """Suspend idle sessions and expire long-suspended ones.

    ```
    holdfast sweep --ttl 2h --dry-run
    holdfast sweep --retention 90d --yes --every 5min
    ```

    Sessions in use are skipped. Durations are written as 90s, 30min, 2h or 3d. With `--retention`,
    old expired sessions are deleted after a confirmation; otherwise nothing is deleted. With
    `--json`, prints one JSON object per sweep.

    :param every: Repeat at about this interval until Ctrl-C.
    """
    out = common.output()
    work = _Sweep(out, how, common)
    if every is not None:
        pause = seconds("--every", every)
        if pause < 1:
            raise UsageError(f"--every must be at least 1s, got {every!r}")
        if how.deletes and not yes:
            raise UsageError("--every cannot ask for confirmation; add --yes to use --retention")
        asyncio.run(while_read(work.repeat(pause)))
    if not how.deletes or yes:
        work.show(*asyncio.run(work.once()))
        return 0
    check_can_ask("sweep --retention")
    swept, would = asyncio.run(work.once(ask=True))
    assert would is not None
    count = len(would.deleted)
    if count:
        out.remark(*_purged_lines(would))
    agreed = count and confirmed("sweep", f"Delete {number(count, 'expired session')} permanently?")
    # At most the confirmed number is deleted, although more sessions may have expired since.
    work.show(swept, asyncio.run(work.purge(limit=count)) if agreed else would)
    if count and not agreed:
        out.remark("nothing was deleted")
    return int(bool(count and not agreed))


class _Sweep:
    """Runs one or several sweeps of a store, and prints their results."""

    def __init__(self, out: Output, how: SweepOptions, common: Common) -> None:
        self._out, self._how, self._common = out, how, common
        self._age, self._policy = how.age, how.policy

    async def once(self, *, ask: bool = False) -> tuple[Swept, Purged | None]:
        how, common = self._how, self._common
        async with common.open() as store:
            sessions = Sessions(store, tenant=common.tenant, actor=BY.who)
            with self._out.working("sweeping"):
                swept = await sessions.sweep_stale(self._age, dry_run=how.dry_run, limit=how.limit)
                if self._policy is None:
                    return swept, None
                return swept, await sessions.purge_expired(
                    self._policy, dry_run=ask or how.dry_run, limit=how.limit
                )

    async def purge(self, *, limit: int) -> Purged:
        assert self._policy is not None
        async with self._common.open() as store:
            sessions = Sessions(store, tenant=self._common.tenant)
            return await sessions.purge_expired(self._policy, limit=limit)

    async def repeat(self, pause: int) -> None:
        while True:
            try:
                with cancellable():
                    self.show(*await self.once())
            except HoldfastError as error:
                if not error.retryable:
                    raise
                error_report.report(error, json=self._out.json)
            # Jitter, so that the sweepers of many machines do not run at the same time.
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311

    def show(self, swept: Swept, purged: Purged | None) -> None:
        out, how = self._out, self._how
        did = {"suspended": swept.suspended, "expired": swept.expired, "skipped": swept.skipped}
        out.show({"dry_run": how.dry_run, **did, "purged": purged}, self._lines(swept, purged))
        if len(swept.suspended) + len(swept.expired) >= how.limit:
            out.note("there may be more: run it again, or raise --limit")

    def _lines(self, swept: Swept, purged: Purged | None) -> Iterator[str | Text]:
        verbs = ("to suspend", "to expire") if self._how.dry_run else ("suspended", "expired")
        for verb, ids in zip(verbs, (swept.suspended, swept.expired), strict=True):
            yield from (_line(verb, id) for id in ids)
        if purged is not None:
            yield from _purged_lines(purged)
        yield _sum(self._how.dry_run, swept, purged)
        if purged is not None and purged.removed:
            yield from receipt_text(Receipt(removed=purged.removed, remains=tuple(purged.remains)))


def _line(verb: str, session: str, more: str = "") -> Text:
    return Text.assemble((f"{verb:<12}  ", "cyan"), plain(session), plain(f"  {more}".rstrip()))


def _purged_lines(purged: Purged) -> Iterator[Text]:
    verb = "to delete" if purged.dry_run else "deleted"
    yield from (_line(verb, id) for id in purged.deleted)
    for id, until in purged.in_grace.items():
        yield _line("grace period", id, f"until {moment(until)}")
    yield from (_line("kept", id, why) for id, why in purged.kept.items())


def _sum(dry_run: bool, swept: Swept, purged: Purged | None) -> str:
    be = "to be " if dry_run else ""
    counts = {f"{be}suspended": len(swept.suspended), f"{be}expired": len(swept.expired)}
    if purged is not None:
        counts["to be deleted" if purged.dry_run else "deleted"] = len(purged.deleted)
    text = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    skipped = ", ".join(f"{count:,} {why}" for why, count in swept.skipped.items())
    return f"{text}{f'; skipped: {skipped}' if skipped else ''}"

"""`holdfast verify`, `anchors` and `repair`: check and repair a store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from ..errors import InvalidValue, SessionNotFound, StoreDamaged
from ..log.catalog import Row
from ..log.events import Key, Scope
from ..stores import measure
from ..stores.anchors import Anchor, held
from ..stores.anchors import anchors as all_anchors
from ..stores.pages import existing_row
from ..stores.port import Damage, Store
from .error_report import UsageError
from .options import DEFAULTS, Common, OneThread
from .output import Output
from .render import damage_text, number

OneSession: TypeAlias = Annotated[
    str | None, Parameter(help="Only this session. Default: the whole store, all tenants.")
]
_anchor = msgspec.json.Decoder(Anchor).decode


async def verify(
    session: OneSession = None,
    /,
    *,
    thread: OneThread = None,
    anchored: Annotated[Path | None, Parameter(name="--anchors")] = None,
    common: Common = DEFAULTS,
) -> int:
    """Check the integrity of a store or of one session.

    ```
    holdfast verify && echo ok
    ```

    Recomputes hashes and indexes, and changes nothing. The events of a log form a hash chain, so
    altered, removed, reordered and inserted events are found. With `--anchors`, the store is
    also checked against hashes that `holdfast anchors` printed earlier. The exit code is 1 if there
    is damage. With `--json`, prints one line per finding.

    :param anchored: Also check against this file, written by `holdfast anchors`; - is stdin.
    """
    kept = [] if anchored is None else await asyncio.to_thread(read_anchors, anchored)
    found = await _check(target_of(session, thread, common), common, kept, repair=False)
    return int(found.damaged > 0)


async def anchors(
    session: str | None = None,
    /,
    *,
    common: Common = DEFAULTS,
) -> None:
    """Print the latest hash of each log, for verify --anchors.

    ```
    holdfast anchors > anchors.jsonl
    holdfast verify --anchors anchors.jsonl
    ```

    Each hash covers all events of a log up to a given event. Store the output where users with
    write access to the store cannot modify it: `verify --anchors` then detects any later change to
    these events. The output is one line of JSON per log.

    :param session: Only this session. Default: all sessions of the tenant.
    """
    out = common.output()
    async with common.open() as store:
        if session is not None:
            await threads_of(store, Scope(common.tenant, session))
        async with aclosing(all_anchors(store, common.tenant, session)) as found:
            async for anchor in found:
                out.emit(anchor)


def read_anchors(path: Path) -> list[Anchor]:
    """Read the anchors in a file. Raises `InvalidValue` if the file is invalid."""
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return [_anchor(line) for line in text.splitlines() if line.strip()]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue(
            field="--anchors",
            problem=f"{str(path)!r} cannot be read ({error})",
            remedy="pass a file that `holdfast anchors` wrote",
        ) from None


async def repair(
    session: OneSession = None, /, *, thread: OneThread = None, common: Common = DEFAULTS
) -> int:
    """Verify a store or a session, and repair damage.

    ```
    holdfast repair customer-42
    ```

    Rows are rebuilt from the log. An unreadable event is replaced by an erased event, so that the
    rest can be used; run `holdfast verify` first to list unreadable events. The exit code is 1 if
    damage remains. With `--json`, prints one line per finding.
    """
    found = await _check(target_of(session, thread, common), common, [], repair=True)
    return int(found.repaired < found.damaged)


def target_of(session: str | None, thread: str | None, common: Common) -> Scope | Key | None:
    """Return the target of a command: a session, a thread, or None for the whole store."""
    if session is None:
        if thread is not None:
            raise UsageError("--thread needs a SESSION")
        return None
    if thread is None:
        return Scope(common.tenant, session)
    return Key(common.tenant, session, thread)


async def _check(
    target: Scope | Key | None, common: Common, kept: Sequence[Anchor], *, repair: bool
) -> _Findings:
    out = common.output()
    found = _Findings(out)
    try:
        async with common.open() as store:
            with out.working("repairing" if repair else "verifying") as progress:
                async with aclosing(_findings(store, target, kept, repair=repair)) as findings:
                    async for damage in findings:
                        found.add(damage)
                        progress(f"({number(found.damaged, 'finding')})")
            if target is not None and not found.damaged and not found.unlinked:
                await threads_of(store, target)
    except StoreDamaged as error:
        found.add(Damage(problem="unreadable", detail=error.problem))
    if not out.json:
        out.print(found.verdict(repair=repair))
    return found


class _Findings:
    """Prints the findings of a verification and counts them."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.damaged = self.repaired = self.unlinked = self._broken = 0
        self._unreadable = False  # the store itself, not only a log

    def add(self, damage: Damage) -> None:
        if damage.problem == "unlinked":
            self.unlinked += 1
        else:
            self.damaged += 1
            self._broken += damage.problem == "broken"
            self._unreadable |= damage.problem == "unreadable" and damage.key is None
        self.repaired += damage.repaired
        self._out.show(damage, damage_text(damage))

    def verdict(self, *, repair: bool) -> str:
        if not self.damaged and self.unlinked:
            events = number(self.unlinked, "event")
            return (
                f"no damage; {events} without a hash link (written by an old version, or edited "
                f"manually)"
            )
        if not self.damaged:
            return "no damage"
        found, left = number(self.damaged, "finding"), self.damaged - self.repaired
        if repair:
            return f"{found}: {self.repaired:,} repaired{f', {left:,} left' if left else ''}"
        if self._unreadable or self._broken == self.damaged:
            return f"{found}; this damage cannot be repaired: restore a backup"
        return f"{found}; `holdfast repair` repairs what can be repaired"


async def _findings(
    store: Store, target: Scope | Key | None, kept: Sequence[Anchor], *, repair: bool
) -> AsyncGenerator[Damage, None]:
    wanted = [anchor for anchor in kept if target in (None, anchor.key, anchor.key.scope)]
    for source in (store.verify(target, repair=repair), held(store, wanted)):
        async with aclosing(source) as findings:
            async for damage in findings:
                yield damage


async def threads_of(store: Store, target: Scope | Key) -> list[Row]:
    """Return the rows of a session or of one thread. Raises `SessionNotFound`."""
    if isinstance(target, Key):
        return [await existing_row(store, target)]
    rows = await measure.threads_of(store, target)
    if not rows:
        raise SessionNotFound(tenant=target.tenant, session=target.session)
    return rows

"""`holdfast verify`, `anchors`, `repair`, `delete` and `purge`: what keeps a store sound."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter
from rich.text import Text

from ..errors import DeletionRefused, InvalidValue, SessionNotFound, StoreDamaged
from ..harness.sandbox import LocalSandbox
from ..log.catalog import Query, Row
from ..log.codec import LIMITS
from ..log.events import Key, Scope
from ..sessions import Sessions
from ..stores.anchors import Anchor, held
from ..stores.anchors import anchors as all_anchors
from ..stores.port import Damage, Store
from ..values.records import Receipt
from .failure import UsageError
from .options import EVERYWHERE, Common
from .output import Output, plain
from .render import damage_text, number, receipt_text
from .show import Session

Target: TypeAlias = Annotated[
    str | None, Parameter(help="Only this session. Default: the whole store, all tenants.")
]
OneThread: TypeAlias = Annotated[
    str | None, Parameter(help="Only this thread of it. Default: all.")
]

_anchor = msgspec.json.Decoder(Anchor).decode

Yes: TypeAlias = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")]


Anchored: TypeAlias = Annotated[
    Path | None,
    Parameter(name="--anchors", help="What `holdfast anchors` printed; `-` is standard input."),
]


async def verify(
    session: Target = None,
    /,
    *,
    thread: OneThread = None,
    anchored: Anchored = None,
    common: Common = EVERYWHERE,
) -> int:
    """Recompute what is stored and report every piece that does not agree. Changes nothing.

    ```
    holdfast verify && echo sound
    ```

    An event that was altered, removed, moved or put in is named: each is bound to all before it.
    A database file that is malformed is a finding too: put a backup in its place.
    With `--anchors` the store is also held against links that were kept elsewhere.
    The exit code is 1 when there is damage. With `--json`: one line a finding.
    """
    kept = [] if anchored is None else await asyncio.to_thread(read_anchors, anchored)
    found, _ = await _check(_target(session, thread, common), common, kept, repair=False)
    return int(found > 0)


async def anchors(session: Target = None, /, *, common: Common = EVERYWHERE) -> None:
    """Print the newest link of every log of a tenant, or of one session, a line of JSON each.

    ```
    holdfast anchors > anchors.jsonl
    holdfast verify --anchors anchors.jsonl
    ```

    A link binds all events up to a number. Keep the lines where those who can write to the store
    cannot: whatever of these events is altered later, `verify --anchors` tells.
    """
    out = common.output()
    async with common.open() as store:
        if session is not None and not await _threads(store, Scope(common.tenant, session)):
            raise _missing(Scope(common.tenant, session))
        async with aclosing(all_anchors(store, common.tenant, session)) as found:
            async for anchor in found:
                out.emit(anchor)


def read_anchors(path: Path) -> list[Anchor]:
    """The anchors in a file (`InvalidValue`)."""
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return [_anchor(line) for line in text.splitlines() if line.strip()]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidValue(
            field="--anchors",
            problem=f"{str(path)!r} cannot be read ({error})",
            remedy="give a file that `holdfast anchors` printed",
        ) from None


async def repair(
    session: Target = None, /, *, thread: OneThread = None, common: Common = EVERYWHERE
) -> int:
    """Verify, put right what can be, and list what was done.

    ```
    holdfast repair customer-42
    ```

    What lists show is rebuilt from the log. An event that cannot be read is given up: an
    erased one takes its place, so that the rest can be used; verify first. The exit code
    is 1 when damage is left. With `--json`: one line a finding.
    """
    found, repaired = await _check(_target(session, thread, common), common, [], repair=True)
    return int(repaired < found)


def _target(session: str | None, thread: str | None, common: Common) -> Scope | Key | None:
    if session is None:
        if thread is not None:
            raise UsageError("--thread needs a SESSION")
        return None
    if thread is None:
        return Scope(common.tenant, session)
    return Key(common.tenant, session, thread)


async def _check(
    target: Scope | Key | None, common: Common, kept: Sequence[Anchor], *, repair: bool
) -> tuple[int, int]:
    out = common.output()
    tally = _Tally(out)
    try:
        async with common.open() as store:
            with out.working("repairing" if repair else "verifying") as progress:
                async with aclosing(_findings(store, target, kept, repair=repair)) as findings:
                    async for damage in findings:
                        tally.add(damage)
                        progress(f"({number(tally.found, 'finding')})")
            nothing = not tally.found and not tally.unlinked
            if nothing and target is not None and not await _threads(store, target):
                raise _missing(target)
    except StoreDamaged as error:
        tally.add(Damage(problem="unreadable", detail=error.problem))
    if not out.json:
        out.print(tally.verdict(repair=repair))
    return tally.found, tally.repaired


class _Tally:
    """Prints findings, and counts them."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.found = self.repaired = self.unlinked = self._broken = 0

    def add(self, damage: Damage) -> None:
        if damage.problem == "unlinked":
            self.unlinked += 1
        else:
            self.found += 1
            whole = damage.problem == "unreadable" and damage.key is None  # the store itself
            self._broken += damage.problem == "broken" or whole
        self.repaired += damage.repaired
        self._out.emit(damage) if self._out.json else self._out.print(damage_text(damage))

    def verdict(self, *, repair: bool) -> Text:
        return _verdict(self.found, self.repaired, self.unlinked, self._broken, repair=repair)


async def _findings(
    store: Store, target: Scope | Key | None, kept: Sequence[Anchor], *, repair: bool
) -> AsyncGenerator[Damage, None]:
    async with aclosing(store.verify(target, repair=repair)) as findings:
        async for damage in findings:
            yield damage
    wanted = [anchor for anchor in kept if target in (None, anchor.key, anchor.key.scope)]
    async with aclosing(held(store, wanted)) as findings:
        async for damage in findings:
            yield damage


def _verdict(found: int, repaired: int, unlinked: int, broken: int, *, repair: bool) -> Text:
    if not found and unlinked:
        wrote = "an older program, or somebody by hand, wrote"
        return Text(f"nothing is damaged; {wrote} {number(unlinked, 'event')} without a link")
    if not found:
        return Text("sound: nothing is damaged", style="green")
    if repair:
        left = f", {found - repaired:,} left" if repaired < found else ""
        return Text(f"{number(found, 'finding')}: {repaired:,} repaired{left}")
    if broken == found:
        return Text(f"{number(found, 'finding')}; nothing mends what is broken: see a backup")
    return Text(f"{number(found, 'finding')}; `holdfast repair` puts right what can be")


async def _threads(store: Store, target: Scope | Key) -> list[Row]:
    if isinstance(target, Key):
        row = await store.row(target)
        return [row] if row is not None else []
    query = Query(tenant=target.tenant, session=target.session)
    page = await store.find(query, limit=LIMITS.page)
    return page.items


def _missing(target: Scope | Key) -> SessionNotFound:
    thread = target.thread if isinstance(target, Key) else "main"
    return SessionNotFound(tenant=target.tenant, session=target.session, thread=thread)


def delete(
    session: Session,
    /,
    *,
    thread: Annotated[str | None, Parameter(help="Only this thread, not the session.")] = None,
    yes: Yes = False,
    common: Common = EVERYWHERE,
) -> int:
    """Delete a session with all its threads, attachments and names, or one thread, for ever.

    ```
    holdfast delete customer-42 --yes
    ```

    Asks before it does; where nobody can answer, `--yes` is needed. A session that is held is
    refused. Prints what was removed, and what is left where until `holdfast purge`.
    With `--json`: that receipt as one document.
    """
    out = common.output()
    target = _target(session, thread, common)
    assert target is not None
    if not yes and not agreed("delete", _question(asyncio.run(_look(target, common)), target)):
        out.remark("nothing was deleted")
        return 1
    receipt = asyncio.run(_delete(target, common))
    _print_receipt(out, receipt)
    return 0


async def _look(target: Scope | Key, common: Common) -> list[Row]:
    async with common.open() as store:
        rows = await _threads(store, target)
    if not rows:
        raise _missing(target)
    for row in rows:
        if isinstance(target, Scope) and row.hold is not None:
            raise DeletionRefused(
                tenant=row.tenant, session=row.session, reason=f"held: {row.hold}"
            )
    return rows


async def _delete(target: Scope | Key, common: Common) -> Receipt:
    async with common.open() as store:
        thread = target.thread if isinstance(target, Key) else None
        receipt = await Sessions(store, tenant=target.tenant).delete(target.session, thread)
    if not any(receipt.removed.values()):
        raise _missing(target)
    return receipt


def _question(rows: list[Row], target: Scope | Key) -> str:
    events = sum(row.head - (row.parent.at if row.parent else 0) for row in rows)
    what = f"session {target.session!r} ({number(len(rows), 'thread')}"
    if isinstance(target, Key):
        what = f"thread {target.thread!r} of session {target.session!r} ("
    else:
        what += ", "
    return f"Delete {what}{number(events, 'event')}) for ever?"


def check_can_ask(verb: str) -> None:
    """Refuse to go on where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError(f"{verb} cannot ask here; add --yes to delete without being asked")


def agreed(verb: str, question: str) -> bool:
    """Ask on the terminal. Not under an event loop, which would hold a Ctrl-C back."""
    check_can_ask(verb)
    print(plain(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def purge(
    *,
    sandbox: Annotated[
        Path | None,
        Parameter(help="Also remove the work folders that deleted sessions left in this folder."),
    ] = None,
    common: Common = EVERYWHERE,
) -> int:
    """Remove from the store's files what deletes left in free pages and logs. All tenants.

    ```
    holdfast purge
    holdfast purge --sandbox places
    ```

    Best when nobody else has the store open; prints what is left if somebody has. `--sandbox` is
    the folder of the sandbox, as given to `holdfast serve`.
    With `--json`: the receipt as one document.
    """
    out = common.output()
    if sandbox is not None and not await asyncio.to_thread(sandbox.is_dir):
        raise UsageError(f"--sandbox: there is no folder {str(sandbox)!r}")
    async with common.open() as store:
        with out.working("purging"):
            receipt = await store.purge()
            if sandbox is not None:
                receipt = await _sweep_folders(store, sandbox, receipt)
    _print_receipt(out, receipt)
    return 0


async def _sweep_folders(store: Store, sandbox: Path, receipt: Receipt) -> Receipt:
    async def is_gone(scope: Scope, location: str) -> bool | None:
        if location != store.info().location:
            return None
        return await store.row(Key(scope.tenant, scope.session, "main")) is None

    swept = await LocalSandbox(sandbox).sweep(is_gone)
    removed = {**receipt.removed, **({"folders": swept.folders} if swept.folders else {})}
    return Receipt(removed=removed, remains=(*receipt.remains, *swept.remains))


def _print_receipt(out: Output, receipt: Receipt) -> None:
    if out.json:
        out.emit(receipt)
    else:
        out.print(*receipt_text(receipt))

"""`holdfast session`: inspect and change one session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter, validators
from rich.text import Text

from ..environment import wall_clock
from ..log.catalog import Row
from ..log.events import Key
from ..sessions import Sessions, Transition
from ..stores.pages import existing_row
from .error_report import UsageError
from .options import BY, DEFAULTS, By, Common, Session, seconds_or_never
from .output import json_text, plain
from .render import fact, moment, row_text, surface_text
from .sessions import pair
from .tail import while_read

FIELDS = ("phase", "active", "pinned", "hold", "ttl", "expiry", "metadata", "surfaces")
SAME = (
    'With `--json`, prints one object: `{"changed": …, "before": {…}, "row": {…}}`; '
    "`before` has the old values of changed fields."
)

Surface: TypeAlias = Annotated[tuple[str, str] | None, Parameter(allow_leading_hyphen=True)]
Time: TypeAlias = int | Literal["same"] | None
_View: TypeAlias = tuple[Any, Iterable[str | Text], str]


# Verbs that make one call


def _verb(
    work: Callable[..., Awaitable[Row]], summary: str, *, example: str, more: str = ""
) -> Callable[..., Awaitable[None]]:
    """Make a verb from a method that takes a session and a reason."""

    async def verb(session: Session, /, *, by: By = BY, common: Common = DEFAULTS) -> None:
        await _change(session, by, common, lambda s: work(s, session, reason=by.reason))

    details = f"{more} {SAME}".strip()
    verb.__doc__ = f"{summary}\n\n```\nholdfast session {example}\n```\n\n{details}"
    return verb


touch = _verb(
    Sessions.touch,
    "Mark a session as active now.",
    example="touch customer-42",
    more="Prints the changes, then the row.",
)
suspend = _verb(
    Sessions.suspend,
    "Suspend a session.",
    example='suspend customer-42 --reason "on holiday"',
    more="A sweep also suspends idle sessions. The next activity resumes the session.",
)
resume = _verb(Sessions.resume, "Resume a suspended session.", example="resume customer-42")
expire = _verb(
    Sessions.expire,
    "Expire a session: it accepts no more events.",
    example='expire customer-42 --reason "case closed"',
    more="Nothing is deleted.",
)
reopen = _verb(
    Sessions.reopen,
    "Reopen an expired session.",
    example='reopen customer-42 --reason "a mistake"',
    more="Surfaces that were moved to another session in the meantime are not attached again.",
)
pin = _verb(Sessions.pin, "Exempt a session from sweeps and retention.", example="pin customer-42")
unpin = _verb(
    partial(Sessions.pin, pinned=False),
    "Make a session subject to sweeps and retention again.",
    example="unpin customer-42",
)


# Verbs with options of their own


async def hold(
    session: Session,
    /,
    *,
    lift: bool = False,
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """Place a session under legal hold, or lift the hold.

    ```
    holdfast session hold customer-42 --reason "lawsuit 12"
    holdfast session hold customer-42 --lift
    ```

    A session under hold cannot be deleted. With `--json`, prints one object: `{"changed": …,
    "before": {…}, "row": {…}}`.

    :param lift: Lift the hold.
    """
    if not lift and by.reason is None:
        raise UsageError("hold needs --reason or --lift")
    why, reason = (None, by.reason) if lift else (by.reason, None)
    await _change(session, by, common, lambda s: s.hold(session, why, reason=reason))


async def ttl(
    session: Session,
    ttl: str | None = None,
    /,
    *,
    expiry: str | None = None,
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """Show or set the time limits of a session.

    ```
    holdfast session ttl customer-42
    holdfast session ttl customer-42 2h --expiry 30d
    ```

    A limit that is not passed stays unchanged. With `--json`, prints the limits in seconds; after a
    change, `{"changed": …, "before": {…}, "row": {…}}`.

    :param ttl: Idle time after which the session may be suspended, such as 30min, 2h or 3d; or
        never.
    :param expiry: Time after which a suspended session expires: a duration, or never.
    """
    if ttl is None and expiry is None:
        return await _look(session, by, common, _times)
    new: Time = "same" if ttl is None else seconds_or_never("TTL", ttl)
    then: Time = "same" if expiry is None else seconds_or_never("--expiry", expiry)
    await _change(
        session, by, common, lambda s: s.set_ttl(session, new, expiry=then, reason=by.reason)
    )


async def surfaces(
    session: Session,
    /,
    *,
    attach: Surface = None,
    detach: Surface = None,
    move: bool = False,
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """List, attach or detach the surfaces of a session.

    ```
    holdfast session surfaces customer-42
    holdfast session surfaces customer-42 --attach slack U99:D42
    ```

    With `--json`, prints `{"surfaces": […]}`; after a change, `{"changed": …, "before": {…}, "row":
    {…}}`.

    :param attach: Attach a surface: KIND ADDRESS.
    :param detach: Detach a surface: KIND ADDRESS.
    :param move: Take the surface from another session that has it.
    """
    if attach is not None and detach is not None:
        raise UsageError("use either --attach or --detach, not both")
    if move and attach is None:
        raise UsageError("--move needs --attach")
    place = attach or detach
    if place is None:
        return await _look(session, by, common, _surfaces)

    async def work(sessions: Sessions) -> Row:
        if attach is None:
            return await sessions.detach_surface(session, *place, reason=by.reason)
        return await sessions.attach_surface(session, *attach, move=move, reason=by.reason)

    await _change(session, by, common, work)


async def metadata(
    session: Session,
    /,
    *,
    set: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """List or change the metadata of a session.

    ```
    holdfast session metadata customer-42 --set locale=en-US --set seats=3 --drop trial
    ```

    With `--json`, prints `{"metadata": {…}}`; after a change, `{"changed": …, "before": {…}, "row":
    {…}}`.

    :param set: Add or replace KEY=VALUE; repeatable. A VALUE that is valid JSON is stored as JSON,
        else as text.
    :param drop: Remove this key; repeatable.
    """
    if not set and not drop:
        return await _look(session, by, common, _metadata)
    new = dict(pair("--set", text) for text in set)
    await _change(
        session, by, common, lambda s: s.update_metadata(session, new, drop=drop, reason=by.reason)
    )


async def history(
    session: Session,
    /,
    *,
    follow: bool = False,
    after: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    common: Common = DEFAULTS,
) -> None:
    """Show the phase changes of a session.

    ```
    holdfast session history customer-42 --follow
    ```

    Each change has its time, actor and reason. With `--json`, prints one line per change.

    :param follow: Keep running and show new changes.
    :param after: Only changes after this event number.
    """
    out = common.output()
    async with common.open() as store:
        moves = Sessions(store, tenant=common.tenant).transitions(session, after=after, wait=follow)

        async def show() -> None:
            empty = True
            async with aclosing(moves):
                async for move in moves:
                    empty = False
                    out.show(move, _move_text(move))
            if empty:
                out.note("no phase changes")

        await (while_read(show()) if follow else show())


def _move_text(move: Transition) -> Text:
    text = Text.assemble(
        (f"{move.seq:>6}", "bold"),
        (f"  {moment(move.at)}  ", "dim"),
        (f"{move.before} → {move.phase}", "cyan"),
        f"  {plain(move.kind)}",
    )
    if move.actor is not None:
        text.append(f"  {plain(move.actor)}", style="bold")
    text.append(f"  {plain(move.reason)}" if move.reason is not None else "")
    return text


# Reading and changing


async def _look(session: str, by: By, common: Common, view: Callable[[Row], _View]) -> None:
    if by != BY:
        raise UsageError(
            "--reason and --actor are recorded with a change, but this command only reads"
        )
    async with common.open() as store:
        row = await existing_row(store, Key(common.tenant, session, "main"))
    common.output().show(*view(row))


async def _change(
    session: str, by: By, common: Common, work: Callable[[Sessions], Awaitable[Row]]
) -> None:
    async with common.open() as store:
        before = await existing_row(store, Key(common.tenant, session, "main"))
        after = await work(Sessions(store, tenant=common.tenant, actor=by.who))
    old = {name: getattr(before, name) for name in FIELDS}
    old = {name: value for name, value in old.items() if value != getattr(after, name)}
    changed = after.head != before.head
    out, row = common.output(), msgspec.structs.asdict(after)
    if not changed:
        out.note("nothing to change")
    out.show({"changed": changed, "before": old, "row": row}, _change_text(old, after))


def _change_text(old: dict[str, Any], row: Row) -> Iterator[str | Text]:
    for name, value in old.items():
        yield from (fact(name, line) for line in _differences(name, value, getattr(row, name)))
    if old:
        yield ""
    yield from row_text(row, wall_clock())


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    if name == "surfaces":
        yield from (f"- {surface_text(key)}" for key in old if key not in new)
        yield from (f"+ {surface_text(key)}" for key in new if key not in old)
    elif name == "metadata":
        for key in {**old, **new}:
            was, now = (json_text(map[key]) if key in map else "none" for map in (old, new))
            if was != now:
                yield f"{key}: {was} → {now}"
    else:
        yield f"{_value(name, old)} → {_value(name, new)}"


def _value(name: str, value: Any) -> str:
    if name == "active":
        return moment(value * 1000)
    if name in ("ttl", "expiry"):
        return "never" if value is None else f"{value} s"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _times(row: Row) -> _View:
    lines = [fact(name, _value(name, getattr(row, name))) for name in ("ttl", "expiry")]
    if row.stale_at is not None:
        lines.append(fact("stale at", moment(row.stale_at * 1000)))
    return {"ttl": row.ttl, "expiry": row.expiry, "stale_at": row.stale_at}, lines, ""


def _surfaces(row: Row) -> _View:
    listed, lines = [], []
    for name, about in row.surfaces.items():
        kind, address = msgspec.json.decode(name, type=tuple[str, str])
        detail = {key: value for key, value in about.items() if key != "at"}
        listed.append({"surface": kind, "address": address, "at": about["at"], "detail": detail})
        more = f" {json_text(detail)}" if detail else ""
        lines.append(f"{kind} {address} (since {moment(about['at'])}){more}")
    return {"surfaces": listed}, lines, "no surfaces"


def _metadata(row: Row) -> _View:
    lines = [f"{name} = {json_text(value)}" for name, value in row.metadata.items()]
    return {"metadata": row.metadata}, lines, "no metadata"

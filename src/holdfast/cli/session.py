"""`holdfast session`: the life of one session, its surfaces, its metadata and its times."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import App, Group, Parameter, validators
from rich.text import Text

from ..log.catalog import Row
from ..log.events import Key
from ..sessions import Sessions, Transition
from ..stores.port import wall_clock
from .failure import UsageError
from .listing import pair, whole
from .options import EVERYWHERE, Common, seconds_or_never
from .output import Output, json_text, plain
from .render import fact, moment, row_text, surface_text
from .show import Session, row_of
from .tail import while_read

HELP = """The life of one session: its phase, surfaces, metadata and times.

```
holdfast session history customer-42
holdfast session suspend customer-42 --reason "on holiday"
```
"""
FIELDS = ("phase", "active", "pinned", "hold", "ttl", "expiry", "metadata", "surfaces")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class By:
    """Who changes a session, and why; both stand in its log."""

    reason: Annotated[str | None, Parameter(help="Why; it stands in the log.")] = None
    actor: Annotated[str | None, Parameter(help="Who. Default: cli: and your user name.")] = None

    @property
    def who(self) -> str:
        return f"cli:{user()}" if self.actor is None else self.actor


BY = By()
Place: TypeAlias = Annotated[tuple[str, str] | None, Parameter(allow_leading_hyphen=True)]
Time: TypeAlias = int | Literal["same"] | None
Work: TypeAlias = Callable[[Sessions], Awaitable[Row]]


def app(group: Group, place: int) -> App:
    """The verbs of `holdfast session`, to be shown at a place of a group."""
    session = App(name="session", help=HELP, help_format="markdown", group=group, sort_key=place)
    for at, verb in enumerate(VERBS):
        session.command(verb, sort_key=at)
    return session


def user() -> str:
    """The name of the user whose process this is."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        return "unknown"


# The phase


async def touch(session: Session, /, *, by: By = BY, common: Common = EVERYWHERE) -> int:
    """Say that somebody was here: the session is active, from now on.

    ```
    holdfast session touch customer-42
    ```

    Prints what changed, then the row. With `--json`: one document,
    `{"changed": …, "before": {…}, "row": {…}}`; `before` has what is different now.
    """
    return await _change(session, by, common, lambda s: s.touch(session, reason=by.reason))


async def suspend(session: Session, /, *, by: By = BY, common: Common = EVERYWHERE) -> int:
    """Set a session aside, as a sweep does when it is stale; whoever comes back revives it.

    ```
    holdfast session suspend customer-42 --reason "on holiday"
    ```

    With `--json`: one document, as `touch` has.
    """
    return await _change(session, by, common, lambda s: s.suspend(session, reason=by.reason))


async def resume(session: Session, /, *, by: By = BY, common: Common = EVERYWHERE) -> int:
    """Take a suspended session up again.

    ```
    holdfast session resume customer-42
    ```

    With `--json`: one document, as `touch` has.
    """
    return await _change(session, by, common, lambda s: s.resume(session, reason=by.reason))


async def expire(session: Session, /, *, by: By = BY, common: Common = EVERYWHERE) -> int:
    """End a session. Nothing of it changes any more, and nothing of it is deleted.

    ```
    holdfast session expire customer-42 --reason "case closed"
    ```

    With `--json`: one document, as `touch` has.
    """
    return await _change(session, by, common, lambda s: s.expire(session, reason=by.reason))


async def reopen(session: Session, /, *, by: By = BY, common: Common = EVERYWHERE) -> int:
    """Undo an expiry. Surfaces that another session has by now stay with that one.

    ```
    holdfast session reopen customer-42 --reason "a mistake"
    ```

    With `--json`: one document, as `touch` has.
    """
    return await _change(session, by, common, lambda s: s.reopen(session, reason=by.reason))


# What sweeps, retention and deletes go by


async def pin(session: Session, /, *, by: By = BY, common: Common = EVERYWHERE) -> int:
    """Keep a session from going stale, and from retention.

    ```
    holdfast session pin customer-42
    ```

    With `--json`: one document, as `touch` has.
    """
    return await _change(session, by, common, lambda s: s.pin(session, reason=by.reason))


async def unpin(session: Session, /, *, by: By = BY, common: Common = EVERYWHERE) -> int:
    """Let a session age again.

    ```
    holdfast session unpin customer-42
    ```

    With `--json`: one document, as `touch` has.
    """
    return await _change(session, by, common, lambda s: s.pin(session, False, reason=by.reason))


async def hold(
    session: Session,
    /,
    *,
    lift: Annotated[bool, Parameter(help="End the hold.")] = False,
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """Refuse every deletion of a session, for the `--reason`, until the hold is lifted.

    ```
    holdfast session hold customer-42 --reason "lawsuit 12"
    holdfast session hold customer-42 --lift
    ```

    With `--json`: one document, as `touch` has.
    """
    if not lift and by.reason is None:
        raise UsageError("hold needs a --reason, or --lift")
    why = None if lift else by.reason
    return await _change(
        session, by, common, lambda s: s.hold(session, why, reason=by.reason if lift else None)
    )


async def ttl(
    session: Session,
    ttl: Annotated[
        str | None,
        Parameter(help="How long until it is stale: a duration such as 30min, 2h or 3d, or never."),
    ] = None,
    /,
    *,
    expiry: Annotated[
        str | None, Parameter(help="How long until a suspended one expires, or never.")
    ] = None,
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """Show after which time a session is stale and expires, or give it times of its own.

    ```
    holdfast session ttl customer-42
    holdfast session ttl customer-42 2h --expiry 30d
    ```

    What is not given stays. With `--json`: the times in seconds, or as `touch` has.
    """
    if ttl is None and expiry is None:
        _only_to_change(by)
        return await _look(session, common, _tell_times)
    new: Time = "same" if ttl is None else seconds_or_never("TTL", ttl)
    then: Time = "same" if expiry is None else seconds_or_never("--expiry", expiry)

    async def work(sessions: Sessions) -> Row:
        return await sessions.set_ttl(session, new, expiry=then, reason=by.reason)

    return await _change(session, by, common, work)


# Surfaces and metadata


async def surfaces(
    session: Session,
    /,
    *,
    attach: Annotated[Place, Parameter(help="Bind this surface to it: KIND ADDRESS.")] = None,
    detach: Annotated[Place, Parameter(help="Free this surface: KIND ADDRESS.")] = None,
    move: Annotated[
        bool, Parameter(help="Take the surface from another session that has it.")
    ] = False,
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """List the surfaces of a session, attach one, or detach one.

    ```
    holdfast session surfaces customer-42
    holdfast session surfaces customer-42 --attach slack U99:D42
    ```

    With `--json`: `{"surfaces": […]}`, or as `touch` has.
    """
    if attach is not None and detach is not None:
        raise UsageError("surfaces takes --attach or --detach, not both")
    if move and attach is None:
        raise UsageError("--move needs --attach")
    if attach is not None:
        kind, address = attach
        return await _change(
            session,
            by,
            common,
            lambda s: s.attach_surface(session, kind, address, move=move, reason=by.reason),
        )
    if detach is not None:
        kind, address = detach
        return await _change(
            session,
            by,
            common,
            lambda s: s.detach_surface(session, kind, address, reason=by.reason),
        )
    _only_to_change(by)
    return await _look(session, common, _tell_surfaces)


async def metadata(
    session: Session,
    /,
    *,
    set: Annotated[
        list[str],
        Parameter(
            help="Add or replace: KEY=VALUE; may be given again. A VALUE that reads as JSON is "
            "taken as that."
        ),
    ] = [],  # noqa: B006 - cyclopts makes it anew
    drop: Annotated[list[str], Parameter(help="Remove this key; may be given again.")] = [],  # noqa: B006 - cyclopts makes it anew
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """List the metadata of a session, or change it.

    ```
    holdfast session metadata customer-42 --set locale=en-US --set seats=3 --drop trial
    ```

    With `--json`: `{"metadata": {…}}`, or as `touch` has.
    """
    if not set and not drop:
        _only_to_change(by)
        return await _look(session, common, _tell_metadata)
    new = dict(pair("--set", text) for text in set)
    return await _change(
        session, by, common, lambda s: s.update_metadata(session, new, drop=drop, reason=by.reason)
    )


# The past


async def history(
    session: Session,
    /,
    *,
    follow: Annotated[bool, Parameter(help="Stay and show each move that comes.")] = False,
    after: Annotated[
        int, Parameter(help="Only moves behind this event.", validator=validators.Number(gte=0))
    ] = 0,
    common: Common = EVERYWHERE,
) -> int:
    """Show how a session went from phase to phase: when, by whom and why.

    ```
    holdfast session history customer-42 --follow
    ```

    With `--json`: one line a move.
    """
    out = common.output()
    async with common.open() as store:
        moves = Sessions(store, tenant=common.tenant).transitions(session, after=after, wait=follow)

        async def tell() -> None:
            shown = 0
            async with aclosing(moves):
                async for move in moves:
                    shown += 1
                    out.emit(move) if out.json else out.print(_move_text(move))
            if not shown and not out.json:
                out.remark("no moves: it is as it was created")

        await (while_read(tell()) if follow else tell())
    return 0


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


# Looking and changing


async def _look(session: str, common: Common, tell: Callable[[Output, Row], None]) -> int:
    async with common.open() as store:
        row = await row_of(store, Key(common.tenant, session, "main"))
    tell(common.output(), row)
    return 0


async def _change(session: str, by: By, common: Common, work: Work) -> int:
    async with common.open() as store:
        before = await row_of(store, Key(common.tenant, session, "main"))
        after = await work(Sessions(store, tenant=common.tenant, actor=by.who))
    _tell_change(common.output(), before, after)
    return 0


def _only_to_change(by: By) -> None:
    if by != BY:
        raise UsageError("--reason and --actor say why and by whom something is changed")


def _tell_change(out: Output, before: Row, after: Row) -> None:
    changed = after.head != before.head
    fields = [name for name in FIELDS if getattr(before, name) != getattr(after, name)]
    if out.json:
        was = {name: getattr(before, name) for name in fields}
        out.emit({"changed": changed, "before": was, "row": whole(after)})
        return
    for name in fields:
        for line in _differences(name, getattr(before, name), getattr(after, name)):
            out.print(fact(name, line))
    if not changed:
        out.remark("nothing to change: it is so already")
    if fields:
        out.print("")
    out.print(*row_text(after, wall_clock()))


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


def _tell_times(out: Output, row: Row) -> None:
    if out.json:
        out.emit({name: getattr(row, name) for name in ("ttl", "expiry", "stale_at")})
        return
    out.print(*(fact(name, _value(name, getattr(row, name))) for name in ("ttl", "expiry")))
    if row.stale_at is not None:
        out.print(fact("stale at", moment(row.stale_at * 1000)))


def _tell_surfaces(out: Output, row: Row) -> None:
    if not row.surfaces and not out.json:
        out.remark("no surfaces")
    listed = []
    for name, about in row.surfaces.items():
        kind, address = msgspec.json.decode(name, type=tuple[str, str])
        detail = {key: value for key, value in about.items() if key != "at"}
        listed.append({"surface": kind, "address": address, "at": about["at"], "detail": detail})
        if not out.json:
            more = f" {json_text(detail)}" if detail else ""
            out.print(plain(f"{kind} {address} (since {moment(about['at'])}){more}"))
    if out.json:
        out.emit({"surfaces": listed})


def _tell_metadata(out: Output, row: Row) -> None:
    if out.json:
        out.emit({"metadata": row.metadata})
    elif not row.metadata:
        out.remark("no metadata")
    else:
        out.print(*(plain(f"{name} = {json_text(v)}") for name, v in row.metadata.items()))


VERBS: tuple[Callable[..., Any], ...] = (
    history,
    touch,
    suspend,
    resume,
    expire,
    reopen,
    pin,
    unpin,
    hold,
    ttl,
    surfaces,
    metadata,
)

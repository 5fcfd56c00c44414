"""`holdfast unseal`: the way back from a move."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

from cyclopts import Parameter

from ..bundle.unseal import unseal_session
from ..errors import SessionMoved
from ..log.events import Scope
from .failure import UsageError
from .options import EVERYWHERE, Common, open_store
from .output import plain
from .render import number
from .session import BY, By
from .show import Session


async def unseal(
    session: Session,
    /,
    *,
    to: Annotated[
        str | None, Parameter(help="The store it was moved to, in which to look for it.")
    ] = None,
    to_tenant: Annotated[
        str | None, Parameter(help="The tenant it was moved into. Default: the same.")
    ] = None,
    as_: Annotated[
        str | None, Parameter(name="--as", help="Its id in that store. Default: the same.")
    ] = None,
    yes: Annotated[
        bool,
        Parameter(
            name=["--yes", "-y"],
            help="It was made sure that nobody goes on with it elsewhere, now or later.",
        ),
    ] = False,
    by: By = BY,
    common: Common = EVERYWHERE,
) -> int:
    """Let a session go on here that was moved away, when the move failed or is taken back.

    ```
    holdfast unseal customer-42 --reason "the disk was lost" --yes
    holdfast unseal customer-42 --reason "moved by mistake" --to postgresql://db/shop
    ```

    A session must not go on in two places. With `--to` that store is looked into, and while it
    has the session, this is refused. Where a file may have gone nobody knows: `--yes` answers for
    it. Who did it, when and why stands in the log. With `--json`: one document.
    """
    if by.reason is None:
        raise UsageError("unseal needs a --reason")
    if to is None and (to_tenant or as_):
        raise UsageError("--to-tenant and --as say where to look in the store of --to")
    out = common.output()
    there = Scope(to_tenant or common.tenant, as_ or session)
    async with common.open() as store, AsyncExitStack() as others:
        target = None if to is None else await others.enter_async_context(open_store(to))
        try:
            opened = await unseal_session(
                (store, Scope(common.tenant, session)),
                reason=by.reason,
                actor=by.who,
                target=target,
                there=there,
                force=yes,
            )
        except SessionMoved as error:
            raise UsageError(
                f"{session!r} was moved to {error.to!r} and may go on there; make sure that nobody "
                "does, now or later, and add --yes"
            ) from error
    if out.json:
        out.emit({"session": session, "tenant": common.tenant, "opened": opened})
    elif opened:
        out.print(plain(f"{session}  goes on here  {number(opened, 'thread')}"))
    else:
        out.remark("nothing to change: it takes events here")
    return 0

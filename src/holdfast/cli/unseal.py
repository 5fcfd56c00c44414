"""`holdfast unseal`: reopen a session after a move."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

from cyclopts import Parameter

from ..bundle.unseal import unseal_session
from ..errors import SessionMoved
from ..log.events import Scope
from .error_report import UsageError
from .options import BY, DEFAULTS, By, Common, Session, open_store, option_group
from .render import number


@option_group
class Destination:
    """The store, tenant and id that a session was moved to.

    :param to: Store that the session was moved to. The command fails if it still has the session.
    :param to_tenant: Tenant in that store. Default: the same tenant.
    :param as_: Id in that store. Default: the same id.
    """

    to: str | None = None
    to_tenant: str | None = None
    as_: Annotated[str | None, Parameter(name="--as")] = None


NOWHERE = Destination()


async def unseal(
    session: Session,
    /,
    *,
    moved: Destination = NOWHERE,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"])] = False,
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """Reopen a session here after a move was undone or failed.

    ```
    holdfast unseal customer-42 --reason "the disk was lost" --yes
    holdfast unseal customer-42 --reason "moved by mistake" --to postgresql://db/shop
    ```

    A session must not continue in two places. With `--to`, the command fails while that store has
    the session. The command cannot check whether a bundle file is in use: confirm with `--yes` that
    it is not. Actor and reason are recorded in the log. With `--json`, prints one JSON object.

    :param yes: Confirm that the session will not continue elsewhere.
    """
    if by.reason is None:
        raise UsageError("unseal needs --reason")
    if moved.to is None and (moved.to_tenant or moved.as_):
        raise UsageError("--to-tenant and --as need --to")
    async with common.open() as store, AsyncExitStack() as others:
        to = moved.to and open_store(moved.to)
        target = await others.enter_async_context(to) if to else None
        try:
            opened = await unseal_session(
                (store, Scope(common.tenant, session)),
                reason=by.reason,
                actor=by.who,
                target=target,
                there=Scope(moved.to_tenant or common.tenant, moved.as_ or session),
                force=yes,
            )
        except SessionMoved as error:
            raise UsageError(
                f"{session!r} was moved to {error.to!r} and may continue there; make sure that it "
                f"will not, then add --yes"
            ) from error
    about = {"session": session, "tenant": common.tenant, "opened": opened}
    lines = [f"{session}  reopened  {number(opened, 'thread')}"] if opened else []
    common.output().show(about, lines, "nothing to change: the session accepts events here")

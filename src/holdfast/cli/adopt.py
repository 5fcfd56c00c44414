"""`holdfast adopt`: assign an agent to a session that an agent SDK wrote."""

from __future__ import annotations

from ..sessions.lifecycle import Sessions
from .options import BY, DEFAULTS, By, Common, Session


async def adopt(
    session: Session,
    /,
    *,
    agent: str,
    by: By = BY,
    common: Common = DEFAULTS,
) -> None:
    """Assign an agent to a session that an agent SDK wrote.

    ```
    holdfast adopt customer-42 --agent shop
    ```

    A session that an SDK adapter wrote has no Holdfast agent. The command assigns one, which then
    continues the session. Messages that the SDK did not answer stay in the conversation; the agent
    runs when the next message arrives. With `--json`, prints one object:
    `{"session": …, "agent": …}`.

    :param agent: Name of the agent.
    """
    async with common.open() as store:
        sessions = Sessions(store, tenant=common.tenant)
        await sessions.adopt(session, agent, actor=by.who, reason=by.reason)
    about = {"session": session, "agent": agent}
    common.output().show(about, f"session {session} belongs to agent {agent} now")

"""`holdfast adopt`: give a session that an agent SDK wrote to an agent of Holdfast."""

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
    """Continue the session of an agent SDK with an agent.

    ```
    holdfast adopt customer-42 --agent shop
    ```

    A session that the adapter of an SDK wrote belongs to no agent of Holdfast. From now on the
    agent with this name continues it. What the SDK left unanswered stays in the conversation; the
    agent answers the next message. With `--json`: one document, `{"session": …, "agent": …}`.

    :param agent: Name of the agent.
    """
    async with common.open() as store:
        sessions = Sessions(store, tenant=common.tenant)
        await sessions.adopt(session, agent, actor=by.who, reason=by.reason)
    about = {"session": session, "agent": agent}
    common.output().show(about, f"session {session} belongs to agent {agent} now")

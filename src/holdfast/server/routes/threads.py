"""Routes for the threads of a session: conversations that share its user state and its permission
rules. Every route for a conversation accepts the parameter `thread`."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import delete, get, patch, post
from litestar.params import FromQuery, JSONBody, PathParameter

from ...errors import SessionExists, SessionNotFound
from ...sessions.threads import threads_of
from ...wire import CreateThread, ForkThread, RenameThread, RowPage, SessionView
from ..http.context import Context, RequestContext
from .parameters import READ, SESSION, WRITE, Limit, SessionId, Text, Thread
from .sessions import check_id

BASE = f"{SESSION}/threads"
Name = Annotated[str, PathParameter(min_length=1, max_length=512)]


@get(BASE, opt=READ, operation_id="list_threads")
async def threads(
    ctx: Context,
    session_id: SessionId,
    title: Text = None,
    label: Text = None,
    parent: Text = None,
    forks: FromQuery[bool | None] = None,
    subagents: FromQuery[bool] = False,
    cursor: Text = None,
    limit: Limit = 50,
) -> RowPage:
    """Return the threads that match all filters, the most recently active first."""
    place, row = await ctx.find(session_id)
    served = await ctx.served(place, row)
    page = await threads_of(
        place.store,
        row.key,
        row.agent if served is None else served.agent,
        title=title,
        label=label,
        parent=parent,
        forks=forks,
        subagents=subagents,
        cursor=cursor,
        limit=limit,
    )
    return RowPage(
        items=[ctx.service.places.naming.row(row) for row in page.items], cursor=page.cursor
    )


@post(BASE, opt=WRITE, operation_id="create_thread")
async def create(
    ctx: Context, session_id: SessionId, data: JSONBody[CreateThread | None] = None
) -> SessionView:
    """Create an empty thread. Responds with 409 if a thread with this id exists."""
    body = data or CreateThread()
    id = _id(ctx, body.id)
    async with ctx.session(session_id) as session:
        with ctx.repeated(SessionExists):
            await session.thread.create(body.title, id=id)
    return await ctx.shown_thread(session_id, id)


@post(BASE + "/fork", opt=WRITE, operation_id="fork_thread")
async def fork(
    ctx: Context,
    session_id: SessionId,
    data: JSONBody[ForkThread | None] = None,
    thread: Thread = "main",
) -> SessionView:
    """Create a thread that shares all events up to `at` with this thread; without `at`, up to the
    last event at which no turn is open."""
    body = data or ForkThread()
    id = _id(ctx, body.id)
    async with ctx.session(session_id, thread, current=True) as session:
        with ctx.repeated(SessionExists):
            await session.thread.clone(body.title, id=id, at=body.at, actor=ctx.actor)
    return await ctx.shown_thread(session_id, id)


def _id(ctx: RequestContext, wanted: str | None) -> str:
    id = wanted or ctx.new_id()
    check_id(id)
    return id


@patch(BASE + "/{name:str}", opt=WRITE, operation_id="rename_thread")
async def rename(
    ctx: Context, session_id: SessionId, name: Name, data: JSONBody[RenameThread]
) -> SessionView:
    """Change the title of a thread."""
    async with ctx.session(session_id) as session:
        await session.thread.rename(data.title, name)
    return await ctx.shown_thread(session_id, name, created=False)


@delete(BASE + "/{name:str}", status_code=204, opt=WRITE, operation_id="delete_thread")
async def remove(ctx: Context, session_id: SessionId, name: Name) -> None:
    """Delete a thread and abort its run; forks of it are kept."""
    async with ctx.session(session_id) as session:
        with ctx.repeated(SessionNotFound):
            await session.thread.delete(name)


HANDLERS: list[Any] = [threads, create, fork, rename, remove]

"""The threads of a session: other conversations that share its user state and its rules. Every
route that is about one of them takes `thread`; so to switch is to name another."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import delete, get, patch, post
from litestar.params import FromQuery, JSONBody, PathParameter, QueryParameter

from ...errors import SessionExists, SessionNotFound
from ...harness.session.session import core_of
from ...wire import CreateThread, ForkThread, RenameThread, RowPage, SessionView
from ..http.context import Ask, Asking, SessionId, Thread
from .sessions import check_id

READ = {"scope": "sessions:read"}
WRITE = {"scope": "sessions:write"}
BASE = "/sessions/{session_id:str}/threads"
Name = Annotated[str, PathParameter(min_length=1, max_length=512)]
Limit = Annotated[int, QueryParameter(ge=1, le=100)]
Text = Annotated[str | None, QueryParameter(min_length=1, max_length=400)]


@get(BASE, opt=READ, operation_id="list_threads")
async def threads(
    ask: Ask,
    session_id: SessionId,
    title: Text = None,
    label: Text = None,
    parent: Text = None,
    forks: FromQuery[bool | None] = None,
    subagents: FromQuery[bool] = False,
    cursor: Text = None,
    limit: Limit = 50,
) -> RowPage:
    """The threads that answer all of these, the most recently active first."""
    async with ask.session(session_id) as session:
        page = await session.thread.list(
            title=title,
            label=label,
            parent=parent,
            forks=forks,
            subagents=subagents,
            cursor=cursor,
            limit=limit,
        )
    items = [ask.service.places.naming.row(row) for row in page.items]
    return RowPage(items=items, cursor=page.cursor)


@post(BASE, opt=WRITE, operation_id="create_thread")
async def create(
    ask: Ask, session_id: SessionId, data: JSONBody[CreateThread | None] = None
) -> SessionView:
    """A new, empty thread. 409 where there is one of that name."""
    said = data or CreateThread()
    id = said.id or ask.new_id()
    check_id(id)
    async with ask.session(session_id) as session:
        try:
            await session.thread.create(said.title, id=id)
        except SessionExists:
            if not ask.again:
                raise
    return await shown(ask, session_id, id)


@post(BASE + "/fork", opt=WRITE, operation_id="fork_thread")
async def fork(
    ask: Ask,
    session_id: SessionId,
    data: JSONBody[ForkThread | None] = None,
    thread: Thread = "main",
) -> SessionView:
    """A thread of its own that shares all up to event `at`; without it, up to the last place
    where nothing is open."""
    said = data or ForkThread()
    id = said.id or ask.new_id()
    check_id(id)
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        try:
            await session.thread.clone(said.title, id=id, at=said.at, actor=ask.actor)
        except SessionExists:
            if not ask.again:
                raise
    return await shown(ask, session_id, id)


@patch(BASE + "/{name:str}", opt=WRITE, operation_id="rename_thread")
async def rename(
    ask: Ask, session_id: SessionId, name: Name, data: JSONBody[RenameThread]
) -> SessionView:
    """Give a thread another title."""
    async with ask.session(session_id) as session:
        await session.thread.rename(data.title, name)
    return await shown(ask, session_id, name, created=False)


@delete(BASE + "/{name:str}", status_code=204, opt=WRITE, operation_id="delete_thread")
async def remove(ask: Ask, session_id: SessionId, name: Name) -> None:
    """Remove a thread; forks of it stay whole. A run that is going there is aborted first."""
    async with ask.session(session_id) as session:
        try:
            await session.thread.delete(name)
        except SessionNotFound:
            if not ask.again:  # else it was removed, and nobody was there to say so
                raise


async def shown(ask: Asking, id: str, thread: str, *, created: bool = True) -> SessionView:
    """A thread as it is shown."""
    place, row = await ask.find(id, thread)
    engine, _, _ = await ask.engine_of(place, row)
    return ask.view(place, row, created=created, engine=engine)


HANDLERS: list[Any] = [threads, create, fork, rename, remove]

"""Routes for the state of a session: display, mode, model, user state, usage and permissions."""

from __future__ import annotations

from typing import Any

from litestar import MediaType, Response, delete, get, patch, post, put
from litestar.params import JSONBody
from msgspec.structs import replace

from ...errors import Forbidden
from ...harness import Session, core_of
from ...values.display import to_json
from ...wire import (
    ChangeState,
    ChooseModel,
    DisplayShown,
    Grant,
    ModelShown,
    ModeShown,
    PermissionsShown,
    ReplaceState,
    SetRule,
    StateShown,
    SwitchMode,
    UsageShown,
)
from ..http.context import Context, RequestContext
from ..streams.session_stream import UnservedSession, live_of
from .parameters import DECIDE, READ, SESSION, WRITE, At, SessionId, Text, Thread, check_at
from .sessions import SEALED


@get(SESSION + "/display", opt=READ, operation_id="get_display")
async def display(
    ctx: Context, session_id: SessionId, thread: Thread = "main", at: At = None
) -> Response[DisplayShown]:
    """Return the display of a session: everything that a user interface shows of it. With `at`, the
    display as it was right after this event."""
    async with ctx.reading(session_id, thread) as session:
        live = live_of(session)
        row = await live.store.row(live.key)
        if row is not None and at is not None:
            check_at(at, row.head)
        if isinstance(session, UnservedSession):
            live.stage.name(session=live.key.session, thread=live.key.thread)
            shown = live.stage.now(live.in_flight.now())
        else:
            await core_of(session).catch_up()
            shown = session.display.get()
        if row is not None and at is not None:
            shown = await ctx.service.past.display(live.store, row, at, shown)
    if at is None and row is not None and row.sealed is not None:
        shown = replace(shown, phase=SEALED, running=False, queued=0, pending={})
    text: Any = to_json(shown)
    return Response(text, media_type=MediaType.JSON)


# Mode and model


@get(SESSION + "/mode", opt=READ, operation_id="get_mode")
async def mode(ctx: Context, session_id: SessionId, thread: Thread = "main") -> ModeShown:
    """Return the current mode of the agent, and all its modes."""
    async with ctx.session(session_id, thread, current=True) as session:
        return _mode(session)


@put(SESSION + "/mode", opt=WRITE, operation_id="switch_mode")
async def switch_mode(
    ctx: Context, session_id: SessionId, data: JSONBody[SwitchMode], thread: Thread = "main"
) -> ModeShown:
    """Switch to another mode from the next step on, and optionally send `text` as a message."""
    async with ctx.session(session_id, thread) as session:
        changed = await session.mode.switch(data.mode, data.text, key=ctx.once, actor=ctx.actor)
        return _mode(session, changed)


def _mode(session: Session, changed: bool = False) -> ModeShown:
    names = [one.name for one in core_of(session).config.agent.modes]
    return ModeShown(mode=session.mode.name, modes=names, changed=changed)


@get(SESSION + "/model", opt=READ, operation_id="get_model")
async def model(ctx: Context, session_id: SessionId, thread: Thread = "main") -> ModelShown:
    """Return the model of the next call, and the model that was chosen for this thread."""
    async with ctx.session(session_id, thread, current=True) as session:
        return _model(session)


@put(SESSION + "/model", opt=WRITE, operation_id="choose_model")
async def choose_model(
    ctx: Context, session_id: SessionId, data: JSONBody[ChooseModel], thread: Thread = "main"
) -> ModelShown:
    """Choose another model for this thread, or return to the model of the agent."""
    async with ctx.session(session_id, thread) as session:
        if data.model is None:
            return _model(session, await session.model.clear(mode=data.mode))
        ctx.choices(session).check_model(data.model)
        return _model(session, await session.model.set(data.model, mode=data.mode))


def _model(session: Session, changed: bool = False) -> ModelShown:
    return ModelShown(model=session.model.ref, chosen=session.model.chosen, changed=changed)


# State and usage


@get(SESSION + "/state", opt=READ, operation_id="get_state")
async def state(ctx: Context, session_id: SessionId) -> StateShown:
    """Return the user state, which all threads share."""
    async with ctx.session(session_id, current=True) as session:
        return StateShown(state=session.state.get())


@patch(SESSION + "/state", opt=WRITE, operation_id="change_state")
async def change_state(
    ctx: Context, session_id: SessionId, data: JSONBody[ChangeState]
) -> StateShown:
    """Set and remove entries of the user state. Concurrent changes of other entries are kept."""
    async with ctx.session(session_id) as session:
        if data.set:
            await session.state.update(data.set)
        if data.drop:
            await session.state.drop(*data.drop)
        return StateShown(state=session.state.get())


@put(SESSION + "/state", opt=WRITE, operation_id="replace_state")
async def replace_state(
    ctx: Context, session_id: SessionId, data: JSONBody[ReplaceState]
) -> StateShown:
    """Replace the whole user state."""
    async with ctx.session(session_id) as session:
        return StateShown(state=await session.state.replace(data.state))


@get(SESSION + "/usage", opt=READ, operation_id="get_usage")
async def usage(ctx: Context, session_id: SessionId, thread: Thread = "main") -> UsageShown:
    """Return the model usage of this thread, and of all threads together."""
    async with ctx.session(session_id, thread, current=True) as session:
        return UsageShown(thread=session.usage.get(), session=await session.usage_all())


# Permissions


@get(SESSION + "/permissions", opt=READ, operation_id="get_permissions")
async def permissions(
    ctx: Context, session_id: SessionId, thread: Thread = "main"
) -> PermissionsShown:
    """Return the permission rules of a session, and the grants of a thread."""
    async with ctx.session(session_id, thread, current=True) as session:
        return _permissions(session)


@put(SESSION + "/permissions", opt=DECIDE, operation_id="set_permission")
async def set_permission(
    ctx: Context, session_id: SessionId, data: JSONBody[SetRule]
) -> PermissionsShown:
    """Set the rule of a tool or a category in the whole session: allow, ask or deny. If the server
    requires two-person approval, no rule can be `allow`."""
    if data.rule == "allow":
        _check_one_person(ctx)
    async with ctx.session(session_id) as session:
        await session.permissions.set(tool=data.tool, category=data.category, rule=data.rule)
        return _permissions(session)


@post(SESSION + "/grants", status_code=200, opt=DECIDE, operation_id="grant")
async def grant(
    ctx: Context, session_id: SessionId, data: JSONBody[Grant], thread: Thread = "main"
) -> PermissionsShown:
    """Allow a tool or a category of tools without approval, until another driver takes over the
    session. Not available if the server requires two-person approval."""
    _check_one_person(ctx)
    async with ctx.session(session_id, thread) as session:
        await session.permissions.grant(tool=data.tool, category=data.category)
        return _permissions(session)


@delete(SESSION + "/grants", status_code=200, opt=DECIDE, operation_id="revoke_grants")
async def revoke(
    ctx: Context,
    session_id: SessionId,
    tool: Text = None,
    category: Text = None,
    thread: Thread = "main",
) -> PermissionsShown:
    """Revoke the grant of a tool or a category, or all grants."""
    async with ctx.session(session_id, thread) as session:
        await session.permissions.revoke(tool=tool, category=category)
        return _permissions(session)


def _check_one_person(ctx: RequestContext) -> None:
    """Reject a permission rule or a grant if the server requires two-person approval, because one
    user could then approve calls alone."""
    if ctx.service.settings.two_person:
        raise Forbidden(
            problem="this server requires two-person approval, so standing "
            "permissions cannot be set: decide on each call separately"
        )


def _permissions(session: Session) -> PermissionsShown:
    rules, grants = session.permissions.rules, session.permissions.grants
    return PermissionsShown(
        tools=rules.tools,
        categories=rules.categories,
        granted_tools=[*grants.tools],
        granted_categories=[*grants.categories],
    )


HANDLERS: list[Any] = [
    *(display, mode, switch_mode, model, choose_model),
    *(state, change_state, replace_state, usage, permissions, set_permission, grant, revoke),
]

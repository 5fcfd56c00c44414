"""Where a session stands, and what it is set to: mode, model, state, usage, display, rules."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Response, delete, get, patch, post, put
from litestar.params import JSONBody, QueryParameter
from msgspec.structs import replace

from ...errors import Forbidden
from ...harness.session.session import Session, core_of
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
from ..http.context import Ask, Asking, SessionId, Thread
from .sessions import SEALED

READ = {"scope": "sessions:read"}
WRITE = {"scope": "sessions:write"}
DECIDE = {"scope": "pending:decide"}
BASE = "/sessions/{session_id:str}"
Text = Annotated[str | None, QueryParameter(min_length=1, max_length=400)]


@get(BASE + "/display", opt=READ, operation_id="get_display")
async def display(
    ask: Ask, session_id: SessionId, thread: Thread = "main"
) -> Response[DisplayShown]:
    """What a person is to see of a session at this moment, as one value."""
    async with ask.session(session_id, thread) as session:
        core = core_of(session)
        await core.catch_up()
        row = await core.live.store.row(core.key)
        shown = session.display.get()
    if row is not None and row.sealed is not None:
        shown = replace(shown, phase=SEALED, running=False, queued=0, pending={})
    text: Any = to_json(shown)
    return Response(text, media_type=MediaType.JSON)


# Mode and model


@get(BASE + "/mode", opt=READ, operation_id="get_mode")
async def mode(ask: Ask, session_id: SessionId, thread: Thread = "main") -> ModeShown:
    """The mode that the agent works in, and those that there are."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        return _mode(session)


@put(BASE + "/mode", opt=WRITE, operation_id="switch_mode")
async def switch_mode(
    ask: Ask, session_id: SessionId, data: JSONBody[SwitchMode], thread: Thread = "main"
) -> ModeShown:
    """Work in another mode from the next step on; `text` is received as a message then."""
    async with ask.session(session_id, thread) as session:
        changed = await session.mode.switch(data.mode, data.text, key=ask.once, actor=ask.actor)
        return _mode(session, changed)


def _mode(session: Session, changed: bool = False) -> ModeShown:
    names = [one.name for one in core_of(session).config.agent.modes]
    return ModeShown(mode=session.mode.name, modes=names, changed=changed)


@get(BASE + "/model", opt=READ, operation_id="get_model")
async def model(ask: Ask, session_id: SessionId, thread: Thread = "main") -> ModelShown:
    """The model of the next call, and the thread's own choice."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        return _model(session)


@put(BASE + "/model", opt=WRITE, operation_id="choose_model")
async def choose_model(
    ask: Ask, session_id: SessionId, data: JSONBody[ChooseModel], thread: Thread = "main"
) -> ModelShown:
    """Use another model from now on, or leave the choice to the agent again."""
    async with ask.session(session_id, thread) as session:
        if data.model is None:
            return _model(session, await session.model.clear(mode=data.mode))
        ask.choices(session).check_model(data.model)
        return _model(session, await session.model.set(data.model, mode=data.mode))


def _model(session: Session, changed: bool = False) -> ModelShown:
    return ModelShown(model=session.model.ref, chosen=session.model.chosen, changed=changed)


# State and usage


@get(BASE + "/state", opt=READ, operation_id="get_state")
async def state(ask: Ask, session_id: SessionId) -> StateShown:
    """The user state, which all threads share."""
    async with ask.session(session_id) as session:
        await core_of(session).catch_up()
        return StateShown(state=session.state.get())


@patch(BASE + "/state", opt=WRITE, operation_id="change_state")
async def change_state(ask: Ask, session_id: SessionId, data: JSONBody[ChangeState]) -> StateShown:
    """Set entries and drop others; those that others set at the same time are kept."""
    async with ask.session(session_id) as session:
        if data.set:
            await session.state.update(data.set)
        if data.drop:
            await session.state.drop(*data.drop)
        return StateShown(state=session.state.get())


@put(BASE + "/state", opt=WRITE, operation_id="replace_state")
async def replace_state(
    ask: Ask, session_id: SessionId, data: JSONBody[ReplaceState]
) -> StateShown:
    """Set all of it."""
    async with ask.session(session_id) as session:
        return StateShown(state=await session.state.replace(data.state))


@get(BASE + "/usage", opt=READ, operation_id="get_usage")
async def usage(ask: Ask, session_id: SessionId, thread: Thread = "main") -> UsageShown:
    """What this thread has used of its models, and what all threads have."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        return UsageShown(thread=session.usage.get(), session=await session.usage_all())


# What is allowed


@get(BASE + "/permissions", opt=READ, operation_id="get_permissions")
async def permissions(ask: Ask, session_id: SessionId, thread: Thread = "main") -> PermissionsShown:
    """What the agent may do without asking, and what it may not do at all."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        return _permissions(session)


@put(BASE + "/permissions", opt=DECIDE, operation_id="set_permission")
async def set_permission(
    ask: Ask, session_id: SessionId, data: JSONBody[SetRule]
) -> PermissionsShown:
    """Allow, ask about or deny a tool or a category, in the whole session. Where two persons
    decide, nothing can be allowed for good."""
    if data.rule == "allow":
        _one_by_one(ask)
    async with ask.session(session_id) as session:
        await session.permissions.set(tool=data.tool, category=data.category, rule=data.rule)
        return _permissions(session)


@post(BASE + "/grants", status_code=200, opt=DECIDE, operation_id="grant")
async def grant(
    ask: Ask, session_id: SessionId, data: JSONBody[Grant], thread: Thread = "main"
) -> PermissionsShown:
    """Ask no more about a tool or a category, as long as this driver drives. Not where two
    persons decide."""
    _one_by_one(ask)
    async with ask.session(session_id, thread) as session:
        await session.permissions.grant(tool=data.tool, category=data.category)
        return _permissions(session)


@delete(BASE + "/grants", status_code=200, opt=DECIDE, operation_id="revoke_grants")
async def revoke(
    ask: Ask,
    session_id: SessionId,
    tool: Text = None,
    category: Text = None,
    thread: Thread = "main",
) -> PermissionsShown:
    """Ask again about one of them, or about all."""
    async with ask.session(session_id, thread) as session:
        await session.permissions.revoke(tool=tool, category=category)
        return _permissions(session)


def _one_by_one(ask: Asking) -> None:
    """Refuse to allow what nobody has asked for yet, where two persons have to agree: whoever
    asks later may be the same."""
    if ask.service.settings.two_person:
        raise Forbidden(problem="two persons decide here, about each call by itself")


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

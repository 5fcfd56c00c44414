"""What a request brings to a session that it begins: an agent, files, variables. All of it is
checked before anything is made, and what fails leaves nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import HoldfastError, InvalidValue, SessionExists, UnknownAgent
from ...harness.sandbox import NoSandbox
from ...harness.session.session import core_of
from ...log.events import Key
from ...wire import CreateSession, GetOrCreate
from ..engines import Engine, Place
from ..http.context import Asking
from ..service import Service
from . import manifest, variables
from .agents import Brought

IDENTITY = "holdfast.source"  # the entry of a session's metadata that says what was loaded


def check(service: Service, data: GetOrCreate) -> None:
    """Refuse what cannot be brought, having done nothing."""
    name, engine = service.engine(data.engine)
    wish = data.store
    service.places.check(
        None if wish is None else wish.kind, None if wish is None else wish.options
    )
    variables.check(data.envs, service.settings.envs)
    if data.envs and not hasattr(engine, "give"):
        problem, remedy = f"mean nothing to the engine {name!r}", "leave them out"
        raise InvalidValue(field="envs", problem=problem, remedy=remedy)
    service.loading.check(data.source, data.files)
    brought = data.source is not None
    if not brought:
        _check_agent(engine, data.agent)
    elif data.agent is not None:
        problem, remedy = "is given beside a source", "give one of them"
        raise InvalidValue(field="agent", problem=problem, remedy=remedy)
    choices = service.choices(engine, None if brought else engine.agent_key(data.agent))
    if choices is not None:
        choices.check_metadata(data.metadata)


def _check_agent(engine: Engine, agent: str | None) -> None:
    """Refuse an agent that the server has not: what somebody brought is theirs."""
    key = engine.agent_key(agent)
    if key in getattr(engine, "adopted", ()):
        raise UnknownAgent(agent=str(agent), available=engine.agents)


async def bring(
    service: Service, place: Place, id: str, data: GetOrCreate, *, new: bool, again: bool
) -> tuple[str, Brought]:
    """Fetch what a request brings; the key of the agent that is to serve."""
    name, engine = service.engine(data.engine)
    first = data.source is not None and new and not again
    if first and await place.store.row(Key(place.tenant, id, "main")) is not None:
        raise SessionExists(tenant=place.tenant, session=id)
    choices = service.choices(engine, None)
    brought = await service.loading.bring(data.source, data.files, name, choices)
    if brought.agent is None:
        return engine.agent_key(data.agent), brought
    agent = service.loading.adopt(brought.agent, engine, place.tenant)
    await service.loading.keep(place, brought.agent)
    return agent, brought


def told(brought: Brought) -> dict[str, object]:
    """What the session's metadata say of it."""
    if brought.identity is None:
        return {}
    return {IDENTITY: msgspec.to_builtins(brought.identity)}


async def settle(
    service: Service,
    engine: Engine,
    place: Place,
    id: str,
    agent: str,
    brought: Brought,
    given: Mapping[str, str],
) -> None:
    """Put what was brought where the session finds it. A session for which that fails is
    removed again."""
    try:
        if brought.agent is not None:  # it may have been forgotten meanwhile
            service.loading.adopt(brought.agent, engine, place.tenant)
            await service.loading.keep(place, brought.agent)
        give(engine, place, id, given)
        await _fill(engine, place, id, agent, brought)
    except BaseException:
        with contextlib.suppress(HoldfastError):
            await engine.delete(place, agent, id)
            await service.places.forget(place, id)
            await service.adopting.forget(place, agent)
        raise


def give(engine: Engine, place: Place, id: str, given: Mapping[str, str]) -> None:
    """Let a session's commands find these variables, as long as this process remembers them."""
    if given:
        engine.give(place, id, given)  # type: ignore[attr-defined]  # by `check`


async def give_again(service: Service, state: dict[str, Any], id: str, body: bytes) -> None:
    """Give a session the variables of a request that was answered before: the process that was
    given them may be gone. A session that is gone gets none."""
    told = msgspec.json.decode(body or b"null", type=CreateSession | None)
    given = None if told is None else told.envs
    names = service.settings.envs
    allowed = {name: value for name, value in (given or {}).items() if name in names}
    if allowed:
        ask = Asking(service, state)
        with contextlib.suppress(HoldfastError):  # what was answered stays answered
            place, row = await ask.find(id)
            _, engine, _ = await ask.engine_of(place, row)
            give(engine, place, id, allowed)


async def _fill(engine: Engine, place: Place, id: str, agent: str, brought: Brought) -> None:
    if not brought.files:
        return
    async with engine.open(place, agent, id) as session:
        files = brought.files
        if isinstance(core_of(session).config.sandbox, NoSandbox) and brought.agent is not None:
            files = {path: data for path, data in files.items() if path not in manifest.NAMES}
        folder = await core_of(session).place()
        for path, data in files.items():
            await folder.write(path, data)

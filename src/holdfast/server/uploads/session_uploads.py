"""Handles what a client uploads with a new session: an agent, files, and environment variables. All
uploads are checked before anything is created, and nothing remains after a failure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import HoldfastError, InvalidValue, SessionExists, UnknownAgent
from ...harness import NoSandbox, core_of
from ...log.events import Key
from ...wire import CreateSession, GetOrCreate
from ..engines import Engine, TenantStore, is_uploaded
from ..http.context import RequestContext
from ..service import Service
from . import manifest, variables
from .agents import Upload

IDENTITY = "holdfast.source"  # the metadata of a session that identifies its uploaded agent


def check(service: Service, data: GetOrCreate) -> None:
    """Reject invalid uploads before anything is done."""
    name, engine = service.engine(data.engine)
    wish = data.store
    service.places.check(
        None if wish is None else wish.kind, None if wish is None else wish.options
    )
    variables.check(data.envs, service.settings.envs)
    if data.envs and not hasattr(engine, "give"):
        raise InvalidValue(
            field="envs",
            problem=f"is not supported by engine {name!r}",
            remedy="omit it",
        )
    service.uploads.check(data.source, data.files)
    key = engine.agent_key(data.agent) if data.source is None else None
    if key is not None and is_uploaded(engine, key):  # it belongs to the tenant that uploaded it
        raise UnknownAgent(agent=str(data.agent), available=engine.agents)
    if data.source is not None and data.agent is not None:
        raise InvalidValue(
            field="agent",
            problem="cannot be combined with source",
            remedy="pass only one of them",
        )
    choices = service.choices(engine, key)
    if choices is not None:
        choices.check_metadata(data.metadata)


async def bring(
    service: Service, place: TenantStore, id: str, data: GetOrCreate, *, new: bool, again: bool
) -> tuple[str, Upload]:
    """Fetch the uploads of a request. Returns the key of the session's agent, and the uploads."""
    name, engine = service.engine(data.engine)
    first = data.source is not None and new and not again
    if first and await place.store.row(Key(place.tenant, id, "main")) is not None:
        raise SessionExists(tenant=place.tenant, session=id)
    choices = service.choices(engine, None)
    brought = await service.uploads.bring(data.source, data.files, name, choices)
    if brought.agent is None:
        return engine.agent_key(data.agent), brought
    return await service.uploads.add(place, brought.agent), brought


def told(brought: Upload) -> dict[str, object]:
    """Return the session metadata that identifies the uploaded agent."""
    if brought.identity is None:
        return {}
    return {IDENTITY: msgspec.to_builtins(brought.identity)}


async def settle(
    service: Service,
    engine: Engine,
    place: TenantStore,
    id: str,
    agent: str,
    brought: Upload,
    given: Mapping[str, str],
) -> None:
    """Store the uploads of a new session. If that fails, the session is deleted again."""
    try:
        if brought.agent is not None:  # it may have been dropped meanwhile
            await service.uploads.add(place, brought.agent)
        give(engine, place, id, given)
        await _fill(engine, place, id, agent, brought)
    except BaseException:
        with contextlib.suppress(HoldfastError):
            await engine.delete(place, agent, id)
            await service.places.forget(place, id)
            await service.uploads.forget(place, agent)
        raise


def give(engine: Engine, place: TenantStore, id: str, given: Mapping[str, str]) -> None:
    """Set environment variables for the commands of a session. They are kept in the memory of this
    process."""
    if given:
        engine.give(place, id, given)  # type: ignore[attr-defined]  # by `check`


async def give_again(service: Service, state: dict[str, Any], id: str, body: bytes) -> None:
    """Set the environment variables of a repeated request, since the process that had them in
    memory may have ended. Has no effect if the session was deleted."""
    told = msgspec.json.decode(body or b"null", type=CreateSession | None)
    given = None if told is None else told.envs
    names = service.settings.envs
    allowed = {name: value for name, value in (given or {}).items() if name in names}
    if allowed:
        ctx = RequestContext(service, state)
        with contextlib.suppress(HoldfastError):  # the stored response stays valid
            place, row = await ctx.find(id)
            give((await ctx.engine_of(place, row)).engine, place, id, allowed)


async def _fill(engine: Engine, place: TenantStore, id: str, agent: str, brought: Upload) -> None:
    if not brought.files:
        return
    async with engine.open(place, agent, id) as session:
        files = brought.files
        if isinstance(core_of(session).config.sandbox, NoSandbox) and brought.agent is not None:
            files = {path: data for path, data in files.items() if path not in manifest.NAMES}
        folder = await core_of(session).place()
        for path, data in files.items():
            await folder.write(path, data)

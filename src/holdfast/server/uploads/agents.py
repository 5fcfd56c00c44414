"""Agents that clients upload. They are checked before any work is done, identified by a hash of
their content, and stored where every replica can find them.

The manifest of an agent is stored next to its sessions, under a reserved tenant. Any replica can
therefore find the agent of a session and resume it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import (
    BlobNotFound,
    HeadMoved,
    InvalidAgent,
    InvalidValue,
    SessionNotFound,
    UnknownAgent,
    UnknownLoader,
)
from ...harness import Tool
from ...log import events as ev
from ...log.catalog import Query, Row
from ...log.codec import LIMITS
from ...log.events import Key, NewEvent, Scope
from ...stores.pages import every_row
from ...values.records import Remains
from ...wire import File, Source
from ..engines import Engine, TenantStore, serving
from ..loaders import AgentIdentity, Loader, check_uploads, fetch
from ..run_choices import Choices
from . import manifest
from .manifest import AgentManifest

TENANT = "~agents:"  # + the tenant of the agents
SHA = 24  # digits of the hash in an agent's key
_ODD = re.compile(r"[^a-z0-9]+")

Harden: TypeAlias = Callable[[AgentManifest], AgentManifest]


class StoredAgent(Struct, frozen=True):
    """A stored agent that a client uploaded: its engine and its manifest."""

    engine: str
    described: AgentManifest

    @property
    def key(self) -> str:
        """The key of the agent in rows, which depends on its content only."""
        name = _ODD.sub("-", self.described.name.lower()).strip("-")[:40] or "agent"
        return f"{name}@{hashlib.sha256(self.data).hexdigest()[:SHA]}"

    @property
    def data(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


class Upload(Struct, frozen=True):
    """The uploads of a request: files for the work folder, and an agent, if there is one."""

    files: dict[str, bytes]
    agent: StoredAgent | None = None
    identity: AgentIdentity | None = None


class UploadedAgents:
    """The agents that clients have uploaded to a server. They are fetched by its loaders and served
    by its engines. A replica that finds a session of such an agent starts to serve the agent. An
    agent is deleted with its last session. `tools` are the tools that uploaded agents may use;
    `harden` changes their manifests."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        loaders: Mapping[str, Loader],
        tools: Sequence[Tool],
        harden: Harden | None,
    ) -> None:
        self._engines, self._loaders = engines, dict(loaders)
        self._tools = {tool.name: tool for tool in tools}
        self._harden = harden

    @property
    def names(self) -> list[str]:
        return sorted(self._loaders)

    def check(self, source: Source | None, files: Sequence[File]) -> None:
        """Reject invalid uploads before any work is done. Raises `UnknownLoader` or
        `InvalidValue`."""
        if source is not None:
            if source.loader not in self._loaders:
                raise UnknownLoader(loader=source.loader, available=self.names)
            self._loaders[source.loader].check(source.source)
        check_uploads(files)
        for file in files:
            file.data()

    async def bring(
        self,
        source: Source | None,
        files: Sequence[File],
        engine: str,
        choices: Choices | None = None,
    ) -> Upload:
        """Fetch an agent. Files and options of the request override those of the agent. Then
        `harden` changes the manifest, and `choices` restricts the models and limits."""
        given = {file.path: file.data() for file in files}
        if source is None:
            return Upload(files=given)
        loaded, found = await fetch(self._loaders[source.loader], source.source)
        whole = {**msgspec.to_builtins(loaded.described), **source.options}
        described = wanted = manifest.described(whole, "options")
        manifest.check_asks(described)
        if self._harden is not None:
            described = self._harden(described)
        if choices is not None:
            choices.check_described(wanted, described)
        kept = StoredAgent(engine, described)
        return Upload(files={**found, **given}, agent=kept, identity=loaded.identity)

    async def add(self, place: TenantStore, kept: StoredAgent) -> str:
        """Serve an agent for a tenant, and store it next to its sessions. Returns the agent's key.
        Repeating the call has no effect."""
        self._serve(kept, place.tenant)
        await self._keep(place, kept)
        return kept.key

    def _serve(self, kept: StoredAgent, tenant: str) -> None:
        adopt = getattr(self._engines[kept.engine], "adopt", None)
        if adopt is None:
            raise InvalidValue(
                field="engine",
                problem="does not support uploaded agents",
                remedy="choose another engine",
            )
        try:
            adopt(kept.described.agent(self._tools, key=kept.key), tenant)
        except InvalidAgent as error:
            raise InvalidValue(
                field="source", problem="; ".join(error.faults), remedy="correct the manifest"
            ) from error

    async def adopt(self, place: TenantStore, row: Row) -> None:
        """Serve the agent of a session if it was uploaded, to this replica or to another."""
        if self._loaders and row.agent is not None:
            try:
                serving(self._engines, row.agent, place.tenant)
            except UnknownAgent:
                await self._adopt(place, row.agent)

    async def _adopt(self, place: TenantStore, agent: str) -> Any:
        """Serve an agent that is stored in a store. Returns its engine, or None if the agent is not
        stored or its engine does not exist."""
        kept = await self._kept(place, agent)
        if kept is None or kept.engine not in self._engines:
            return None
        self._serve(kept, place.tenant)
        return self._engines[kept.engine]

    async def take_up(self, place: TenantStore) -> None:
        """Resume the unfinished runs of uploaded agents."""
        for agent in await self._undone(place):
            if (engine := await self._adopt(place, agent)) is not None:
                await engine.take_up(place, agent)

    async def clear(self, place: TenantStore, row: Row) -> tuple[Remains, ...]:
        """Delete the data of a session that is not in its store, such as its work folder. Returns
        the data that could not be deleted."""
        await self.adopt(place, row)
        with contextlib.suppress(UnknownAgent):
            _, engine, agent = serving(self._engines, row.agent, place.tenant)
            if (clear := getattr(engine, "clear", None)) is not None:
                return await clear(place, agent, row.session) or ()
        return ()

    async def forget(self, place: TenantStore, agent: str) -> None:
        """Delete an uploaded agent that no session uses."""
        if self._loaders and await self._delete(place, agent):
            with contextlib.suppress(UnknownAgent):
                engine: Any = serving(self._engines, agent, place.tenant).engine
                await engine.drop(place, agent)

    async def tidy(self, place: TenantStore) -> None:
        """Delete all uploaded agents that no session uses."""
        if self._loaders:
            for agent in await self.all(place):
                await self.forget(place, agent)

    # Stored agents

    async def _keep(self, place: TenantStore, kept: StoredAgent) -> None:
        where = Key(TENANT + place.tenant, kept.key, "main")
        if await self._kept(place, kept.key) is not None:
            return
        with contextlib.suppress(HeadMoved):  # it exists
            event = NewEvent.of("session.created", ev.SessionCreated())
            await place.store.append(where, [event], expected=0, create=True)
        await place.store.put_blob(where.scope, kept.data)

    async def _kept(self, place: TenantStore, agent: str) -> StoredAgent | None:
        """Return a stored agent by its key, if it exists."""
        if "@" not in agent:
            return None
        scope = Scope(TENANT + place.tenant, agent)
        try:
            for ref in await place.store.blobs(scope):
                data = await place.store.get_blob(scope, ref)
                kept = msgspec.json.decode(data, type=StoredAgent)
                if kept.key == agent:
                    return kept
        except (BlobNotFound, SessionNotFound):  # it was deleted meanwhile
            pass
        return None

    async def _undone(self, place: TenantStore) -> list[str]:
        """Return the keys of the agents with unfinished runs."""
        agents = await self.all(place)
        if not agents:
            return []
        wheres = await place.store.runnable(place.tenant, agents=agents, limit=LIMITS.page)
        mains = {Key(where.tenant, where.session, "main") for where in wheres}
        rows = [await place.store.row(where) for where in mains]
        return sorted({row.agent for row in rows if row is not None and row.agent is not None})

    async def _delete(self, place: TenantStore, agent: str) -> bool:
        """Delete a stored agent if no session uses it. Returns whether it was deleted."""
        kept = await self._kept(place, agent)
        if kept is None or await self._used(place, agent):
            return False
        await place.store.delete(Scope(TENANT + place.tenant, agent))
        if await self._used(place, agent):  # a session was created meanwhile
            await self._keep(place, kept)
            return False
        return True

    async def _used(self, place: TenantStore, agent: str) -> bool:
        page = await place.store.find(Query(tenant=place.tenant, agent=agent), limit=1)
        return bool(page.items)

    async def all(self, place: TenantStore) -> list[str]:
        """Return the keys of all agents that are stored in this store."""
        query = Query(tenant=TENANT + place.tenant, order="created")
        return [row.session async for row in every_row(place.store, query, batch=100)]

"""Agents that clients upload: checked before any work is done, identified by their content, and
stored where every replica finds them.

The manifest of an agent is stored next to its sessions, under a reserved tenant. So any replica can
resume a session by its row alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ...errors import (
    BlobNotFound,
    HeadMoved,
    InvalidAgent,
    InvalidValue,
    SessionNotFound,
    UnknownLoader,
)
from ...harness import Agent, Tool
from ...log import events as ev
from ...log.catalog import Query
from ...log.codec import LIMITS
from ...log.events import Key, NewEvent, Scope
from ...stores.pages import every_row
from ...wire import File, Source
from ..engines import Engine, TenantStore
from ..loaders import AgentIdentity, Loader, check_uploads, fetch
from ..run_choices import Choices
from . import manifest
from .manifest import AgentManifest

TENANT = "~agents:"  # + the tenant of the agents
SHA = 24  # digits of the hash in an agent's key
_ODD = re.compile(r"[^a-z0-9]+")

Harden: TypeAlias = Callable[[AgentManifest], AgentManifest]


class StoredAgent(Struct, frozen=True):
    """An uploaded agent as it is stored: its engine and its manifest."""

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
    """The uploads of a request: files for the work folder, and an agent if there is one."""

    files: dict[str, bytes]
    agent: StoredAgent | None = None
    identity: AgentIdentity | None = None


class AgentLoaders:
    """The loaders of a server by name, the tools that uploaded agents may use, and `harden`, which
    changes their manifests."""

    def __init__(
        self,
        loaders: Mapping[str, Loader],
        tools: Sequence[Tool] = (),
        harden: Harden | None = None,
    ) -> None:
        self._loaders = dict(loaders)
        self._tools = {tool.name: tool for tool in tools}
        self._harden = harden

    @property
    def names(self) -> list[str]:
        return sorted(self._loaders)

    def check(self, source: Source | None, files: Sequence[File]) -> None:
        """Reject invalid uploads before anything is done (`UnknownLoader`, `InvalidValue`)."""
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
        """Fetch an agent. Files and options of the request replace those of the agent. `harden`
        then changes the manifest, and `choices` restrict what the client has chosen."""
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

    def adopt(self, kept: StoredAgent, engine: Engine, tenant: str) -> str:
        """Serve an agent for a tenant by an engine; returns the agent's key."""
        adopt = getattr(engine, "adopt", None)
        if adopt is None:
            raise InvalidValue(
                field="engine", problem="does not serve uploaded agents", remedy="use another"
            )
        try:
            adopt(self._agent(kept), tenant)
        except InvalidAgent as error:
            raise InvalidValue(
                field="source", problem="; ".join(error.faults), remedy="correct the manifest"
            ) from error
        return kept.key

    def _agent(self, kept: StoredAgent) -> Agent:
        return kept.described.agent(self._tools, key=kept.key)

    # Stored agents

    async def keep(self, place: TenantStore, kept: StoredAgent) -> None:
        """Store an agent next to its sessions. Repeating it has no effect."""
        where = Key(TENANT + place.tenant, kept.key, "main")
        if await self.kept(place, kept.key) is not None:
            return
        with contextlib.suppress(HeadMoved):  # it exists
            event = NewEvent.of("session.created", ev.SessionCreated())
            await place.store.append(where, [event], expected=0, create=True)
        await place.store.put_blob(where.scope, kept.data)

    async def kept(self, place: TenantStore, agent: str) -> StoredAgent | None:
        """A stored agent by its key, if there is one."""
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

    async def undone(self, place: TenantStore) -> list[str]:
        """The agents with unfinished runs."""
        agents = [agent async for agent in self.all(place)]
        if not agents:
            return []
        wheres = await place.store.runnable(place.tenant, agents=agents, limit=LIMITS.page)
        mains = {Key(where.tenant, where.session, "main") for where in wheres}
        rows = [await place.store.row(where) for where in mains]
        return sorted({row.agent for row in rows if row is not None and row.agent is not None})

    async def forget(self, place: TenantStore, agent: str) -> bool:
        """Delete a stored agent that no session needs; whether it was deleted."""
        kept = await self.kept(place, agent)
        if kept is None or await self._used(place, agent):
            return False
        await place.store.delete(Scope(TENANT + place.tenant, agent))
        if await self._used(place, agent):  # a session was created meanwhile
            await self.keep(place, kept)
            return False
        return True

    async def _used(self, place: TenantStore, agent: str) -> bool:
        page = await place.store.find(Query(tenant=place.tenant, agent=agent), limit=1)
        return bool(page.items)

    async def all(self, place: TenantStore) -> AsyncIterator[str]:
        """The keys of all agents that are stored there."""
        query = Query(tenant=TENANT + place.tenant, order="created")
        async for row in every_row(place.store, query, batch=100):
            yield row.session

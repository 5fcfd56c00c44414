"""Agents that clients bring: checked before any work is done for them, named by what they are,
and kept where every replica finds them again.

What is kept of one is its description, beside the sessions that it serves, under a tenant of the
server's own. So a session's row says enough to go on with it anywhere.
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
from ...harness.agents.agent import Agent
from ...harness.tools import Tool
from ...log import events as ev
from ...log.catalog import Query
from ...log.codec import LIMITS
from ...log.events import Key, NewEvent, Scope
from ...wire import File, Source
from ..engines import Engine, Place
from ..loaders import FILES, Identity, Loader, check_path, fetch
from ..run_choices import Choices
from . import manifest
from .manifest import Described

TENANT = "~agents:"  # + the tenant whose agents they are
SHA = 24  # digits of the hash in an agent's key
_ODD = re.compile(r"[^a-z0-9]+")

Harden: TypeAlias = Callable[[Described], Described]


class Kept(Struct, frozen=True):
    """An agent as it is kept: by whom it is served, and what it is."""

    engine: str
    described: Described

    @property
    def key(self) -> str:
        """What rows call it: the same for the same agent, and for no other."""
        name = _ODD.sub("-", self.described.name.lower()).strip("-")[:40] or "agent"
        return f"{name}@{hashlib.sha256(self.data).hexdigest()[:SHA]}"

    @property
    def data(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


class Brought(Struct, frozen=True):
    """An agent that a request brings, and what is to be in the work folder. Without an agent,
    only the files."""

    files: dict[str, bytes]
    agent: Kept | None = None
    identity: Identity | None = None


class Loading:
    """The loaders of a server by name, the tools that described agents may use, and what is
    said last about them: `harden`."""

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
        """Refuse what cannot be brought, having done nothing (`UnknownLoader`)."""
        if source is not None:
            if source.loader not in self._loaders:
                raise UnknownLoader(loader=source.loader, available=self.names)
            self._loaders[source.loader].check(source.source)
        if len(files) > FILES:
            problem, remedy = f"are {len(files)}", f"send at most {FILES}"
            raise InvalidValue(field="files", problem=problem, remedy=remedy, limit=FILES)
        for file in files:
            check_path(file.path)
            file.data()

    async def bring(
        self,
        source: Source | None,
        files: Sequence[File],
        engine: str,
        choices: Choices | None = None,
    ) -> Brought:
        """Fetch an agent, with the request's files over its own, and the request's options over
        what its description says. It may choose what clients may choose. What `harden` makes of
        that is final."""
        given = {file.path: file.data() for file in files}
        if source is None:
            return Brought(files=given)
        loaded, found = await fetch(self._loaders[source.loader], source.source)
        whole = {**msgspec.to_builtins(loaded.described), **source.options}
        described = wanted = manifest.described(whole, "options")
        manifest.check_asks(described)
        if self._harden is not None:
            described = self._harden(described)
        if choices is not None:
            choices.check_described(wanted, described)
        kept = Kept(engine, described)
        return Brought(files={**found, **given}, agent=kept, identity=loaded.identity)

    def adopt(self, kept: Kept, engine: Engine, tenant: str) -> str:
        """Have an engine serve an agent for a tenant; its key."""
        adopt = getattr(engine, "adopt", None)
        if adopt is None:
            problem, remedy = "serves no agents that are brought", "ask for another"
            raise InvalidValue(field="engine", problem=problem, remedy=remedy)
        try:
            adopt(self._agent(kept), tenant)
        except InvalidAgent as error:
            problem, remedy = "; ".join(error.faults), "mend its description"
            raise InvalidValue(field="source", problem=problem, remedy=remedy) from error
        return kept.key

    def _agent(self, kept: Kept) -> Agent:
        return kept.described.agent(self._tools, key=kept.key)

    # What is kept

    async def keep(self, place: Place, kept: Kept) -> None:
        """Keep an agent where its sessions are. Twice is fine."""
        where = Key(TENANT + place.tenant, kept.key, "main")
        if await self.kept(place, kept.key) is not None:
            return
        with contextlib.suppress(HeadMoved):  # it is there
            event = NewEvent.of("session.created", ev.SessionCreated())
            await place.store.append(where, [event], expected=0, create=True)
        await place.store.put_blob(where.scope, kept.data)

    async def kept(self, place: Place, agent: str) -> Kept | None:
        """An agent by its key, if one is kept."""
        if "@" not in agent:
            return None
        scope = Scope(TENANT + place.tenant, agent)
        try:
            for ref in await place.store.blobs(scope):
                data = await place.store.get_blob(scope, ref)
                kept = msgspec.json.decode(data, type=Kept)
                if kept.key == agent:
                    return kept
        except (BlobNotFound, SessionNotFound):  # it went meanwhile
            pass
        return None

    async def undone(self, place: Place) -> list[str]:
        """The agents whose sessions want a driver."""
        agents = [agent async for agent in self.all(place)]
        if not agents:
            return []
        wheres = await place.store.runnable(place.tenant, agents=agents, limit=LIMITS.page)
        mains = {Key(where.tenant, where.session, "main") for where in wheres}
        rows = [await place.store.row(where) for where in mains]
        return sorted({row.agent for row in rows if row is not None and row.agent is not None})

    async def forget(self, place: Place, agent: str) -> bool:
        """Forget an agent that no session needs any more; whether that was done."""
        kept = await self.kept(place, agent)
        if kept is None or await self._used(place, agent):
            return False
        await place.store.delete(Scope(TENANT + place.tenant, agent))
        if await self._used(place, agent):  # begun meanwhile
            await self.keep(place, kept)
            return False
        return True

    async def _used(self, place: Place, agent: str) -> bool:
        page = await place.store.find(Query(tenant=place.tenant, agent=agent), limit=1)
        return bool(page.items)

    async def all(self, place: Place) -> AsyncIterator[str]:
        """The keys of all agents that are kept there."""
        cursor: str | None = None
        while True:
            query = Query(tenant=TENANT + place.tenant, order="created")
            page = await place.store.find(query, cursor=cursor, limit=100)
            for row in page.items:
                yield row.session
            if (cursor := page.cursor) is None:
                return

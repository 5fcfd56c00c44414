"""The engine `claude-agent-sdk` of a server: agents that use the Claude Agent SDK as their model.
Any replica of the server can continue their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ...harness import Agent, Harness
from ...log import events as ev
from ...log.catalog import Query
from ...log.codec import typed
from ...log.events import Key, Scope
from ...server.engines import HoldfastEngine, TenantStore
from ...stores.port import Store
from ...values.records import Receipt, Remains
from .provider import NAMESPACE, ClaudeProvider
from .reader import all_rows
from .store import ClaudeSessionStore

TENANT = (
    "~claude:"  # prefix of the tenant with the SDK's own sessions, which are not listed for users
)


class ClaudeEngine(HoldfastEngine):
    """An engine whose harness uses the SDK as its model. The SDK's own sessions are in the same
    store, and are deleted together with the Holdfast session that uses them."""

    def __init__(
        self,
        agents: Mapping[str, Agent] | Sequence[Agent],
        *,
        model: str,
        claude: Mapping[str, Any],
        **settings: Any,
    ) -> None:
        self._cwd = claude.get("cwd")

        def harness(agent: Agent, *, store: Store | str, tenant: str, **more: Any) -> Harness:
            def envs(session: str) -> Mapping[str, str]:
                return self._envs.of(Scope(tenant, session))

            provider = ClaudeProvider(store, tenant=TENANT + tenant, envs=envs, **claude)
            given = {"default_model": f"{NAMESPACE}/{model}", **more}
            given["providers"] = [provider, *given.pop("providers", ())]
            return Harness(agent, store=store, tenant=tenant, **given)

        super().__init__(agents, harness=harness, **settings)

    def give(self, place: TenantStore, id: str, envs: Mapping[str, str]) -> None:
        """Set environment variables for the SDK's process of a session. They are kept until this
        process ends."""
        self._envs.give(Scope(place.tenant, id), envs)

    async def delete(self, place: TenantStore, agent: str, id: str) -> Receipt:
        await self.clear(place, agent, id)
        return await super().delete(place, agent, id)

    async def clear(self, place: TenantStore, agent: str, id: str) -> tuple[Remains, ...]:
        left = await super().clear(place, agent, id)
        self._envs.drop(Scope(place.tenant, id))
        if theirs := await _theirs(place, id):
            from claude_agent_sdk import project_key_for_directory  # noqa: PLC0415 - an extra

            sessions = ClaudeSessionStore(place.store, tenant=TENANT + place.tenant)
            project = await asyncio.to_thread(project_key_for_directory, self._cwd)
            for session in sorted(theirs):
                await sessions.delete({"project_key": project, "session_id": session})
        return left


def claude_engine(
    agents: Mapping[str, Agent] | Sequence[Agent],
    *,
    model: str = "claude-sonnet-4-5",
    cwd: str | None = None,
    allowed_tools: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ClaudeEngine:
    """Create an engine whose agents use the SDK as their model; `model` is the default model.

        create_app(engines={"claude-agent-sdk": claude_engine([desk])}, …)

    `cwd`, `allowed_tools`, `env` and `options` are passed to `ClaudeProvider`, `settings` to the
    harness.
    """
    claude = {"cwd": cwd, "allowed_tools": allowed_tools, "env": env, "options": options}
    return ClaudeEngine(agents, model=model, claude=claude, **settings)


async def _theirs(place: TenantStore, id: str) -> set[str]:
    """Return the ids of the SDK's sessions that a session has used, in any thread."""
    found: set[str] = set()
    for row in await all_rows(place.store, Query(tenant=place.tenant, session=id)):
        async for event in place.store.read(Key(row.tenant, row.session, row.thread)):
            if isinstance(payload := typed(event), ev.MessageCompleted):
                bound = [part.get("claude") for part in payload.parts if isinstance(part, dict)]
                found |= {str(claude["session"]) for claude in bound if claude}
    return found

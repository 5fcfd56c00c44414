"""A pytest plugin for the session tests of the OpenAI Agents SDK: their sessions become
`HoldfastSession`.

`SQLiteSession` and `AsyncSQLiteSession` are replaced by it. The list of their own tests' session
stays a class of theirs, whose items are in a `HoldfastSession`. `suite` says on which store; a
database of theirs is a tenant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.extensions.memory
import agents.extensions.memory.async_sqlite_session as async_sqlite
import agents.extensions.memory.encrypt_session  # keeps their class: it has a way of its own for it
import agents.memory
import agents.memory.sqlite_session as sqlite
import suite  # type: ignore[import-not-found]
from tests.utils import simple_session  # type: ignore[import-not-found]

from holdfast.adapters.openai import HoldfastSession

MEMORY = ":memory:"

_tenants: dict[str, str] = {}


def _tenant(path: str | Path) -> str:
    """Return the tenant for a database of theirs; each database in memory is another one."""
    if str(path) == MEMORY:
        return str(suite.tenant())
    return _tenants.setdefault(str(path), suite.tenant())


class SQLiteSession(HoldfastSession):
    def __init__(
        self,
        session_id: str,
        db_path: str | Path = MEMORY,
        sessions_table: str = "",
        messages_table: str = "",
        *,
        session_settings: Any = None,
    ) -> None:
        tenant = _tenant(f"{db_path}{sessions_table}" if sessions_table else db_path)
        super().__init__(
            session_id, suite.store(), tenant=tenant, session_settings=session_settings
        )

    def close(self) -> None:  # type: ignore[override]
        """Theirs is a function. The store stays open for the other tests."""


class AsyncSQLiteSession(SQLiteSession):
    async def close(self) -> None:  # type: ignore[override]
        """Theirs has to be awaited."""


class Listed:
    """The methods of their list of items."""

    def __init__(self: Any, session_id: str = "test", history: Any = None) -> None:
        self.session_id = session_id
        self._ignore_ids_for_matching = False
        self.held = HoldfastSession(session_id, suite.store(), tenant=suite.tenant())
        if history:
            suite.wait(self.held.add_items, list(history))

    @property
    def _items(self: Any) -> list[Any]:
        return suite.wait(self.held.get_items)  # type: ignore[no-any-return]

    saved_items = _items

    async def get_items(self: Any, limit: int | None = None) -> list[Any]:
        return await self.held.get_items(limit)  # type: ignore[no-any-return]

    async def add_items(self: Any, items: list[Any]) -> None:
        await self.held.add_items(items)

    async def pop_item(self: Any) -> Any:
        return await self.held.pop_item()

    async def clear_session(self: Any) -> None:
        await self.held.clear_session()


for module in (agents, agents.memory, sqlite):
    module.SQLiteSession = SQLiteSession  # type: ignore[attr-defined]
for module in (agents.extensions.memory, async_sqlite):
    module.AsyncSQLiteSession = AsyncSQLiteSession  # type: ignore[attr-defined]
for name, value in vars(Listed).items():
    if name not in ("__dict__", "__weakref__", "__doc__", "__module__"):
        setattr(simple_session.SimpleListSession, name, value)

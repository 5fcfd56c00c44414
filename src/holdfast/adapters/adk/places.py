"""Maps ADK sessions to sessions of the store. Pure.

ADK identifies a session by app, user and id. In the store it has the same id, unless a session of
another app or user has that id: then a hash of app, user and id is appended to it. The row's
metadata identify the ADK session: `adk_app`, `adk_user` and, if the ids differ, `adk_session`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...log.catalog import Row
from ...log.events import Key
from ..json_values import is_name

AGENT = "adk"  # agent name of the sessions that this adapter creates
APP, USER, SESSION = "adk_app", "adk_user", "adk_session"

_QUALIFIED = re.compile(r"~[0-9a-f]{32}")
_PREFIX = 100  # characters of the original id in an id with a hash


class AdkKey(Struct, frozen=True):
    """The identity of an ADK session: app, user and id."""

    app: str
    user: str
    session: str

    def keys(self, tenant: str) -> list[Key]:
        """Return the keys of the logs in which the session may be stored, the preferred key first;
        empty if no store accepts its names."""
        names = (self.app, self.user, self.session)
        try:
            digest = hashlib.sha256(msgspec.json.encode(names)).hexdigest()[:32]
        except UnicodeEncodeError:
            return []
        prefix = self.session[:_PREFIX].replace("\0", "")
        keys = [Key(tenant, f"{prefix}~{digest}", "main")]
        if is_name(self.session) and not _QUALIFIED.fullmatch(self.session[-33:]):
            keys.insert(0, Key(tenant, self.session, "main"))
        return keys

    def owns(self, row: Row) -> bool:
        """Return whether a row belongs to this ADK session."""
        session = row.metadata.get(SESSION, row.session)
        found = (row.metadata.get(APP), row.metadata.get(USER), session)
        return found == (self.app, self.user, self.session)

    def may_open(self, row: Row) -> bool:
        """Return whether this ADK session may use a row: the row belongs to it, or to a session of
        another program with the same id, and with the same user or none, that no app of ADK has
        continued yet."""
        if APP in row.metadata:
            return self.owns(row)
        return row.session == self.session and row.user in (None, self.user)

    def find(self, rows: Sequence[Row | None]) -> Row | None:
        """Return the row of this session, or None. A row that belongs to it is preferred to a row
        that it may open."""
        found = [row for row in rows if row is not None and self.may_open(row)]
        return next((row for row in found if self.owns(row)), found[0] if found else None)

    def scope(self, name: str) -> tuple[str, ...]:
        """Return the names that identify the state of the app, or of the user in the app."""
        return (self.app,) if name == "app" else (self.app, self.user)

    @property
    def named(self) -> dict[str, Any]:
        """The metadata that identify the app and the user."""
        return {APP: self.app, USER: self.user}

    def metadata(self, session: str) -> dict[str, Any]:
        """Return the metadata for the row of this session, whose id in the store is `session`."""
        return self.named if session == self.session else {**self.named, SESSION: self.session}


def created(user: str | None, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the first event of a log. The user is included if the store accepts the
    name."""
    data: dict[str, Any] = {"agent": AGENT, "metadata": metadata}
    return {**data, "user": user} if is_name(user) else data

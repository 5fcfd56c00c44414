"""Which session of the store a session of ADK is. Pure.

ADK names a session by app, user and id. In the store it has the same id, unless a session of
another app or user has that id: then a digest of the three is added. The row tells whose it is, in
the metadata `adk_app`, `adk_user` and, if the ids differ, `adk_session`.
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
_PREFIX = 100  # characters of the id that a qualified one begins with


class Place(Struct, frozen=True):
    """The names of a session of ADK."""

    app: str
    user: str
    session: str

    def keys(self, tenant: str) -> list[Key]:
        """Return the logs that may be the session, the preferred one first; none if no store could
        have it."""
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
        """Return whether a session of the store is this one."""
        session = row.metadata.get(SESSION, row.session)
        found = (row.metadata.get(APP), row.metadata.get(USER), session)
        return found == (self.app, self.user, self.session)

    def may_open(self, row: Row) -> bool:
        """Return whether this is the session, or one of another program without a user, or with
        the same one, that no app of ADK has continued yet."""
        if APP in row.metadata:
            return self.owns(row)
        return row.session == self.session and row.user in (None, self.user)

    def find(self, rows: Sequence[Row | None]) -> Row | None:
        """Return the row of the session among those of `keys`."""
        found = [row for row in rows if row is not None and self.may_open(row)]
        return next((row for row in found if self.owns(row)), found[0] if found else None)

    def scope(self, name: str) -> tuple[str, ...]:
        """Return the names of the app, or of the user of the app."""
        return (self.app,) if name == "app" else (self.app, self.user)

    @property
    def named(self) -> dict[str, Any]:
        """The metadata of what belongs to the user of the app."""
        return {APP: self.app, USER: self.user}

    def metadata(self, session: str) -> dict[str, Any]:
        """Return the metadata of the session in the store that is this one."""
        return self.named if session == self.session else {**self.named, SESSION: self.session}


def created(user: str | None, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the first event of a log, which may belong to a user."""
    data: dict[str, Any] = {"agent": AGENT, "metadata": metadata}
    return {**data, "user": user} if is_name(user) else data

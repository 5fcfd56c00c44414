"""Converts between the SDK's keys and Holdfast's keys. Pure.

The id of a Holdfast session is the escaped project key and the escaped session id, separated by a
slash, so that it is unique for each pair. The main transcript is the thread `main`; the thread of a
sub-agent is `sub/` and its subpath.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import InvalidValue
from ...log.codec import check_key, check_name
from ...log.events import Key, Scope

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey, SessionListSubkeysKey

    AnyKey: TypeAlias = SessionKey | SessionListSubkeysKey

Aliases: TypeAlias = Mapping[str, str] | Callable[[str], str]

MAIN = "main"
SUB = "sub/"


@dataclass(eq=False, kw_only=True)
class InvalidKey(InvalidValue, ValueError):
    """Raised for an incomplete key of the SDK. It is also a `ValueError`, as other session stores
    raise.

    What to do: [`invalid_value`](../errors.md#invalid_value).
    """


class SessionKeys:
    """Converts keys of the SDK for one tenant, with aliases of project keys."""

    def __init__(self, tenant: str, aliases: Aliases | None) -> None:
        check_name("tenant", tenant)
        self.tenant = tenant
        self._aliases = aliases

    def project(self, project_key: str) -> str:
        """Return the project key to use for a project key of the SDK: its alias, or the key
        itself."""
        if isinstance(self._aliases, Mapping):
            project_key = self._aliases.get(project_key, project_key)
        elif self._aliases is not None:
            project_key = self._aliases(project_key)
        check_name("project_key", project_key)
        return project_key

    def scope(self, key: AnyKey) -> Scope:
        """Return the Holdfast session for a key of the SDK. The subpath is ignored."""
        project = self.project(part(key, "project_key"))
        session_id = part(key, "session_id")
        check_name("session_id", session_id)
        scope = Scope(self.tenant, session_name(project, session_id))
        check_key(scope)
        return scope

    def key(self, key: AnyKey) -> Key:
        """Return the log for a key of the SDK. Raises `InvalidKey` for a key without an id or with
        an empty subpath, and `InvalidValue` for names that exceed the limits."""
        scope = self.scope(key)
        log = Key(scope.tenant, scope.session, thread_name(subpath(key)))
        check_key(log)
        return log


def part(key: Any, name: str) -> str:
    """Return a required field of a key. Raises `InvalidKey` if it is missing."""
    value = key.get(name) if isinstance(key, Mapping) else None
    if not isinstance(value, str) or not value:
        raise InvalidKey(field=name, problem=f"is {value!r}", remedy="pass a non-empty string")
    return value


def subpath(key: Any) -> str | None:
    """Return the subpath of a key, or None for the main transcript. Raises `InvalidKey` if it is
    empty."""
    value = key.get("subpath")
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidKey(
            field="subpath", problem=f"is {value!r}", remedy="omit it for the main transcript"
        )
    return value


def session_name(project: str, session_id: str) -> str:
    """Return the Holdfast session id for a project key and a session id, unique for each pair."""
    return f"{_escape(project)}/{_escape(session_id)}"


def parts_of(name: str) -> tuple[str, str] | None:
    """Return the project key and session id from a name made by `session_name`; None for any other
    name."""
    project, slash, session_id = name.partition("/")
    found = _unescape(project), _unescape(session_id)
    return found if slash and all(found) and session_name(*found) == name else None


def thread_name(subpath: str | None) -> str:
    return MAIN if subpath is None else SUB + subpath


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _unescape(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")

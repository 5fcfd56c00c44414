"""The SDK's keys as Holdfast's, and back. Pure.

A session is the project key and the session id, each escaped, with a slash between: no two pairs
meet. The main transcript is the thread `main`, a sub-agent's is `sub/` and its subpath.
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
    """A key of the SDK that names nothing; also a `ValueError`, as such stores raise."""


class Keys:
    """The mapping for one tenant and its aliases, which name the project that another means."""

    def __init__(self, tenant: str, aliases: Aliases | None) -> None:
        check_name("tenant", tenant)
        self.tenant = tenant
        self._aliases = aliases

    def project(self, project_key: str) -> str:
        """The project that a key of the SDK means: itself, or what its alias says."""
        if isinstance(self._aliases, Mapping):
            project_key = self._aliases.get(project_key, project_key)
        elif self._aliases is not None:
            project_key = self._aliases(project_key)
        check_name("project_key", project_key)
        return project_key

    def scope(self, key: AnyKey) -> Scope:
        """The session of a key, whatever its subpath."""
        project = self.project(part(key, "project_key"))
        session_id = part(key, "session_id")
        check_name("session_id", session_id)
        scope = Scope(self.tenant, session_name(project, session_id))
        check_key(scope)
        return scope

    def key(self, key: AnyKey) -> Key:
        """The log of a key. `InvalidKey` for one without an id or with an empty subpath, and
        `InvalidValue` for names above the limits."""
        scope = self.scope(key)
        log = Key(scope.tenant, scope.session, thread_name(subpath(key)))
        check_key(log)
        return log


def part(key: Any, name: str) -> str:
    """One of the two parts that every key has."""
    value = key.get(name) if isinstance(key, Mapping) else None
    if not isinstance(value, str) or not value:
        raise InvalidKey(field=name, problem=f"is {value!r}", remedy="name one")
    return value


def subpath(key: Any) -> str | None:
    """The subpath of a key, None for the main transcript; an empty one is refused."""
    value = key.get("subpath")
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidKey(
            field="subpath", problem=f"is {value!r}", remedy="leave it out for the main transcript"
        )
    return value


def session_name(project: str, session_id: str) -> str:
    """One name for a pair; no other pair has it."""
    return f"{_escape(project)}/{_escape(session_id)}"


def parts_of(name: str) -> tuple[str, str] | None:
    """The pair that `session_name` made `name` of, None if it is not of that form."""
    project, slash, session_id = name.partition("/")
    found = _unescape(project), _unescape(session_id)
    return found if slash and all(found) and session_name(*found) == name else None


def thread_name(subpath: str | None) -> str:
    return MAIN if subpath is None else SUB + subpath


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _unescape(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")

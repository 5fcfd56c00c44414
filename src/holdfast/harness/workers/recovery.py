"""Recovery of runs: finds due logs that have no driver, skips logs that this process cannot drive,
and chooses in turn over the users of their sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ...environment import wall_clock
from ...log.catalog import Query, Row, is_due
from ...log.codec import LIMITS
from ...log.events import Key
from ...stores.port import Store
from .slots import Slots, Turns

SWEEP = 10_000  # logs that one sweep takes up; then the harness pauses for half a lease


class Found(NamedTuple):
    """Due logs. `more` says that there may be others, `blocked` that those which are left wait for
    a slot of their agent."""

    logs: list[Key]
    more: bool
    blocked: bool = False


class Profile(NamedTuple):
    user: str | None  # of the session
    agent: str  # of the thread


class DueLogs:
    """Finds the due logs of some agents. A log that cannot be driven is skipped until it grows. In
    one sweep, each log is recovered at most once.

    If more logs are due than there is room for, the users of their sessions take turns. For this it
    looks ahead: at the logs that have been due longest (one page), and if there are more, at those
    that became active since the last sweep (one page of sessions)."""

    def __init__(self, store: Store, tenant: str, agents: Sequence[str], slots: Slots) -> None:
        self._store, self._tenant, self._agents = store, tenant, agents
        self._slots = slots
        self._users = Turns[str | None]()
        self._profiles: dict[Key, Profile] = {}  # of the logs of the last search
        self._crowded = False  # the last search found more than there was room for
        self._recent: dict[Key, None] = {}  # due logs of recently active sessions
        self._seen = 0  # the sessions that were active until then were looked at
        self._looked = False  # at recently active sessions, in this sweep
        self._stuck: dict[Key, tuple[str, int]] = {}  # incarnation and last event
        self._tried: set[Key] = set()  # in this sweep
        self._failed: set[Key] = set()  # logs that failed in this sweep, and are still due
        self._cursor: str | None = None  # the next page of sessions that `_behind` reads

    def stuck(self, where: Key, log: str, head: int) -> None:
        """Record that a log cannot be driven in its current state."""
        self._stuck[where] = (log, head)

    def driven(self, where: Key) -> None:
        """Record that a log can be driven."""
        self._stuck.pop(where, None)

    def is_stuck(self, where: Key, log: str, head: int) -> bool:
        """Return whether a log has not changed since it could not be driven."""
        return self._stuck.get(where) == (log, head)

    def begin(self) -> None:
        """Start a new sweep, in which failed logs may be tried again."""
        self._tried.clear()
        self._failed.clear()
        self._looked = False

    def failed(self, where: Key) -> None:
        """Record that a log could not be opened or driven; it is skipped until the next sweep."""
        self._tried.add(where)
        self._failed.add(where)

    async def due(self, room: int, busy: Collection[Key]) -> Found:
        """Return the logs to drive now: in turn over users, the longest waiting of each first. At
        most `room` logs are returned, none that is `busy`, and none twice in a sweep."""
        agents = [agent for agent in self._agents if self._slots.left(agent) > 0]
        # Ask for more logs than there is room for, since some of them are skipped.
        passed = len(self._stuck) + len(self._failed) + len(busy)
        limit = LIMITS.page if self._crowded else min(LIMITS.page, room + passed + 1)
        due = await self._store.runnable(self._tenant, agents=agents, limit=limit)
        if len(due) == limit < LIMITS.page:  # look ahead
            limit = LIMITS.page
            due = await self._store.runnable(self._tenant, agents=agents, limit=limit)
        found = await self._new(due, busy)
        if len(due) == LIMITS.page:
            found += await self._new(await self._newest(found), busy)
        if not found and len(due) == LIMITS.page:
            found = await self._behind(room, busy)
        self._crowded = len(found) > room
        chosen = await self._in_turn(found, room)
        more = self._crowded or (bool(found) and len(due) == limit)
        self._tried.update(chosen)
        limited = self._slots.limits_agents and (
            len(agents) < len(self._agents) or len(chosen) < min(room, len(found))
        )
        more = (more or limited) and len(self._tried) < SWEEP
        return Found(chosen, more, blocked=limited and not chosen)

    async def _in_turn(self, found: Sequence[Key], room: int) -> list[Key]:
        """Return the first `room` logs that have a slot of their agent, in turn over users."""
        if not self._crowded and not self._slots.limits_agents:
            self._users.leave(*self._users)
            return [*found]
        await self._read_profiles(found)
        by_user: dict[str | None, list[Key]] = {}
        for where in found:
            by_user.setdefault(self._profiles[where].user, []).append(where)
        self._users.leave(*(user for user in self._users if user not in by_user))
        self._users.join(*by_user)
        left = {agent: self._slots.left(agent) for agent in self._agents}
        chosen: list[Key] = []
        while by_user and len(chosen) < room:
            for user in self._users:
                if user not in by_user or len(chosen) == room:
                    continue
                first = self._next(by_user[user], left)
                if first is None:
                    del by_user[user]
                elif await self._still(first):
                    if (agent := self._profiles[first].agent) in left:
                        left[agent] -= 1
                    chosen.append(first)
                    self._users.served(user)
        return chosen

    def _next(self, waiting: list[Key], left: dict[str, int]) -> Key | None:
        """Remove and return the first log whose agent has a slot left."""
        for place, where in enumerate(waiting):
            if left.get(self._profiles[where].agent, 1) > 0:
                return waiting.pop(place)
        return None

    async def _read_profiles(self, wheres: Sequence[Key]) -> None:
        """Read the users and agents of logs that the last search did not find."""
        known = {where: self._profiles[where] for where in wheres if where in self._profiles}
        new = [where for where in wheres if where not in known]
        mains = {Key(where.tenant, where.session, "main") for where in new}
        keys = [*dict.fromkeys([*new, *mains])]
        rows: dict[Key, Row | None] = {}
        for start in range(0, len(keys), LIMITS.page):
            page = keys[start : start + LIMITS.page]
            rows |= zip(page, await self._store.rows(page), strict=True)
        for where in new:
            row, main = rows[where], rows[Key(where.tenant, where.session, "main")]
            agent = "" if row is None else row.agent or ""
            known[where] = Profile(None if main is None else main.user, agent)
        self._profiles = known

    async def _newest(self, known: Iterable[Key]) -> list[Key]:
        """Return the due logs of sessions that were active since the last look, and those that
        earlier looks found. Only `main` threads: the others have been waiting for a run."""
        if not self._looked:
            self._looked = True
            now = wall_clock()
            query = Query(tenant=self._tenant, active_from=self._seen)
            rows = (await self._store.find(query, limit=LIMITS.page)).items
            due = [row.key for row in rows if row.agent in self._agents and is_due(row, now)]
            self._recent.update(dict.fromkeys(due))
            self._seen = min([row.active for row in rows[:1]] + [now])
            for where in [*self._recent][:-SWEEP]:
                del self._recent[where]
        passed = {*known, *self._tried}
        for where in passed & self._recent.keys():
            del self._recent[where]
        return [*self._recent]

    async def _still(self, where: Key) -> bool:
        """Return whether a log is still due; a recent one may have been driven meanwhile."""
        if where not in self._recent:
            return True
        del self._recent[where]
        row = await self._store.row(where)
        return row is not None and is_due(row, wall_clock())

    async def _new(self, due: Sequence[Key], busy: Collection[Key]) -> list[Key]:
        """Return the logs that this process does not drive and has not tried in this sweep."""
        found = []
        for where in due:
            if where in busy or where in self._tried:
                continue
            if await self._same(where):
                self._tried.add(where)
            else:
                found.append(where)
        return found

    async def _same(self, where: Key) -> bool:
        if where not in self._stuck:
            return False
        row = await self._store.row(where)
        return row is not None and self.is_stuck(where, row.log, row.head)

    async def _behind(self, room: int, busy: Collection[Key]) -> list[Key]:
        """Find due logs when stuck logs fill the whole page of runnable logs. Searches one page of
        sessions per call, and only their `main` threads. Other threads are found once fewer logs
        are stuck."""
        query = Query(tenant=self._tenant, order="created", newest_first=False)
        page = await self._store.find(query, cursor=self._cursor, limit=LIMITS.page)
        now = wall_clock()
        due = [
            row.key
            for row in page.items
            if row.agent in self._agents
            and is_due(row, now)
            and not self.is_stuck(row.key, row.log, row.head)
        ]
        found = await self._new(due, busy)
        if len(found) <= room:  # otherwise continue with the rest of this page
            self._cursor = page.cursor
        return found

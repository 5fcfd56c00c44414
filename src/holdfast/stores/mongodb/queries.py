"""Queries over many sessions: rows, `find`, the inbox, runnable logs, and events by id.

Each kind of query names its index explicitly, so that its query plan does not depend on the number
of sessions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, AsyncIterable, Sequence

from ...log import catalog
from ...log.catalog import Page, Pending, PendingQuery, Query, Row
from ...log.events import Key
from .. import rules
from .entry import LIVE, Document, digest, row_of
from .schema import MongoDatabase

MANY = 200  # heads whose sessions' users are looked up at a time

# The fields of a head document that `row_of` needs.
ROW = dict.fromkeys(("doc", "tenant", "session", "thread", "head", "created"), 1)


async def rows(db: MongoDatabase, keys: Sequence[Key]) -> list[Row | None]:
    """Return the rows of several logs with one query. The query has one condition for each
    combination of tenant and thread name (usually only one), which lists the sessions."""
    sessions: dict[tuple[str, str], list[str]] = {}
    for key in dict.fromkeys(keys):
        sessions.setdefault((key.tenant, key.thread), []).append(key.session)
    if not sessions:
        return []
    wanted = [
        {"tenant": tenant, "thread": thread, "session": {"$in": some}, "state": LIVE}
        for (tenant, thread), some in sessions.items()
    ]
    found = db.logs.find({"$or": wanted}, ROW, hint="key")
    by_key = {row.key: row for row in [row_of(doc) async for doc in found]}
    return [by_key.get(key) for key in keys]


async def find(
    db: MongoDatabase, query: Query, *, cursor: str | None = None, limit: int = 50
) -> Page[Row]:
    """Return one page of rows, and the total count if the query asks for it."""
    where, index = conditions(query)
    place = query.order
    behind = where
    if cursor is not None:
        value, tie = catalog.read_cursor(query, cursor)
        behind = {"$and": [where, _behind(place, value, str(tie), query.newest_first)]}
    way = -1 if query.newest_first else 1
    docs = await db.logs.find(
        behind,
        {**ROW, place: 1},
        sort=[(place, way), ("_id", way)],
        limit=limit + 1,
        hint=index,
    ).to_list()
    more = None
    if len(docs) > limit:
        last = docs[limit - 1]
        more = catalog.make_cursor(query, int(last[place]), last["_id"])
    total = await db.logs.count_documents(where, hint=index) if query.total else None
    return Page(items=[row_of(doc) for doc in docs[:limit]], cursor=more, total=total)


def _behind(place: str, value: int, tie: str, newest_first: bool) -> Document:
    """Return the condition for documents that come after (value, tie) in the sort order of a
    query."""
    sign = "lt" if newest_first else "gt"
    return {
        place: {f"${sign}e": value},
        "$or": [{place: {f"${sign}": value}}, {"_id": {f"${sign}": tie}}],
    }


def conditions(query: Query) -> tuple[Document, str]:
    """Return the filter of a query, and the name of the index that it uses."""
    where: Document = {"state": LIVE, "tenant": query.tenant}
    if query.session is None:
        where["thread"] = "main"
    for name in ("session", "user", "workspace", "agent", "run"):
        if (value := getattr(query, name)) is not None:
            where[name] = value
    if query.phases:
        where["phase"] = {"$in": list(query.phases)}
    for name, sign, value in (
        ("created", "$gte", query.created_from),
        ("created", "$lt", query.created_until),
        ("active", "$gte", query.active_from),
        ("active", "$lt", query.active_until),
        ("stale_at", "$lt", query.stale_until),
    ):
        if value is not None:
            where.setdefault(name, {})[sign] = value
    if terms := catalog.terms(query):
        where["terms"] = {"$all": [digest(*term) for term in terms]}
    return where, _index(query)


def _index(query: Query) -> str:
    if query.session is not None:
        return "threads"
    if catalog.terms(query):
        return "terms"
    if query.stale_until is not None:
        return "stale"
    for name in ("user", "workspace", "agent"):
        if getattr(query, name) is not None and (name != "agent" or query.order == "active"):
            return name
    return query.order


async def pending(
    db: MongoDatabase, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
) -> Page[Pending]:
    """Return one page of the inbox, oldest first.

    Heads are read in the order of their oldest pending item, so later heads have no items that are
    older than the oldest item of the current head. Reading stops once the page is full of such
    older items.
    """
    start: tuple[int, str] = (0, "")
    where, index = inbox_conditions(query)
    if cursor is not None:
        at, tie = catalog.read_cursor(query, cursor)
        start = (at, str(tie))
        where["waits_to"] = {"$gte": at}
    order = [(name, 1) for name in ("waits", "waits_to", "_id")]
    items: list[tuple[int, str, Pending]] = []
    found = db.logs.find(where, {**ROW, "waits": 1}, sort=order, hint=index)
    async with found.batch_size(limit + 1 if query.user is None else MANY) as heads:
        async for doc in _of_user(db, query, heads):
            if bisect_left(items, (doc["waits"], ""), key=_place) > limit:
                break
            row = row_of(doc)
            for item in catalog.pending_items(row):
                place = (item.at, f"{row.log}/{item.seq:020}")
                if place > start and catalog.pending_matches(query, item):
                    insort(items, (*place, item), key=_place)
    more = catalog.make_cursor(query, *items[limit - 1][:2]) if len(items) > limit else None
    return Page(items=[item for _, _, item in items[:limit]], cursor=more)


async def _of_user(
    db: MongoDatabase, query: PendingQuery, heads: AsyncIterable[Document]
) -> AsyncGenerator[Document, None]:
    """Yield the heads whose sessions belong to the requested user; users are looked up in
    batches."""
    some: list[Document] = []
    async for doc in heads:
        if query.user is None:
            yield doc
            continue
        some.append(doc)
        if len(some) == MANY:
            for one in await _theirs(db, query, some):
                yield one
            some = []
    for one in await _theirs(db, query, some) if some else ():
        yield one


async def _theirs(db: MongoDatabase, query: PendingQuery, some: list[Document]) -> list[Document]:
    rows = [row_of(doc) for doc in some]
    where: Document = {"state": LIVE, "tenant": query.tenant, "thread": "main", "user": query.user}
    where["session"] = {"$in": sorted({row.session for row in rows})}
    theirs = {doc["session"] async for doc in db.logs.find(where, {"session": 1})}
    return [doc for doc, row in zip(some, rows, strict=True) if row.session in theirs]


def _place(found: tuple[int, str, Pending]) -> tuple[int, str]:
    return found[:2]


def inbox_conditions(query: PendingQuery) -> tuple[Document, str]:
    """Return the filter of an inbox query, and the name of the index that it uses."""
    where: Document = {"state": LIVE, "tenant": query.tenant, "waits": {"$exists": True}}
    index = "waits"
    if query.assignee is not None:
        where["assignees"] = query.assignee
        index = "assignees"
    if query.what is not None:
        where["whats"] = query.what
    if query.session is not None:
        where["session"] = query.session
        index = "session"
    return where, index


async def locate(db: MongoDatabase, tenant: str, id: str) -> list[Key]:
    """Return the logs to which an event with this id was appended.

    The ids in tails and in batches each have an index that begins with the tenant. The index that
    appends use (`ids`) does not help, because it begins with the log. Tails have an index although
    it changes with every append, because most logs never fill a tail, and a search without an index
    would read all of them. In measurements the index did not slow down appends. Tails are read
    before batches, as in every read, so that events that move meanwhile are not missed.
    """
    where: Document = {"tenant": tenant, "state": LIVE, "tail.ids": id}
    found = db.logs.find(where, {"session": 1, "thread": 1}, hint="tail_ids")
    keys = {Key(tenant, doc["session"], doc["thread"]) async for doc in found}
    place = {"$add": ["$first", {"$indexOfArray": ["$ids", id]}]}
    batches = await db.batches.find(
        {"tenant": tenant, "ids": id}, {"session": 1, "log": 1, "seq": place}, hint="tenant_ids"
    ).to_list()
    if batches:
        keys |= await _holding(db, tenant, batches)
    return sorted(keys)


async def _holding(db: MongoDatabase, tenant: str, batches: list[Document]) -> set[Key]:
    """Return the logs to which the events at `seq` of some batches belong: the log of the batch or,
    if that log is deleted, the logs that share the event."""
    places = {doc["log"]: int(doc["seq"]) for doc in batches}
    sessions = sorted({doc["session"] for doc in batches})
    where = {"tenant": tenant, "session": {"$in": sessions}, "state": LIVE}
    heads = await db.logs.find(where, {"session": 1, "thread": 1, "chain": 1}, hint="key").to_list()
    orphans = places.keys() - {head["_id"] for head in heads}
    return {
        Key(tenant, head["session"], head["thread"])
        for head in heads
        if head["_id"] in places
        or any(
            log in orphans and after < places[log] <= upto
            for log, after, upto in head.get("chain", ())
        )
    }


async def runnable(
    db: MongoDatabase, tenant: str, *, agents: Sequence[str], limit: int = 100
) -> list[Key]:
    """Return logs of these agents that need a driver and have no live lease."""
    if not agents:
        return []
    live = rules.live_leases(await db.clock.now())
    lapsed = [{"until": {"$lte": live.now}}, {"until": {"$gt": live.latest}}]
    where: Document = {
        "tenant": tenant,
        "agent": {"$in": list(agents)},
        "wake": {"$lte": live.now},
        "state": LIVE,
        "$or": [{"owner": None}, *lapsed, {"renewed": {"$gt": live.renewed}}],
    }
    docs = await _wanting(db, where, limit)
    ahead = {"active": {"$gt": catalog.ahead(live.now)}}
    was = {"tenant": tenant, "state": LIVE, "thread": "main", **ahead}
    if await db.logs.find_one(was, {"_id": 1}, hint="active"):
        # Logs that were due before the clock was set back: `catalog.is_due`.
        by_then = {"$multiply": [{"$add": ["$active", 1]}, 1000]}
        due = {"wake": {"$gt": live.now}, **ahead, "$expr": {"$lt": ["$wake", by_then]}}
        docs += await _wanting(db, {**where, **due}, limit)
    docs.sort(key=lambda doc: (doc["wake"], doc["_id"]))
    return [Key(tenant, doc["session"], doc["thread"]) for doc in docs[:limit]]


async def due_tenants(
    db: MongoDatabase, *, agents: Sequence[str], after: str = "", limit: int = 100
) -> list[str]:
    """Return the names of the tenants, after the name `after`, with due logs of these agents."""
    now = await db.clock.now()
    by_then = {"$multiply": [{"$add": ["$active", 1]}, 1000]}
    set_back = {"active": {"$gt": catalog.ahead(now)}, "$expr": {"$lt": ["$wake", by_then]}}
    where: Document = {
        "tenant": {"$gt": after},
        "agent": {"$in": list(agents)},
        "wake": {"$exists": True},
        "state": LIVE,
        "$or": [{"wake": {"$lte": now}}, set_back],
    }
    steps: list[Document] = [
        {"$match": where},
        {"$group": {"_id": "$tenant"}},
        {"$sort": {"_id": 1}},
        {"$limit": limit},
    ]
    found = await db.logs.aggregate(steps, hint="wake")
    return [str(doc["_id"]) for doc in await found.to_list()]


async def _wanting(db: MongoDatabase, where: Document, limit: int) -> list[Document]:
    wanted = {"session": 1, "thread": 1, "wake": 1}
    found = db.logs.find(where, wanted, sort=[("wake", 1), ("_id", 1)], limit=limit, hint="wake")
    return await found.to_list()

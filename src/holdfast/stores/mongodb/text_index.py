"""The full-text index of a MongoDB store, and the logs that changed since it was updated.

`texts` has the collections, how deletes and erasures remove words, and why an indexer never adds
words that were removed meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

from ...errors import StoreError
from ...log.catalog import Row
from ...log.events import Key, Scope, new_id
from ...log.search import Condition
from ..search import ChangedLogs
from ..search.index import (
    Advance,
    Candidate,
    Doc,
    LogPosition,
    NoIndex,
    no_mark,
    place_of,
)
from .batches import named
from .entry import LIVE, Document, row_of
from .queries import ROW
from .schema import MongoDatabase
from .texts import CHANGED, DOCS, docs_of, forget_log, logs_of

T = TypeVar("T")

EDITION = 1  # version of the collections; an index with another version is replaced
OVERLAP = 10  # seconds; commits of earlier events may become visible so late
REVIEW_MS = 300_000  # all logs are compared with the index so often, in case one is even later
NEWEST = 2_000  # documents that a search for a prefix reads, newest first, before it uses the terms
STEP = 1_000  # logs that are compared with the index at a time
_LAST = "\U0010ffff"
_DENIED, _NO_HINT = 13, 2


class Ride(Protocol):
    """Runs a call on the database, and retries it while the server is unavailable."""

    def __call__(
        self, attempt: Callable[[], Awaitable[T]], *, long: bool = False
    ) -> Awaitable[T]: ...


class MongoTextIndex:
    """A full-text index in the database of a store."""

    keeps_words = False  # besides the files of the server, as of all documents

    def __init__(self, db: MongoDatabase, ride: Ride) -> None:
        self._db = db
        self._ride = ride
        self._docs, self._logs = docs_of(db), logs_of(db)
        self._checked = False

    async def _run(self, job: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._ride(job, long=True)
        except StoreError as error:
            if _code(error) == _NO_HINT and "hint" in str(error.__cause__):
                # The collections were dropped. They are created again if there is no state.
                await self._ride(lambda: self._docs.delete_one({"_id": "index"}))
                raise self._missing() from error
            raise

    def _missing(self) -> NoIndex:
        self._checked = False
        return NoIndex()

    async def _state(self) -> Document:
        state = await self._docs.find_one({"_id": "index"})
        if state is None or state["edition"] != EDITION:
            raise self._missing()
        return state

    # The collections

    async def exists(self) -> bool:
        try:
            await self._run(self._state)
        except NoIndex:
            return False
        return True

    async def create(self) -> bool:
        if self._checked:
            return True
        try:
            if not await self.exists():
                await self._run(self._create)
        except StoreError as error:
            if _code(error) == _DENIED:
                return False
            raise
        self._checked = True
        return True

    async def _create(self) -> None:
        if await self._docs.find_one({"_id": "index"}) is not None:  # of another edition
            await self._docs.drop()
        await self._docs.create_indexes(DOCS)
        await self._db.logs.create_indexes([CHANGED])
        state = {"edition": EDITION, "index": new_id(), "mark": no_mark(), "owner": "", "until": 0}
        with suppress(DuplicateKeyError):  # another process created it at the same time
            await self._docs.update_one({"_id": "index"}, {"$setOnInsert": state}, upsert=True)

    async def reset(self) -> None:
        async def reset() -> None:
            await self._docs.drop()
            await self._create()

        await self._run(reset)

    async def optimize(self) -> bool:
        """Remove entries of logs that do not exist, which crashed processes left behind."""

        async def optimize() -> None:
            about = {name: {"$first": f"${name}"} for name in ("tenant", "session")}
            steps: list[Document] = [
                {"$match": {"log": {"$exists": True}}},
                {"$group": {"_id": "$log", **about}},
            ]
            await self._forget_strangers(await self._docs.aggregate(steps, allowDiskUse=True))

        await self._run(optimize)
        return True

    async def aclose(self) -> None:
        pass  # the store closes the client

    # Indexing

    async def claim(self, owner: str, seconds: float) -> bool:
        async def claim() -> bool:
            now = await self._db.clock.now()
            free = [{"owner": {"$in": ["", owner]}}, {"until": {"$lte": now}}]
            taken = {"owner": owner if seconds else "", "until": now + int(seconds * 1000)}
            done = await self._docs.update_one({"_id": "index", "$or": free}, {"$set": taken})
            return done.matched_count > 0

        return await self._run(claim)

    async def mark(self) -> str:
        state = await self._run(self._state)
        return str(state["mark"])

    async def set_mark(self, mark: str, *, was: str) -> None:
        where = {"_id": "index", "mark": was}
        await self._run(lambda: self._docs.update_one(where, {"$set": {"mark": mark}}))

    async def tenant(self, name: str) -> int:
        return _number(name)

    async def positions(self, rows: Sequence[Row]) -> list[LogPosition]:
        async def positions() -> list[LogPosition]:
            keys = {row.log: row.key for row in rows}
            known = await self._known(keys)
            # For a log that was deleted meanwhile, nothing is accepted.
            return [
                known.get(row.log) or LogPosition(log=row.log, key=row.key, epoch="")
                for row in rows
            ]

        return await self._run(positions)

    async def _known(self, keys: dict[str, Key]) -> dict[str, LogPosition]:
        """Return the positions of live logs. Begins with those that are not indexed, and again with
        those whose token has changed."""
        names = {"_id": {"$in": sorted(keys)}}
        index = (await self._state())["index"]
        heads = {
            doc["_id"]: doc.get("texts")
            async for doc in self._db.logs.find({**names, "state": LIVE}, {"texts": 1}, hint="_id_")
        }
        found = {doc["_id"]: doc async for doc in self._logs.find(names)}
        for log, token in heads.items():
            doc = found.get(log)
            if doc is None or (doc["texts"], doc["index"]) != (token, index):
                found[log] = await self._begin(keys[log], _entry(keys[log], log, token, index), doc)
        return {log: _position(found[log]) for log in heads}

    async def _begin(self, key: Key, entry: Document, old: Document | None) -> Document:
        """Begin to index a log, and return its entry."""
        log = entry["_id"]
        if old is None:
            with suppress(DuplicateKeyError):
                await self._logs.insert_one(entry)
                return entry
        else:
            generation = old["generation"]
            await self._docs.delete_many(named(key.scope, log=log, generation=generation))
            where = named(key.scope, _id=log, generation=generation)
            done = await self._logs.replace_one(where, entry)
            if done.matched_count:
                return entry
        there = await self._logs.find_one(named(key.scope, _id=log))
        # Another indexer has begun, or the log was deleted; then nothing is accepted.
        return entry if there is None else there

    async def logs(self) -> list[LogPosition]:
        async def logs() -> list[LogPosition]:
            return [_position(doc) async for doc in self._logs.find()]

        return await self._run(logs)

    async def add(self, batch: Sequence[Advance]) -> int:
        return await self._run(_Addition(self, batch))

    # Searching

    async def find(
        self, tenant: str, wanted: Sequence[Condition], below: int, least: int, limit: int
    ) -> list[Candidate]:
        return await self._run(partial(self._find, tenant, wanted, below, least, limit))

    async def _find(
        self, tenant: str, wanted: Sequence[Condition], below: int, least: int, limit: int
    ) -> list[Candidate]:
        found: list[Candidate] = []
        ranges = all(one.prefix or one.negative for one in wanted)
        while len(found) < limit:
            docs, below = await self._matching(
                _number(tenant), wanted, below, least, limit - len(found), walk=ranges
            )
            positions = await self._positions_of(docs)
            for doc in docs:
                entry = positions.get(doc["log"])
                about = (tenant, doc["generation"])
                if entry is not None and (entry["tenant"], entry["generation"]) == about:
                    place, seq = int(doc["place"]), int(doc["seq"])
                    found.append(Candidate(id=place, seq=seq, position=_position(entry)))
            if below <= least:
                return found
        return found

    async def _matching(
        self,
        number: int,
        wanted: Sequence[Condition],
        below: int,
        least: int,
        limit: int,
        *,
        walk: bool,
    ) -> tuple[list[Document], int]:
        """Return the newest documents that match, and the position before which the next call
        continues, which is `least` at the end. Words that all begin with a prefix are not sorted
        by time, so a walk first tries the newest documents."""
        terms = [_filter(number, one) for one in wanted]
        order = [("place", -1)]
        shown = {"place": 1, "seq": 1, "log": 1, "generation": 1}
        found: list[Document] = []
        if walk:
            newest = {"number": number, "place": {"$lt": below, "$gte": least}}
            edge = await self._docs.find(
                newest, {"place": 1, "_id": 0}, sort=order, skip=NEWEST, limit=1, hint="place"
            ).to_list()
            bottom = int(edge[0]["place"]) if edge else least
            where = {"number": number, "place": {"$lt": below, "$gte": bottom}, "$and": terms}
            found = await self._docs.find(
                where, shown, sort=order, limit=limit, hint="place"
            ).to_list()
            if len(found) == limit:
                return found, int(found[-1]["place"])
            below = bottom
        where = {"place": {"$lt": below, "$gte": least}, "$and": terms}
        rest = limit - len(found)
        if below > least:
            more = self._docs.find(where, shown, sort=order, limit=rest, hint="terms")
            found += await more.to_list()
        return found, int(found[-1]["place"]) if len(found) == limit else least

    async def _positions_of(self, docs: Sequence[Document]) -> dict[str, Document]:
        names = sorted({doc["log"] for doc in docs})
        if not names:
            return {}
        return {doc["_id"]: doc async for doc in self._logs.find({"_id": {"$in": names}})}

    # Changes

    async def changes(self, mark: str | None) -> ChangedLogs:
        """Return the logs that differ from the index: those that were active since `mark` or, from
        time to time, all."""
        return await self._run(partial(self._changes, mark))

    async def _changes(self, mark: str | None) -> ChangedLogs:
        reviewed, since = (int(part) for part in (mark or "0 0").split())
        now = await self._db.clock.now()
        newest = await self._db.logs.find_one(
            {"state": LIVE}, {"active": 1}, sort=[("active", -1)], hint="changed"
        )
        active = min(newest.get("active", 0) if newest else 0, now // 1000)
        where: Document = {"state": LIVE, "active": {"$gte": since}}
        whole = not 0 <= now - reviewed <= REVIEW_MS
        if whole:
            reviewed = now
            about = {"tenant": 1, "session": 1}
            await self._forget_strangers(self._logs.find({}, about))
            where["active"] = {"$gte": 0}
        rows: list[Row] = []
        some: list[Document] = []
        index = (await self._state())["index"]
        async for head in self._db.logs.find(where, {**ROW, "texts": 1}, hint="changed"):
            some.append(head)
            if len(some) == STEP:
                rows += await self._differing(some, index)
                some = []
        rows += await self._differing(some, index)
        return ChangedLogs(rows=rows, mark=f"{reviewed} {active - OVERLAP}")

    async def _differing(self, heads: Sequence[Document], index: str) -> list[Row]:
        names = [head["_id"] for head in heads]
        found = {doc["_id"]: doc async for doc in self._logs.find({"_id": {"$in": names}})}
        rows = []
        for head in heads:
            row, entry = row_of(head), found.get(head["_id"])
            fields = ("seq", "link", "texts", "index")
            known = None if entry is None else tuple(entry[name] for name in fields)
            if known != (row.head, row.link, head.get("texts"), index):
                rows.append(row)
        return rows

    async def _forget_strangers(self, entries: AsyncIterable[Document]) -> None:
        """Remove the entries whose logs are not live, because a program without this index deleted
        them, or a backup was restored. `_id` is the log."""
        some: dict[str, Scope] = {}
        async for entry in entries:
            some[entry["_id"]] = Scope(entry["tenant"], entry["session"])
            if len(some) == STEP:
                await self._forget_those(some)
                some = {}
        await self._forget_those(some)

    async def _forget_those(self, scopes: dict[str, Scope]) -> None:
        where = {"_id": {"$in": [*scopes]}, "state": LIVE}
        live = {doc["_id"] async for doc in self._db.logs.find(where, {"_id": 1}, hint="_id_")}
        for log, scope in scopes.items():
            if log not in live:
                await forget_log(self._db, scope, log)


class _Addition:
    """Writes index entries: inserts documents without terms, checks the positions, and then adds
    the terms."""

    def __init__(self, index: MongoTextIndex, batch: Sequence[Advance]) -> None:
        self._index = index
        self._batch = batch

    async def __call__(self) -> int:
        owner = new_id()
        docs = [(one.before, doc) for one in self._batch for doc in one.docs]
        if docs:
            await self._reserve([_document(position, doc, owner) for position, doc in docs])
        after = await self._current()
        current = [(position, doc) for position, doc in docs if position.log in after]
        filled = await self._fill(current, owner)
        if not filled or len(current) < len(docs):
            ids = [_id(position, doc) for position, doc in docs]
            unused = {"_id": {"$in": ids}, "owner": owner, "terms": {"$exists": False}}
            await self._index._docs.delete_many(unused)
        return await self._save(after) if filled and after else 0

    async def _reserve(self, docs: Sequence[Document]) -> None:
        """Insert documents without terms. Those that exist are taken over. If another event has the
        same place, the next free one is used."""
        todo = list(docs)
        while todo:
            try:
                await self._index._docs.insert_many(todo, ordered=False)
                return
            except BulkWriteError as error:
                failed = error.details.get("writeErrors", ())
                if any(one.get("code") != 11000 for one in failed):
                    raise
                there = [todo[one["index"]] for one in failed if "_id" in _pattern(one)]
                todo = [todo[one["index"]] for one in failed if "_id" not in _pattern(one)]
            for doc in there:
                where = named(Scope(doc["tenant"], doc["session"]), _id=doc["_id"])
                await self._index._docs.update_one(where, {"$set": {"owner": doc["owner"]}})
            for doc in todo:
                doc["place"] += 1

    async def _current(self) -> dict[str, tuple[LogPosition, LogPosition]]:
        """Return the first and the last position of each log whose position is still the one from
        which its events were read."""
        keys = {one.before.log: one.before.key for one in self._batch}
        known = await self._index._known(keys)
        after: dict[str, tuple[LogPosition, LogPosition]] = {}
        for one in self._batch:
            log = one.before.log
            first, last = after.get(log, (one.before, known.get(log)))
            if last == one.before:
                after[log] = (first, one.after)
        return after

    async def _fill(self, docs: Sequence[tuple[LogPosition, Doc]], owner: str) -> bool:
        """Add the terms to the inserted documents. Returns whether all of them are still there."""
        if not docs:
            return True
        done = await self._index._docs.bulk_write(
            [
                UpdateOne(
                    named(position.key.scope, _id=_id(position, doc), owner=owner),
                    {"$set": {"terms": doc.terms.split(" ")}, "$unset": {"owner": ""}},
                )
                for position, doc in docs
            ],
            ordered=False,
        )
        return done.matched_count == len(docs)

    async def _save(self, after: dict[str, tuple[LogPosition, LogPosition]]) -> int:
        """Save the positions. Returns the number of advances, or 0 if a position has changed."""
        changes = []
        for first, last in after.values():
            token, _, generation = (first.epoch or "").partition("/")
            where = named(first.key.scope, _id=first.log, seq=first.seq, generation=generation)
            where["texts"] = token or None
            rewinds = [list(pair) for pair in last.rewinds]
            new = {"seq": last.seq, "link": last.link, "rewinds": rewinds}
            changes.append(UpdateOne(where, {"$set": new}))
        done = await self._index._logs.bulk_write(changes, ordered=False)
        if done.matched_count < len(changes):
            return 0
        return sum(one.before.log in after for one in self._batch)


def _number(tenant: str) -> int:
    """Return the number of a tenant, with which each of its terms begins. Two tenants may have the
    same number, so each match is also compared with the tenant's name."""
    return int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:5], "big")


def _entry(key: Key, log: str, token: str | None, index: str) -> Document:
    """Return the entry of a log in `search_logs`, at its start."""
    return named(
        key.scope,
        _id=log,
        thread=key.thread,
        index=index,
        texts=token,
        generation=new_id(),
        seq=0,
        link=None,
        rewinds=[],
    )


def _document(position: LogPosition, doc: Doc, owner: str) -> Document:
    """Return the document of an event, without terms."""
    key = position.key
    return named(
        key.scope,
        _id=_id(position, doc),
        log=position.log,
        generation=_generation(position),
        number=_number(key.tenant),
        seq=doc.seq,
        place=place_of(doc.at, position.log, doc.seq),
        owner=owner,
    )


def _id(position: LogPosition, doc: Doc) -> str:
    return f"{_generation(position)}/{doc.seq}"


def _generation(position: LogPosition) -> str:
    return (position.epoch or "").partition("/")[2]


def _pattern(error: Any) -> Any:
    """Return the fields of the index whose value exists."""
    return error.get("keyPattern") or {}


def _position(entry: Document) -> LogPosition:
    return LogPosition(
        log=entry["_id"],
        key=Key(entry["tenant"], entry["session"], entry["thread"]),
        seq=int(entry["seq"]),
        link=entry["link"],
        rewinds=tuple((number, to) for number, to in entry["rewinds"]),
        epoch=f"{entry['texts'] or ''}/{entry['generation']}",
    )


def _filter(number: int, condition: Condition) -> Document:
    """Return the filter for a condition. Each term begins with the number of the tenant."""
    term = f"{number}:{condition.term}"
    if not condition.prefix:
        return {"terms": {"$ne": term} if condition.negative else term}
    within: Document = {"$elemMatch": {"$gte": term, "$lt": term + _LAST}}
    return {"terms": {"$not": within} if condition.negative else within}


def _code(error: StoreError) -> int | None:
    cause = error.__cause__
    return cause.code if isinstance(cause, OperationFailure) else None

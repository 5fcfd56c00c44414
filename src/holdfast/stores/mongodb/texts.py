"""The collections of the full-text index, and the removal of words from them.

The index is in the same database as the events, in collections that the first search creates:

search_docs  one document per event, with its terms; the document `index` has the state of the index
search_logs  the position up to which each log is indexed

No transaction is needed. The head document of a log has a token, `texts`, that each erasure
replaces; a deleted log has no live head. An indexer first inserts documents without terms, then
compares the token and the position with those it knew when it read the events, and then adds the
terms to the documents that it inserted. A removal first replaces the token, or hides the head, and
then removes the documents. So an indexer either sees the new token, or finds its documents gone.

An entry in `search_logs` with another token than the head, or of another index (if `search_docs`
was dropped), is outdated: the log is indexed again, under a new `generation`, so that late writes
for the earlier one have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import ASCENDING, DESCENDING, IndexModel

from ...log.events import Scope, new_id
from .batches import named
from .entry import LIVE, Document
from .schema import Collection, MongoDatabase

DOCS = [
    IndexModel([("terms", ASCENDING), ("place", DESCENDING)], name="terms"),
    IndexModel([("number", ASCENDING), ("place", DESCENDING)], name="place", unique=True),
    IndexModel(
        [("tenant", ASCENDING), ("session", ASCENDING), ("log", ASCENDING), ("seq", ASCENDING)],
        name="log",
    ),
]
# On `logs`: finds the logs that changed recently. It changes at most once a second for each log.
CHANGED = IndexModel(
    [("active", ASCENDING)], name="changed", partialFilterExpression={"state": LIVE}
)


def docs_of(db: MongoDatabase) -> Collection:
    return _collection(db, "search_docs")


def logs_of(db: MongoDatabase) -> Collection:
    return _collection(db, "search_logs")


def _collection(db: MongoDatabase, name: str) -> Collection:
    return db.place[name].with_options(
        read_preference=db.logs.read_preference,
        read_concern=db.logs.read_concern,
        write_concern=db.logs.write_concern,
    )


async def forget_log(db: MongoDatabase, scope: Scope, log: str) -> None:
    """Remove a log that is no longer live from the index."""
    await docs_of(db).delete_many(named(scope, log=log))
    await logs_of(db).delete_one(named(scope, _id=log))


async def forget_events(db: MongoDatabase, scope: Scope, log: str, seqs: Sequence[int]) -> None:
    """Remove events of a log from the index, after their data was replaced. Also removes the
    entries of the forks that share them."""
    todo = [(log, list(seqs))]
    while todo:
        log, some = todo.pop()
        token = new_id()
        head = await db.logs.find_one_and_update(
            named(scope, _id=log), {"$set": {"texts": token}}, {"texts": 1}, hint="_id_"
        )
        await docs_of(db).delete_many(named(scope, log=log, seq={"$in": some}))
        if head is not None:
            # If another removal is under way, the tokens stay different: the log is indexed again.
            await logs_of(db).update_one(
                named(scope, _id=log, texts=head.get("texts")), {"$set": {"texts": token}}
            )
        forks = db.logs.find(named(scope, base=log), {"shared": 1}, hint="base")
        todo += [
            (fork["_id"], shared)
            async for fork in forks
            if (shared := [seq for seq in some if seq <= fork["shared"]])
        ]


async def forget_mark(db: MongoDatabase) -> None:
    """Make the indexer check all logs, because a restored log has old times."""
    where: Document = {"_id": "index"}
    await docs_of(db).update_one(where, {"$set": {"mark": f"?{new_id()}"}})

"""Real databases for the tests, from wheels: PostgreSQL, also through a pooler, and MongoDB.

    servers.url("postgres", tmp_path)     a URL for `holdfast.connect`, of a schema of its own
    servers.url("pooled", tmp_path)       the same through a pooler in transaction mode
    servers.url("mongodb", tmp_path)      a database of its own on a replica set of one
    servers.url("standalone", tmp_path)   … on a mongod alone

The first call of a run starts the server, all processes of the run share it, and it ends with
the run. The same place gives the same URL, also in child processes. `HOLDFAST_TEST_POSTGRES_URL`
and `HOLDFAST_TEST_MONGODB_URL` take the place of the shared PostgreSQL and replica set.

    with servers.private("postgres") as server:      one that this test may
        server.restart()                             kill (`gently=True`: stop) and start
    with servers.faulty("mongodb") as place:         one behind a wire, `url`s lead through it
        place.wire.cut()                             end all connections; also `cutting`,
        place.wire.lose("reply", 2)                  `delaying`, `silent`, `refusing`
        place.server.kill()
    with servers.replica_set() as members:           three MongoDB servers, each behind a wire

All of these are plain functions; in a coroutine call those of a private server by
`asyncio.to_thread`. `servers.faults` makes a running server refuse what it is asked.
"""

from __future__ import annotations

from .private import Faulty, Private, faulty, private
from .process import ServerFailed
from .replica_set import ReplicaSet, replica_set
from .shared import KINDS, address, begin, end, url
from .wire import Wire

__all__ = [
    "KINDS",
    "Faulty",
    "Private",
    "ReplicaSet",
    "ServerFailed",
    "Wire",
    "address",
    "begin",
    "end",
    "faulty",
    "private",
    "replica_set",
    "url",
]

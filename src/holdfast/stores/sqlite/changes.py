"""`changed_logs`: the logs that changed since the full-text index was last updated.

Events have an increasing row number (`rid`), and the mark is the last event that the index has
seen. If that event no longer exists, all logs may have changed: SQLite reuses the number of a
removed last event, and a restored backup has other events.
"""

from __future__ import annotations

from ...log.codec import LARGEST
from ..search import ChangedLogs
from ..sql.tables import LIVE, RESTORING
from .log import row_of
from .transaction import Transaction

# NOT INDEXED: otherwise SQLite scans an index of all events to find the different logs.
CHANGED = (
    "SELECT l.id, l.doc FROM (SELECT DISTINCT log FROM events NOT INDEXED WHERE rid > ?) AS e"
    " CROSS JOIN logs AS l ON l.id = e.log WHERE l.state = ?"
)


def changed_logs(tx: Transaction, mark: str | None) -> ChangedLogs:
    """Return the logs that changed since `mark`. Returns all logs if the mark is None or its event
    no longer exists."""
    conn = tx.conn
    rid, _, id = (mark or "").partition(" ")
    last = int(rid) if rid else 0
    whole = True
    if id:
        found = conn.execute("SELECT id FROM events WHERE rid = ?", (last,)).fetchone()
        whole = found is None or found[0] != id
    # The events of a restore become visible only later, so the mark stays before them.
    (first,) = conn.execute(
        "SELECT min(e.rid) FROM logs AS l INDEXED BY logs_state CROSS JOIN events AS e"
        f" ON e.log = l.id WHERE l.state <> 0 AND l.state = {RESTORING}"
    ).fetchone()
    newest = conn.execute(
        "SELECT rid, id FROM events WHERE rid < ? ORDER BY rid DESC LIMIT 1",
        (LARGEST if first is None else first,),
    ).fetchone()
    if whole:
        records = conn.execute("SELECT id, doc FROM logs WHERE state = ?", (LIVE,)).fetchall()
    else:
        records = conn.execute(CHANGED, (last, LIVE)).fetchall()
    rows = [row_of(conn, id, doc) for id, doc in records]
    return ChangedLogs(rows=rows, mark=f"{newest[0]} {newest[1]}" if newest else "", whole=whole)

"""What the hardware, SQLite and Python allow: plain loops of the same shape as a store.

They write the same rows to the same tables with the same fsyncs, and check nothing:
no limits, no known ids, no fence, no rules about rows, no other thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec

from holdfast import new_id
from holdfast.stores.frames import packed
from holdfast.stores.sqlite import schema

from .entries import Turn, turn
from .measure import timed

encode = msgspec.json.Encoder().encode

INSERT = """INSERT INTO events (log, seq, id, kind, v, run, actor, cause, at, hash, data, link)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
UPDATE = "UPDATE logs SET doc = ? WHERE id = ?"
TOUCH = "UPDATE logs SET active = ?, doc = ? WHERE id = ?"
CREATE = """INSERT INTO logs (log, state, tenant, session, thread, shared, token, since, until,
phase, created, active, doc) VALUES (?, 0, 'main', ?, 'main', 0, 0, 0, 0, 'active', ?, ?, ?)"""


class _Log:
    """What the loop must remember of a log to write its row."""

    def __init__(self, conn: sqlite3.Connection, session: str) -> None:
        now = time.time_ns() // 1_000_000
        self.head = 0
        self.row: dict[str, Any] = {
            "tenant": "main",
            "session": session,
            "thread": "main",
            "log": new_id(),
            "head": 0,
            "first_message": turn(0).question[:200],
            "phase": "active",
            "counts": {"messages": 0, "calls": 0},
            "usage": {"input": 0, "output": 0},
            "bytes": 0,
            "created": now,
            "active": now // 1000,
            "last": now,
            "link": bytes(32).hex(),
        }
        values = (self.row["log"], session, now, now // 1000, encode(self.row))
        self.id = conn.execute(CREATE, values).lastrowid


def sqlite_turns(folder: Path, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, one transaction per round of all sessions."""
    conn = schema.connect(str(folder / "floor.db"), synchronous="FULL", create=True)
    schema.prepare(conn, str(folder / "floor.db"))
    logs = [_Log(conn, f"session-{number}") for number in range(sessions)]

    def run() -> None:
        for number in range(turns):
            conn.execute("BEGIN IMMEDIATE")
            for log in logs:
                _write(conn, log, turn(number))
            conn.execute("COMMIT")

    seconds, _ = timed(run)
    conn.close()
    return seconds


def events_of(entries: Turn) -> list[tuple[str, str, bytes, bytes]]:
    """Id, kind, hash and stored data of each entry of a turn, in the plainest way."""
    made = []
    for kind, payload in entries.payloads():
        id, data = new_id(), encode(payload)
        digest = hashlib.sha256(encode((id, kind, 1)))
        digest.update(b"\n")
        digest.update(data)
        made.append((id, kind, digest.digest(), packed(data)))
    return made


def kept_of(before: bytes, seq: int, id: str, kind: str, at: int, digest: bytes) -> bytes:
    """What a store keeps of the link of an event, in the plainest way; the link is at its end."""
    salt = os.urandom(16)
    mark = hashlib.sha256(salt + digest).digest()
    envelope = encode((seq, id, kind, 1, None, None, None, at))
    return b"w" + salt + hashlib.sha256(before + mark + envelope).digest()


def _write(conn: sqlite3.Connection, log: _Log, entries: Turn) -> None:
    now = time.time_ns() // 1_000_000
    row, rows = log.row, []
    kept = bytes.fromhex(row["link"])
    for id, kind, digest, data in events_of(entries):
        log.head += 1
        kept = kept_of(kept[-32:], log.head, id, kind, now, digest)
        rows.append((log.id, log.head, id, kind, 1, None, None, None, now, digest, data, kept))
        row["bytes"] += len(data)
    row["link"] = kept[-32:].hex()
    conn.executemany(INSERT, rows)
    row["head"] = log.head
    row["counts"]["messages"] += 3
    row["counts"]["calls"] += 1
    row["usage"]["input"] += 3680
    row["usage"]["output"] += 424
    row["last"] = now
    # As a store would: the index on `active` moves at most once a second.
    if row["active"] != now // 1000:
        row["active"] = now // 1000
        conn.execute(TOUCH, (row["active"], encode(row), log.id))
    else:
        conn.execute(UPDATE, (encode(row), log.id))


def jsonl_turns(folder: Path, sessions: int, turns: int) -> float:
    """Seconds for a loop that adds four lines to a file and syncs it, a turn at a time."""
    assert sessions == 1
    with open(folder / "floor.jsonl", "ab") as file:
        head = 0

        def run() -> None:
            nonlocal head
            for number in range(turns):
                now = time.time_ns() // 1_000_000
                for kind, payload in turn(number).payloads():
                    head += 1
                    event = {"seq": head, "at": now, "id": new_id(), "kind": kind, "data": payload}
                    file.write(encode(event) + b"\n")
                file.flush()
                os.fsync(file.fileno())

        seconds, _ = timed(run)
    return seconds


def load(conn: sqlite3.Connection, log: int) -> list[Any]:
    """All payloads of a log, read and decoded in the plainest way."""
    rows = conn.execute("SELECT data FROM events WHERE log = ? ORDER BY seq", (log,))
    return [json.loads(data[5:]) for (data,) in rows]


def longest(conn: sqlite3.Connection) -> int:
    """The number of the log with the most events."""
    (log,) = conn.execute(
        "SELECT log FROM events GROUP BY log ORDER BY count(*) DESC LIMIT 1"
    ).fetchone()
    return int(log)

"""Reads the schema version of a store without changing the store. (Opening a store migrates it.)"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from ..errors import InvalidValue
from . import connect, needing, without_vault
from .file.store import VERSION as FORMAT
from .sqlite import schema
from .url_options import check_path, split_url


class SchemaState(Struct, frozen=True):
    """The schema version of a store (0 if it is empty), and the newest version that this release
    knows."""

    found: int
    known: int

    @property
    def due(self) -> bool:
        """Whether opening the store would migrate it."""
        return self.found < self.known

    @property
    def too_new(self) -> bool:
        """Whether this release of Holdfast is too old to open the store."""
        return self.found > self.known


async def schema_of(url: str) -> SchemaState:
    """Return the schema version of the store at `url`. Creates nothing and migrates nothing."""
    connect(url)  # rejects an unknown scheme
    url, _ = without_vault(url)
    scheme = url.partition(":")[0]
    if scheme == "memory":
        return SchemaState(1, 1)
    if scheme in ("sqlite", "file"):
        look = _in_file if scheme == "sqlite" else _in_folder
        return await asyncio.to_thread(look, check_path(split_url(url)[0]))
    if scheme.startswith("postgres"):
        with needing("postgres", "asyncpg"):
            from . import postgres  # noqa: PLC0415 - its driver is optional
        return SchemaState(*await postgres.schema_state(url))
    with needing("mongodb", "pymongo", "bson"):
        from . import mongodb  # noqa: PLC0415
    return SchemaState(*await mongodb.schema_state(url))


def _in_file(path: str) -> SchemaState:
    if not Path(path).exists():
        return SchemaState(0, schema.VERSION)
    # Without a journal, no process has the database open; `immutable` creates no empty journal.
    mode = "mode=ro" if Path(path + "-wal").exists() else "immutable=1"
    uri = f"file:{quote(str(Path(path).absolute()))}?{mode}"
    with (
        schema.translated(path),
        schema.opening(path),
        closing(sqlite3.connect(uri, uri=True)) as conn,
    ):
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        (application,) = conn.execute("PRAGMA application_id").fetchone()
        (tables,) = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != schema.APPLICATION and (version or tables):
        raise InvalidValue(
            field="url",
            problem=f"{path!r} is a database of another program",
            remedy="pass a database that Holdfast created",
        )
    return SchemaState(version, schema.VERSION)


def _in_folder(path: str) -> SchemaState:
    try:
        text = (Path(path) / "format.json").read_bytes()
        return SchemaState(msgspec.json.decode(text, type=dict[str, int])["holdfast"], FORMAT)
    except FileNotFoundError:
        return SchemaState(0, FORMAT)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise InvalidValue(
            field="url",
            problem=f"{path!r} has no readable format.json",
            remedy="pass a folder that Holdfast created",
        ) from error

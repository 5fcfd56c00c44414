"""The names that others rely on, as the package has them now: `python -m tests.contracts --write`
writes them to `contracts.json`, which `test_contracts.py` compares with.

They are taken from what can be seen from outside (the published document of the server, the help of
the command line, public modules, files and tables of a store) or from texts in the sources, so that
code may move without a change here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import msgspec
from cyclopts import App
from pymongo import AsyncMongoClient

import holdfast
from holdfast import Agent, NewEvent, errors, events, key
from holdfast.cli.app import build
from holdfast.log.state import values
from holdfast.server import ServerLimits, Settings, create_app
from holdfast.wire import streams

SOURCE = Path(holdfast.__file__).parent
KEPT = Path(__file__).parent / "contracts.json"
STATE = "snapshots of the state"


def event_kinds() -> dict[str, list[str]]:
    """Each kind, and the fields of its payload."""
    return {
        kind: sorted(field.encode_name for field in msgspec.structs.fields(payload))
        for kind, payload in sorted(events.KINDS.items())
    }


def snapshots() -> dict[str, dict[str, list[str]]]:
    """By the version of the fold: the kinds that it knows, and the fields of the state and of the
    values in it. Snapshots of this version are read as they are."""
    fields = {
        name: sorted(one.__struct_fields__)
        for name, one in sorted(vars(values).items())
        if isinstance(one, type)
        and issubclass(one, msgspec.Struct)
        and one.__module__ == values.__name__
    }
    return {values.VERSION: {"(kinds)": sorted(events.KINDS), **fields}}


def error_codes() -> dict[str, list[str]]:
    """Each code, and the fields of its error; in a process that has imported all of the package
    and nothing else."""
    program = "import json; from tests.contracts import codes; print(json.dumps(codes()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=KEPT.parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def codes() -> dict[str, list[str]]:
    """The same in this process."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)  # some define an error of their own
    found = {}
    for error in sorted(_all_of(errors.HoldfastError), key=lambda error: error.__name__):
        code = error.__dict__.get("code")
        if isinstance(code, str):
            found[code] = sorted(field.name for field in fields(error))
    return dict(sorted(found.items()))


def _all_of(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("holdfast."):
            yield one
            yield from _all_of(one)


def routes() -> dict[str, list[str]]:
    """Each path, and its methods with the ids of their operations."""
    return {
        path: sorted(f"{method} {operation['operationId']}" for method, operation in item.items())
        for path, item in sorted(document()["paths"].items())
    }


def document() -> dict[str, Any]:
    """The published document of a server."""
    agent = Agent("a", model="openai/x", instructions="Help.")
    return create_app(Settings(agents=[agent])).openapi_schema.to_schema()


def stream_events() -> list[str]:
    """Names of server-sent events."""
    return sorted(
        value for name, value in vars(streams).items() if name.isupper() and isinstance(value, str)
    )


def commands() -> dict[str, list[str]]:
    """Each verb of the command line, and its arguments."""
    return dict(sorted(_commands(build(), "")))


def _commands(app: App, lead: str) -> Iterator[tuple[str, list[str]]]:
    for name in app:
        if name.startswith("-"):
            continue
        verb = app[name]
        inner = dict(_commands(verb, f"{lead}{name} "))
        if inner:
            yield from inner.items()
        else:
            arguments = verb.assemble_argument_collection(parse_docstring=False)
            names = {spelled for argument in arguments for spelled in argument.names}
            yield f"{lead}{name}", sorted(names)


def settings() -> list[str]:
    """Keys of a settings file, and those of its limits."""
    limits = [f"limits.{name}" for name in ServerLimits.__struct_fields__]
    return sorted([*(field.name for field in fields(Settings)), *limits])


def _in_sources(pattern: str) -> Callable[[], list[str]]:
    def found() -> list[str]:
        texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
        return sorted({name for text in texts for name in re.findall(pattern, text)})

    return found


def sqlite_tables() -> dict[str, list[str]]:
    """Tables of an SQLite store, with their columns."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        _written(f"sqlite:{path}")
        with sqlite3.connect(path) as conn:
            names = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = sorted(name for (name,) in names if not name.startswith("sqlite_"))
            return {name: sorted(row[1] for row in _columns(conn, name)) for name in tables}


def _columns(conn: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return conn.execute(f"SELECT * FROM pragma_table_info('{table}')").fetchall()


def store_files() -> list[str]:
    """Files and folders of a file store, without the parts that are ids."""
    with TemporaryDirectory() as folder:
        _written(f"file:{folder}/s")
        place = Path(folder) / "s"
        names = (path.relative_to(place).as_posix() for path in place.rglob("*"))
        return sorted({_ID.sub("#", name) for name in names})


_ID = re.compile(r"(?<=/)[0-9a-f]{2}(?=/|$)|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _written(url: str) -> None:
    async def write() -> None:
        async with holdfast.connect(url) as store:
            await store.append(key("s"), [NewEvent.of("session.created", {})], create=True)

    asyncio.run(write())


async def postgres_names(url: str) -> dict[str, list[str]]:
    """Tables of a PostgreSQL store with their columns, and its functions."""
    schema = parse_qs(urlsplit(url).query).get("schema", ["holdfast"])[0]
    link = await asyncpg.connect(url.partition("?")[0])
    try:
        rows = await link.fetch(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = $1",
            schema,
        )
        routines = await link.fetch(
            "SELECT DISTINCT routine_name FROM information_schema.routines"
            " WHERE routine_schema = $1",
            schema,
        )
    finally:
        await link.close()
    tables: dict[str, list[str]] = {"(functions)": sorted(row[0] for row in routines)}
    for table, column in rows:
        tables.setdefault(table, []).append(column)
    return {table: sorted(columns) for table, columns in sorted(tables.items())}


async def mongodb_names(url: str) -> dict[str, list[str]]:
    """Collections of a MongoDB store, with their indexes."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url.partition("?")[0])
    try:
        place = client.get_default_database()
        names = sorted(await place.list_collection_names())
        return {name: sorted(await place[name].index_information()) for name in names}
    finally:
        await client.close()


CONTRACTS: dict[str, Callable[[], Any]] = {
    "event kinds": event_kinds,
    STATE: snapshots,
    "error codes": error_codes,
    "routes": routes,
    "stream events": stream_events,
    "commands": commands,
    "settings": settings,
    "variables": _in_sources(r"\bHOLDFAST_[A-Z_]+"),
    "loggers": _in_sources(r"getLogger\(\"(holdfast[\w.]*)\"\)"),
    "reserved tenants": _in_sources(r"\"(~[a-z]+:?)\""),
    "prefixes of ids and claims": _in_sources(r"f?\"([a-z]+:)(?=\{|\"  #)"),
    "SQLite tables": sqlite_tables,
    "files of a store": store_files,
}


SERVERS = {"postgres": postgres_names, "mongodb": mongodb_names}


def main() -> None:
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.contracts --write")
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    # What needs a server is written by the test that sees it: see test_contracts.py.
    found = {**kept, **{name: gather() for name, gather in CONTRACTS.items()}}
    before, after = kept.get(STATE, {}), found[STATE]
    if before != after and before.keys() == after.keys():
        sys.exit("the state or its kinds changed: raise VERSION in log/state/values.py first")
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

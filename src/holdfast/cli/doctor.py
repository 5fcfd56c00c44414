"""`holdfast doctor`: what this machine has, and whether the store opens and takes writes."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from rich.text import Text

from .. import local_token
from ..errors import HoldfastError
from ..log.events import Scope, new_id
from ..stores import connect
from ..stores.address import place, shown
from ..stores.migrations import schema_of
from ..stores.port import Store, StoreInfo
from .failure import scrubbed
from .options import EVERYWHERE, Common, check_made
from .output import Output, plain, version
from .render import fact, size
from .vault import lacking


class Finding(Struct, kw_only=True):
    """What doctor found out about a store; None is what could not be found out."""

    url: str
    exists: bool | None = None
    opens: bool | None = None
    writable: bool | None = None
    info: StoreInfo | None = None
    problems: list[str] = []


class Token(Struct, kw_only=True):
    """A local token as it may be shown: whose it is, and whether that server runs."""

    port: int
    store: str
    served: bool


class Tokens(Struct, kw_only=True):
    """The local tokens of this user, and what is wrong with their files."""

    found: list[Token] = []
    wrong: list[str] = []


def doctor(*, common: Common = EVERYWHERE) -> int:
    """Say what this machine has and how the store is: versions, kind, durability, limits.

    ```
    holdfast doctor --store sqlite:shop.db
    ```

    Opens the store and writes a mark that it takes away again; a store that does not exist
    is not created. Names the servers that have a local token, but shows no token. The exit code
    is 1 when there is a problem. With `--json`: one document.
    """
    out = common.output()
    finding = examine(common.url, common.tenant)
    tokens = Tokens(wrong=local_token.faults())
    if not tokens.wrong:
        tokens.found = [
            Token(port=one.port, store=one.store, served=one.served()) for one in local_token.find()
        ]
    problems = [*finding.problems, *tokens.wrong]
    if out.json:
        told = {"ok": not problems, **versions(), "store": finding, "tokens": tokens}
        out.emit(told)
    else:
        _print(out, finding, tokens)
    return int(bool(problems))


def versions() -> dict[str, str]:
    """The versions that matter to a report."""
    return {
        "holdfast": version("holdfast"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "msgspec": msgspec.__version__,
        "sqlite": sqlite3.sqlite_version,
        "cyclopts": version("cyclopts"),
        "rich": version("rich"),
    }


def examine(url: str, tenant: str) -> Finding:
    """Open the store if it is there, and try to write."""
    path = place(url)
    finding = Finding(url=shown(url))
    if path is not None:
        finding.exists = path.exists()
        if not finding.exists:
            _examine_folder(path, finding)
            return finding
    try:
        asyncio.run(_try(url, tenant, finding))
    except (HoldfastError, OSError) as error:
        problem = f"cannot {'write' if finding.opens else 'open'}: {error}"
        finding.problems.append(scrubbed(problem))
    return finding


async def _try(url: str, tenant: str, finding: Finding) -> None:
    finding.opens = finding.writable = False
    schema = await schema_of(url)
    if place(url) is None and schema.found == 0:
        finding.exists, finding.opens, finding.writable = False, None, None
        return
    check_made(url, schema)
    async with connect(url) as store:
        finding.opens = True
        finding.info = store.info()
        finding.problems += await lacking(store, tenant)
        await _write(store, tenant)
        finding.writable = True


async def _write(store: Store, tenant: str) -> None:
    # A name is the smallest thing that a store writes, and unclaim leaves nothing of it.
    name, owner = f"doctor:{new_id()}", Scope(tenant, "doctor")
    await store.claim(tenant, name, owner)
    await store.unclaim(tenant, name, owner)


def _examine_folder(path: Path, finding: Finding) -> None:
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    finding.writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    if not finding.writable:
        finding.problems.append(f"there is no store, and none can be made in {str(folder)!r}")


def _print(out: Output, finding: Finding, tokens: Tokens) -> None:
    for name, found in versions().items():
        out.print(fact(name, found))
    out.print("", fact("store", finding.url))
    if finding.exists is False:
        out.print(fact("", "not there yet; the first program that connects makes it"))
    for name in ("opens", "writable"):
        if (answer := getattr(finding, name)) is not None:
            out.print(fact(name, "yes" if answer else "no"))
    if finding.info is not None:
        for name, value in _about(finding.info):
            out.print(fact(name, str(value)))
    for token in tokens.found:
        runs = "running" if token.served else "not running"
        out.print(fact("token", plain(f"port {token.port}, {token.store}, {runs}")))
    out.print("")
    problems = [*finding.problems, *tokens.wrong]
    for problem in problems:
        out.print(Text(plain(f"problem: {problem}"), style="red"))
    if not problems:
        out.print(Text("all is well", style="green"))


def _about(info: StoreInfo) -> list[tuple[str, Any]]:
    limits = info.limits
    return [
        ("kind", info.kind),
        ("location", info.location),
        ("durability", DURABILITY[info.durability]),
        ("encrypted", "yes" if info.encrypted else "no"),
        ("schema", info.schema),
        ("limits", f"event {size(limits.event_bytes)}, append {limits.append_events:,} events"),
        ("", f"or {size(limits.append_bytes)}, names {size(limits.name_bytes)}"),
    ]


DURABILITY = {
    "none": "none: gone with the process",
    "process": "process: survives the death of the process, not of the machine",
    "machine": "machine: survives the loss of power",
}

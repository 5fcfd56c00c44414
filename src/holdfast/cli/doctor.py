"""`holdfast doctor`: check this installation, and whether the store can be opened and written."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from rich.text import Text

from .. import local_token
from ..errors import HoldfastError
from ..log.events import Scope, new_id
from ..sessions.undriven import UndrivenRun, undriven
from ..stores import connect
from ..stores.migrations import schema_of
from ..stores.port import Store, StoreInfo
from ..stores.url_display import place, shown
from .error_report import scrubbed
from .options import DEFAULTS, Common, check_current
from .output import plain
from .overview import version
from .render import fact, size
from .vault import problems as key_problems


class StoreReport(Struct, kw_only=True):
    """The results of checking a store. A field is None if it could not be determined. `undriven`
    lists the runs that wait for a process that drives them."""

    url: str
    exists: bool | None = None
    opens: bool | None = None
    writable: bool | None = None
    info: StoreInfo | None = None
    problems: list[str] = []
    undriven: list[UndrivenRun] = []


class TokenReport(Struct, kw_only=True):
    """A local token without the secret: its server, and whether the server is running."""

    port: int
    store: str
    served: bool


class TokensReport(Struct, kw_only=True):
    """The local tokens of this user, and problems with their files."""

    found: list[TokenReport] = []
    wrong: list[str] = []


def doctor(*, common: Common = DEFAULTS) -> int:
    """Check this installation and the store.

    ```
    holdfast doctor --store sqlite:shop.db
    ```

    Prints versions, and the kind, durability and limits of the store. Opens the store and writes a
    test record, which it removes again; it does not create a store. Lists runs that no process
    drives, with the version of the agent that started them, and servers that have a local token,
    without showing the token. The exit code is 1 if there is a problem. With `--json`, prints one
    JSON object.
    """
    store = examine(common.url, common.tenant)
    tokens = TokensReport(wrong=local_token.faults())
    if not tokens.wrong:
        tokens.found = [
            TokenReport(port=one.port, store=one.store, served=one.served())
            for one in local_token.find()
        ]
    problems = [*store.problems, *tokens.wrong]
    about = {"ok": not problems, **versions(), "store": store, "tokens": tokens}
    common.output().show(about, _lines(store, tokens, problems))
    return int(bool(problems))


def versions() -> dict[str, str]:
    """Return the versions that a bug report needs."""
    return {
        "holdfast": version("holdfast"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "msgspec": msgspec.__version__,
        "sqlite": sqlite3.sqlite_version,
        "cyclopts": version("cyclopts"),
        "rich": version("rich"),
    }


def examine(url: str, tenant: str) -> StoreReport:
    """Open the store if it exists, and try to write."""
    path = place(url)
    finding = StoreReport(url=shown(url))
    if path is not None:
        finding.exists = path.exists()
        if not finding.exists:
            _examine_folder(path, finding)
            return finding
    try:
        asyncio.run(_try(url, tenant, finding))
    except (HoldfastError, OSError) as error:
        problem = f"cannot {'write to' if finding.opens else 'open'} the store: {error}"
        finding.problems.append(scrubbed(problem))
    return finding


async def _try(url: str, tenant: str, finding: StoreReport) -> None:
    finding.opens = finding.writable = False
    schema = await schema_of(url)
    if place(url) is None and schema.found == 0:
        finding.exists, finding.opens, finding.writable = False, None, None
        return
    check_current(url, schema)
    async with connect(url) as store:
        finding.opens = True
        finding.info = store.info()
        finding.problems += await key_problems(store, tenant)
        if not finding.problems:
            finding.undriven = await undriven(store, tenant)
        await _write(store, tenant)
        finding.writable = True


async def _write(store: Store, tenant: str) -> None:
    # A claim is the smallest write, and removing it leaves nothing behind.
    name, owner = f"doctor:{new_id()}", Scope(tenant, "doctor")
    await store.claim(tenant, name, owner)
    await store.unclaim(tenant, name, owner)


def _examine_folder(path: Path, finding: StoreReport) -> None:
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    finding.writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    if not finding.writable:
        finding.problems.append(f"there is no store, and folder {str(folder)!r} is not writable")


def _lines(store: StoreReport, tokens: TokensReport, problems: list[str]) -> Iterator[str | Text]:
    yield from (fact(name, found) for name, found in versions().items())
    yield from ("", fact("store", store.url))
    if store.exists is False:
        yield fact("", "does not exist yet; the first program that connects creates it")
    for name in ("opens", "writable"):
        if (answer := getattr(store, name)) is not None:
            yield fact(name, "yes" if answer else "no")
    if store.info is not None:
        yield from (fact(name, str(value)) for name, value in _about(store.info))
    for run in store.undriven:
        version = f" version {run.version}" if run.version else ""
        place = f"{run.session} {run.thread}"
        yield fact("undriven", plain(f"{place}: waits for a process with {run.agent}{version}"))
    for token in tokens.found:
        runs = "running" if token.served else "not running"
        yield fact("token", f"port {token.port}, {token.store}, {runs}")
    yield ""
    yield from (Text(plain(f"problem: {problem}"), style="red") for problem in problems)
    if not problems:
        yield Text("no problems found", style="green")


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
    "none": "none: lost when the process ends",
    "process": "process: survives a crash of the process, not of the machine",
    "machine": "machine: survives a power failure",
}

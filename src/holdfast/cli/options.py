"""The options that every verb takes, the store they name, and how times are written.

No verb creates a store unless it says so: a wrong place is said to be wrong instead of
being answered from a new and empty database.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from cyclopts import Group, Parameter

from ..errors import InvalidValue
from ..stores import connect
from ..stores.address import place, shown
from ..stores.migrations import SchemaState, schema_of
from ..stores.port import Store
from ..stores.retry import slow
from .failure import UsageError
from .output import Output

COMMON = Group("Options of every verb", sort_key=90)
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
WAITED = "{} does not answer yet: it is waited for"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@Parameter(name="*", group=COMMON)
@dataclass(frozen=True, kw_only=True)
class Common:
    """What every verb takes."""

    store: Annotated[
        str | None,
        Parameter(
            help="The store: sqlite:PATH, file:DIR, postgresql://… or mongodb://…. "
            "Default: $HOLDFAST_STORE, else holdfast.db in your data folder."
        ),
    ] = None
    tenant: Annotated[str, Parameter(help="The tenant whose sessions to work on.")] = "main"
    json: Annotated[bool, Parameter(help="Write JSON to stdout, and errors as JSON.")] = False

    @property
    def url(self) -> str:
        return self.store or os.environ.get("HOLDFAST_STORE") or default_store()

    def open(self) -> AbstractAsyncContextManager[Store]:
        """The store, if it is there and up to date (`InvalidValue` if not)."""
        return open_store(self.url, say=None if self.json else self.output().remark)

    def output(self) -> Output:
        return Output(json=self.json)


EVERYWHERE = Common()


def data_folder(
    platform: str = sys.platform,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
) -> Path:
    """Where this user's programs keep data, by the custom of the platform."""
    home = home or Path.home()
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "holdfast"
    if platform == "darwin":
        return home / "Library" / "Application Support" / "holdfast"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "holdfast"


def default_store() -> str:
    """The URL of the store that is used when none is named."""
    return "sqlite:" + quote(str(data_folder() / "holdfast.db"), safe="/:\\")


async def check_there(url: str) -> None:
    """Refuse a path at which there is nothing."""
    path = place(url)
    if path is not None and not await asyncio.to_thread(path.exists):
        raise InvalidValue(
            field="store",
            problem=f"there is nothing at {str(path)!r}",
            remedy="name your program's store with --store URL or HOLDFAST_STORE",
        )


def check_made(url: str, schema: SchemaState) -> None:
    """Refuse a store that a connection would make or migrate."""
    if not schema.due:
        return
    problem = f"schema {schema.found} is too old" if schema.found else "there is no store"
    raise InvalidValue(
        field="store",
        problem=f"{problem} at {shown(url)}",
        remedy="run `holdfast migrate`, or name your program's store with --store URL or "
        "HOLDFAST_STORE",
    )


@asynccontextmanager
async def open_store(
    url: str, *, make: bool = False, say: Callable[[str], None] | None = None
) -> AsyncGenerator[Store, None]:
    """Connect to a store that exists, and unless `make` is set, one that is up to date. Where it
    does not answer at once, that is said."""
    connecting = connect(url)
    await check_there(url)
    if not make:
        with slow(say and partial(say, WAITED.format(shown(url)))):
            check_made(url, await schema_of(url))
    async with connecting as store:
        yield store


@asynccontextmanager
async def look_into(url: str) -> AsyncGenerator[Store, None]:
    """The store, or if there is none an empty one in its place, so that what would be done
    can be told and nothing is made."""
    there = (await schema_of(url)).found > 0
    async with open_store(url if there else "memory:") as store:
        yield store


_PART = r"(\d{1,12})(min|[smhdw])"


def is_duration(text: str) -> bool:
    """Whether a text is a duration: 90s, 30min, 1h30min, 3d, 2w."""
    return re.fullmatch(f"({_PART})+", text) is not None


def seconds(option: str, text: str) -> int:
    """A duration in seconds (`UsageError` names the option)."""
    if not is_duration(text):
        raise UsageError(f"{option} takes a duration such as 90s, 30min, 2h or 3d, not {text!r}")
    return sum(int(count) * UNITS[unit] for count, unit in re.findall(_PART, text))


def seconds_or_never(option: str, text: str) -> int | None:
    """A duration in seconds, or None for `never`."""
    return None if text == "never" else seconds(option, text)


def instant(option: str, text: str, now: int) -> int:
    """A time in ms: an ISO date or time, in UTC unless it says otherwise, or a duration, which
    is that long before `now`."""
    if is_duration(text):
        return max(now - seconds(option, text) * 1000, 0)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} takes an ISO date or time such as 2026-05-04 or 2026-05-04T09:30Z, "
            f"or a duration such as 2h or 3d, not {text!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max((time - EPOCH) // timedelta(milliseconds=1), 0)

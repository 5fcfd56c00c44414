"""Options and arguments that several verbs share. Also opens the store that the options select.

No verb creates a store unless its help says so: with a wrong path, a command fails instead of using
a new, empty database.
"""

from __future__ import annotations

import asyncio
import getpass
import importlib
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform
from urllib.parse import quote

from cyclopts import Group, Parameter, validators

from ..errors import InvalidValue, MissingExtra
from ..log.codec import LIMITS
from ..stores import connect
from ..stores.creation import StoreCreation
from ..stores.migrations import SchemaState, schema_of
from ..stores.port import Store
from ..stores.retry import slow
from ..stores.url_display import place, shown
from .error_report import UsageError
from .output import Output, plain

T = TypeVar("T")
COMMON = Group("Common options", sort_key=90)
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
WAITING = "{} does not respond yet; waiting"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Session: TypeAlias = Annotated[
    str, Parameter(help="Session id. Put -- before an id that starts with a dash.")
]
Thread: TypeAlias = Annotated[str, Parameter(help="Thread of the session.")]
OneThread: TypeAlias = Annotated[
    str | None, Parameter(help="Only this thread. Default: all threads.")
]
Limit: TypeAlias = Annotated[
    int,
    Parameter(help="Maximum number of items.", validator=validators.Number(gte=1, lte=LIMITS.page)),
]
Cursor: TypeAlias = Annotated[
    str | None, Parameter(help="Cursor that the previous page printed; continue from there.")
]
Yes: TypeAlias = Annotated[
    bool, Parameter(name=["--yes", "-y"], help="Do not ask for confirmation.")
]
Force: TypeAlias = Annotated[bool, Parameter(help="Overwrite existing files.")]
DryRun: TypeAlias = Annotated[
    bool, Parameter(help="Show what would be done without changing anything.")
]
Create: TypeAlias = Annotated[bool, Parameter(help="Create the store if it does not exist.")]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def option_group(kind: type[T]) -> type[T]:
    """Turn a class into a group of options: its fields become options of the verbs that take it."""
    return Parameter(name="*")(dataclass(frozen=True, kw_only=True)(kind))


@Parameter(group=COMMON)
@option_group
class Common:
    """Options of every verb.

    :param store: Store URL: sqlite:PATH, file:DIR, postgresql://… or mongodb://…. Default:
        $HOLDFAST_STORE, else holdfast.db in your data folder.
    :param tenant: Tenant of the sessions.
    :param json: Write JSON to stdout, and errors as JSON.
    """

    store: str | None = None
    tenant: str = "main"
    json: bool = False

    @property
    def url(self) -> str:
        return self.store or os.environ.get("HOLDFAST_STORE") or default_store()

    def open(self) -> AbstractAsyncContextManager[Store]:
        """Open the store. Raises `InvalidValue` if it does not exist or is not up to date."""
        return open_store(self.url, say=None if self.json else self.output().remark)

    def output(self) -> Output:
        return Output(json=self.json)


DEFAULTS = Common()


@option_group
class By:
    """The actor of a change and its reason; both are recorded in the session's log.

    :param reason: Reason, recorded in the log.
    :param actor: Name of the actor. Default: cli:USER, with your user name.
    """

    reason: str | None = None
    actor: str | None = None

    @property
    def who(self) -> str:
        return f"cli:{user()}" if self.actor is None else self.actor


BY = By()


def user() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        return "unknown"


def server_part(name: str, verb: str) -> Any:
    """Import a module of the server. Raises `MissingExtra` if the server's extra is not
    installed."""
    try:
        return importlib.import_module(f"holdfast.server.{name}")
    except ImportError as error:
        raise MissingExtra(extra="server", needed_for=f"holdfast {verb}") from error


def check_can_ask(verb: str) -> None:
    """Raise an error if a command needs confirmation and no terminal is attached."""
    if not sys.stdin.isatty():
        raise UsageError(f"{verb} needs a terminal to ask for confirmation; add --yes to skip it")


def confirmed(verb: str, question: str) -> bool:
    """Ask for confirmation on the terminal. Call it outside an event loop, which would delay
    Ctrl-C."""
    check_can_ask(verb)
    print(plain(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def data_folder(
    platform: str = sys.platform,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
) -> Path:
    """Return the folder for this user's data files, which depends on the platform."""
    home = home or Path.home()
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "holdfast"
    if platform == "darwin":
        return home / "Library" / "Application Support" / "holdfast"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "holdfast"


def default_store() -> str:
    """Return the URL of the default store."""
    return "sqlite:" + quote(str(data_folder() / "holdfast.db"), safe="/:\\")


async def check_exists(url: str) -> None:
    """Raise `InvalidValue` for the URL of a local store that does not exist."""
    path = place(url)
    if path is not None and not await asyncio.to_thread(path.exists):
        raise InvalidValue(
            field="store",
            problem=f"there is no store at {str(path)!r}",
            remedy="pass your program's store with --store URL or HOLDFAST_STORE",
        )


def check_current(url: str, schema: SchemaState) -> None:
    """Raise `InvalidValue` for a store that does not exist or has an old schema."""
    if not schema.due:
        return
    problem = f"schema {schema.found} is too old" if schema.found else "there is no store"
    raise InvalidValue(
        field="store",
        problem=f"{problem} at {shown(url)}",
        remedy="run `holdfast migrate`, or pass your program's store with --store URL or "
        "HOLDFAST_STORE",
    )


@asynccontextmanager
async def open_store(
    url: str, *, make: bool = False, say: Callable[[str], None] | None = None
) -> AsyncGenerator[Store, None]:
    """Open a store that exists and, unless `make` is set, has the current schema. `say` is called
    with a note if the store is slow to respond.
    """
    connecting = connect(url)
    await check_exists(url)
    if not make:
        with slow(say and partial(say, WAITING.format(shown(url)))):
            check_current(url, await schema_of(url))
    async with connecting as store:
        yield store


@asynccontextmanager
async def create_store(url: str, *, folders: bool) -> AsyncGenerator[Store, None]:
    """Open a store, and create it if it does not exist; with `folders`, its parent folders too. A
    new store that stays empty is removed again."""
    async with StoreCreation(url, folders=folders), connect(url) as store:
        yield store


@asynccontextmanager
async def open_for_dry_run(url: str) -> AsyncGenerator[Store, None]:
    """Open the store for a dry run. If it does not exist, open an empty store in memory instead."""
    there = (await schema_of(url)).found > 0
    async with open_store(url if there else "memory:") as store:
        yield store


_PART = r"(\d{1,12})(min|[smhdw])"


def is_duration(text: str) -> bool:
    """Return whether a string is a duration such as 90s, 30min, 1h30min, 3d or 2w."""
    return re.fullmatch(f"({_PART})+", text) is not None


def seconds(option: str, text: str) -> int:
    """Parse a duration into seconds. Raises `UsageError`, which contains the name of the option."""
    if not is_duration(text):
        raise UsageError(f"{option} must be a duration such as 90s, 30min, 2h or 3d, got {text!r}")
    return sum(int(count) * UNITS[unit] for count, unit in re.findall(_PART, text))


def seconds_or_never(option: str, text: str) -> int | None:
    """Parse a duration into seconds, or `never` into None."""
    return None if text == "never" else seconds(option, text)


def instant(option: str, text: str, now: int) -> int:
    """Parse a time into milliseconds: an ISO date or time, UTC by default, or a duration, which
    is subtracted from `now`."""
    if is_duration(text):
        return max(now - seconds(option, text) * 1000, 0)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} must be an ISO date or time such as 2026-05-04 or 2026-05-04T09:30Z, "
            f"or a duration such as 2h or 3d, got {text!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max((time - EPOCH) // timedelta(milliseconds=1), 0)

"""Where the stores under test are, and what their raw files hold."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

from holdfast import Store, Vault
from holdfast.store import wall_clock
from holdfast.stores.file import FileStore
from holdfast.stores.sqlite import SqliteStore
from tests import servers

KINDS = ("sqlite", "file")
SHARED = ("postgres", "mongodb")  # on a server; `pooled` and `standalone` are ways to them
PLACES = {"sqlite": "holdfast.db", "file": "holdfast"}


ENCRYPTED = "+vault"  # behind a kind


def url(kind: str, folder: Path, durability: str = "machine") -> str:
    """The URL of the store of this kind in a folder, or of the one on a server that belongs to
    the folder. An encrypted one has its vault in the folder too."""
    if kind.endswith(ENCRYPTED):
        return vaulted(url(kind.removesuffix(ENCRYPTED), folder, durability), folder)
    if kind in servers.KINDS:
        return servers.url(kind, folder)
    return f"{kind}:{quote(str(folder / PLACES[kind]))}?durability={durability}"


def vaulted(url: str, folder: Path) -> str:
    """The URL with a vault, which is made if it is not in the folder yet."""
    file = folder / "vault.toml"
    if not file.exists():
        file.write_text(f'keys = ["{Vault.new_key("test")}"]\n')
    return f"{url}{'&' if '?' in url else '?'}vault={quote(str(file), safe='')}"


async def open_at(
    kind: str,
    folder: Path,
    *,
    later: int = 0,
    durability: str = "machine",
    clock: Callable[[], int] = wall_clock,
) -> Store:
    """The store, its clock `later` ms ahead."""
    openers: dict[str, Callable[..., Awaitable[Store]]] = {
        "sqlite": SqliteStore.open,
        "file": FileStore.open,
    }
    return await openers[kind](
        folder / PLACES[kind], durability=durability, clock=lambda: clock() + later
    )


def copy(folder: Path, to: Path) -> Path:
    """A copy of a closed store, in place of what is at `to`."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def drop_index(folder: Path) -> None:
    """Remove the index of a closed file store."""
    for path in (folder / PLACES["file"]).glob("index.db*"):
        if path.suffix != ".lock":
            path.unlink()


def holding(folder: Path, text: str) -> list[str]:
    """The files under a folder that hold `text`, in their bytes or in their names."""
    wanted = text.encode()
    found = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if text in name:
            found.append(f"the name {name}")
        if path.is_file() and wanted in path.read_bytes():
            found.append(name)
    return found

"""The files of a session's work folder, through its sandbox, which keeps every path inside."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, JSONBody, QueryParameter

from ...errors import InvalidValue, OutsideSandbox, RequestTooLarge
from ...harness.sandbox import Place
from ...harness.sandbox.archive import pack, unpack
from ...harness.session.session import core_of
from ...values.records import Restored
from ...wire.files import PATH, Edited, EditFile, FileShown, MakeFolder, MoveFile, Tree, Written
from ..http.context import Ask, Asking, SessionId
from ..http.file_response import given_out

FILE = 16 << 20  # bytes of a file that is read or edited, at most
SHOWN, DEEPEST = 1_000, 8  # entries of a tree, and how many folders it goes down
READ, WRITE = {"scope": "files:read"}, {"scope": "files:write"}
BYTES, GZIP = "application/octet-stream", "application/gzip"

FilePath = Annotated[
    str,
    QueryParameter(
        min_length=1,
        max_length=4_096,
        pattern=PATH,
        description="From the work folder, with slashes.",
    ),
]
Depth = Annotated[int, QueryParameter(ge=1, le=DEEPEST)]


@asynccontextmanager
async def _folder(ask: Asking, id: str, **paths: str) -> AsyncGenerator[Place, None]:
    """The work folder of a session; which paths in it are asked for is written down."""
    ask.note(**paths)
    for path in paths.values():
        if path.startswith("/"):
            raise OutsideSandbox(path=path)
    async with ask.session(id) as session:
        yield await core_of(session).place()


@get("/sessions/{session_id:str}/files/tree", opt=READ, operation_id="show_files")
async def tree(ask: Ask, session_id: SessionId, path: FilePath = ".", depth: Depth = 1) -> Tree:
    """What is in a folder, and in those below it down to `depth`."""
    async with _folder(ask, session_id, path=path) as folder:
        found = await folder.tree(path, depth=depth, limit=SHOWN + 1)
    shown = [msgspec.convert(entry, FileShown, from_attributes=True) for entry in found[:SHOWN]]
    return Tree(entries=shown, more=len(found) > SHOWN)


@get(
    "/sessions/{session_id:str}/files/content",
    opt=READ,
    operation_id="read_file",
    media_type=BYTES,
    responses={200: ResponseSpec(bytes, media_type=BYTES, description="what is in it")},
)
async def read(ask: Ask, session_id: SessionId, path: FilePath) -> Response[bytes]:
    """A file's bytes."""
    async with _folder(ask, session_id, path=path) as folder, ask.service.outbox.making:
        data = await folder.read(path, limit=FILE + 1)
        if len(data) > FILE:
            raise RequestTooLarge(limit=FILE)
        ask.hold(len(data))
    # Nothing that a tool wrote is a page of this server's.
    guards = {"content-disposition": "attachment"}
    return Response(data, media_type=BYTES, headers=guards)


@put(
    "/sessions/{session_id:str}/files/content",
    opt={**WRITE, "body": "raw", "limit": FILE},
    operation_id="write_file",
)
async def write(
    ask: Ask, request: Request[Any, Any, Any], session_id: SessionId, path: FilePath
) -> Written:
    """Write a file, whole or not at all; folders above it are made."""
    data = await request.body()
    async with _folder(ask, session_id, path=path) as folder:
        await folder.write(path, data)
    return Written(path=path, size=len(data))


@post("/sessions/{session_id:str}/files/edit", status_code=200, opt=WRITE, operation_id="edit_file")
async def edit(ask: Ask, session_id: SessionId, data: JSONBody[EditFile]) -> Edited:
    """Replace a text in a file."""
    search, new = data.search.encode(), data.replace.encode()
    async with _folder(ask, session_id, path=data.path) as folder:
        text = await folder.read(data.path, limit=FILE + 1)
        if len(text) > FILE:
            raise RequestTooLarge(limit=FILE)
        found = text.count(search)
        if found == 0 or (found > 1 and not data.all):
            raise InvalidValue(
                field="search",
                problem=f"is in the file {found} times",
                remedy="give a text that is there once, or ask for all of them",
            )
        await folder.write(data.path, text.replace(search, new))
    return Edited(path=data.path, replaced=found)


@post(
    "/sessions/{session_id:str}/files/folders",
    status_code=204,
    opt=WRITE,
    operation_id="make_folder",
)
async def make(ask: Ask, session_id: SessionId, data: JSONBody[MakeFolder]) -> None:
    """Make a folder, and those above it; one that is there is fine."""
    async with _folder(ask, session_id, path=data.path) as folder:
        await folder.make(data.path)


@post("/sessions/{session_id:str}/files/move", status_code=204, opt=WRITE, operation_id="move_file")
async def move(ask: Ask, session_id: SessionId, data: JSONBody[MoveFile]) -> None:
    """Give a file or folder another path; refused where there is something already."""
    async with _folder(ask, session_id, path=data.path, to=data.to) as folder:
        await folder.move(data.path, data.to)


@delete("/sessions/{session_id:str}/files", status_code=204, opt=WRITE, operation_id="remove_file")
async def remove(
    ask: Ask, session_id: SessionId, path: FilePath, all: FromQuery[bool] = False
) -> None:
    """Remove a file, a link or an empty folder; with `all`, a folder with what is in it."""
    async with _folder(ask, session_id, path=path) as folder:
        await folder.remove(path, all=all)


@get(
    "/sessions/{session_id:str}/files/archive",
    opt=READ,
    operation_id="pack_files",
    responses={200: ResponseSpec(bytes, media_type=GZIP, description="a .tar.gz")},
)
async def archive(ask: Ask, session_id: SessionId) -> Response[Any]:
    """All files of the work folder as a .tar.gz, but links and what is in `.git`."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="holdfast-files-"))
    packed = folder / "files.tar.gz"
    try:
        async with _folder(ask, session_id) as place:
            await pack(place, packed)
        size = (await asyncio.to_thread(packed.stat)).st_size
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder)
        raise
    headers = {
        "content-length": str(size),
        "content-disposition": 'attachment; filename="files.tar.gz"',
    }
    return given_out(packed, GZIP, headers, ask.patience)


@put(
    "/sessions/{session_id:str}/files/archive",
    opt={**WRITE, "body": "raw"},
    operation_id="restore_files",
    description="The body is a .tar.gz, such as `pack_files` gives.",
)
async def restore(ask: Ask, request: Request[Any, Any, Any], session_id: SessionId) -> Restored:
    """Put the files of an archive into the work folder, over those with the same path. All of it
    is checked before anything is written."""
    data = await request.body()
    async with _folder(ask, session_id) as place:
        return await unpack(place, data)


HANDLERS: list[Any] = [tree, read, write, edit, make, move, remove, archive, restore]

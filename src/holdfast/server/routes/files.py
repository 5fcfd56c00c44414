"""Routes for the files of a session's work folder. The sandbox rejects paths that leave the
folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, JSONBody, QueryParameter

from ...errors import InvalidValue, OutsideSandbox, RequestTooLarge
from ...harness import Place, core_of, pack, unpack
from ...values.records import Restored
from ...wire.files import PATH, Edited, EditFile, FileShown, MakeFolder, MoveFile, Tree, Written
from ..http.context import Context, RequestContext
from ..http.file_response import made_file
from .parameters import SESSION, SessionId

FILE = 16 << 20  # the largest file that is read or edited, in bytes
SHOWN, DEEPEST = 1_000, 8  # entries and depth of a tree, at most
READ, WRITE = {"scope": "files:read"}, {"scope": "files:write"}
BYTES, GZIP = "application/octet-stream", "application/gzip"

FilePath = Annotated[
    str,
    QueryParameter(
        min_length=1,
        max_length=4_096,
        pattern=PATH,
        description="The path relative to the work folder, separated by slashes.",
    ),
]
Depth = Annotated[int, QueryParameter(ge=1, le=DEEPEST)]


@asynccontextmanager
async def _folder(ctx: RequestContext, id: str, **paths: str) -> AsyncGenerator[Place, None]:
    """Context manager that opens the work folder of a session. The paths are added to the audit
    record."""
    ctx.note(**paths)
    for path in paths.values():
        if path.startswith("/"):
            raise OutsideSandbox(path=path)
    async with ctx.session(id) as session:
        yield await core_of(session).place()


@get(SESSION + "/files/tree", opt=READ, operation_id="show_files")
async def tree(ctx: Context, session_id: SessionId, path: FilePath = ".", depth: Depth = 1) -> Tree:
    """Return the entries of a folder, and of its subfolders down to `depth`."""
    async with _folder(ctx, session_id, path=path) as folder:
        found = await folder.tree(path, depth=depth, limit=SHOWN + 1)
    shown = [msgspec.convert(entry, FileShown, from_attributes=True) for entry in found[:SHOWN]]
    return Tree(entries=shown, more=len(found) > SHOWN)


@get(
    SESSION + "/files/content",
    opt=READ,
    operation_id="read_file",
    media_type=BYTES,
    responses={200: ResponseSpec(bytes, media_type=BYTES, description="The content of the file.")},
)
async def read(ctx: Context, session_id: SessionId, path: FilePath) -> Response[bytes]:
    """Read a file."""
    async with _folder(ctx, session_id, path=path) as folder, ctx.service.outbox.making:
        data = await _read(folder, path)
        ctx.hold(len(data))
    # A browser must not show a file that a tool wrote as a page of this server.
    return Response(data, media_type=BYTES, headers={"content-disposition": "attachment"})


async def _read(folder: Place, path: str) -> bytes:
    data = await folder.read(path, limit=FILE + 1)
    if len(data) > FILE:
        raise RequestTooLarge(limit=FILE)
    return data


@put(
    SESSION + "/files/content",
    opt={**WRITE, "body": "raw", "limit": FILE},
    operation_id="write_file",
)
async def write(
    ctx: Context, request: Request[Any, Any, Any], session_id: SessionId, path: FilePath
) -> Written:
    """Write a file atomically; missing parent folders are created."""
    data = await request.body()
    async with _folder(ctx, session_id, path=path) as folder:
        await folder.write(path, data)
    return Written(path=path, size=len(data))


@post(SESSION + "/files/edit", status_code=200, opt=WRITE, operation_id="edit_file")
async def edit(ctx: Context, session_id: SessionId, data: JSONBody[EditFile]) -> Edited:
    """Replace text in a file."""
    search, new = data.search.encode(), data.replace.encode()
    async with _folder(ctx, session_id, path=data.path) as folder:
        text = await _read(folder, data.path)
        found = text.count(search)
        if found == 0 or (found > 1 and not data.all):
            raise InvalidValue(
                field="search",
                problem=f"matches {found} times",
                remedy="pass text that occurs once, or set all=true to replace all matches",
            )
        await folder.write(data.path, text.replace(search, new))
    return Edited(path=data.path, replaced=found)


@post(
    SESSION + "/files/folders",
    status_code=204,
    opt=WRITE,
    operation_id="make_folder",
)
async def make(ctx: Context, session_id: SessionId, data: JSONBody[MakeFolder]) -> None:
    """Create a folder and its parent folders. Has no effect if it exists."""
    async with _folder(ctx, session_id, path=data.path) as folder:
        await folder.make(data.path)


@post(SESSION + "/files/move", status_code=204, opt=WRITE, operation_id="move_file")
async def move(ctx: Context, session_id: SessionId, data: JSONBody[MoveFile]) -> None:
    """Move a file or folder. Fails if the new path exists."""
    async with _folder(ctx, session_id, path=data.path, to=data.to) as folder:
        await folder.move(data.path, data.to)


@delete(SESSION + "/files", status_code=204, opt=WRITE, operation_id="remove_file")
async def remove(
    ctx: Context, session_id: SessionId, path: FilePath, all: FromQuery[bool] = False
) -> None:
    """Delete a file, a link or an empty folder; with `all`, a folder with its content."""
    async with _folder(ctx, session_id, path=path) as folder:
        await folder.remove(path, all=all)


@get(
    SESSION + "/files/archive",
    opt=READ,
    operation_id="pack_files",
    responses={200: ResponseSpec(bytes, media_type=GZIP, description="A .tar.gz archive.")},
)
async def archive(ctx: Context, session_id: SessionId) -> Response[Any]:
    """Return all files of the work folder as a .tar.gz archive, without links and `.git`
    folders."""
    async with made_file("files.tar.gz", GZIP, ctx.patience) as made:
        async with _folder(ctx, session_id) as place:
            await pack(place, made.path)
        size = (await asyncio.to_thread(made.path.stat)).st_size
    return made.response(
        {
            "content-length": str(size),
            "content-disposition": 'attachment; filename="files.tar.gz"',
        }
    )


@put(
    SESSION + "/files/archive",
    opt={**WRITE, "body": "raw"},
    operation_id="restore_files",
    description="The body is a .tar.gz archive, as the operation `pack_files` returns it.",
)
async def restore(ctx: Context, request: Request[Any, Any, Any], session_id: SessionId) -> Restored:
    """Write the files of an archive into the work folder, replacing files with the same path. The
    whole archive is checked before anything is written."""
    data = await request.body()
    async with _folder(ctx, session_id) as place:
        return await unpack(place, data)


HANDLERS: list[Any] = [tree, read, write, edit, make, move, remove, archive, restore]

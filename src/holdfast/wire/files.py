"""Requests and responses for the files of a session's work folder."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from ..errors import InvalidValue

PATH = r"^[^\x00]*[^\x00\s][^\x00]*$"  # not blank
FilePath: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4_096, pattern=PATH)]


class File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that is sent with a request."""

    path: FilePath
    content: str
    encoding: Literal["utf-8", "base64"] = "utf-8"

    def data(self) -> bytes:
        if self.encoding == "utf-8":
            return self.content.encode()
        try:
            return base64.b64decode(self.content, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidValue(
                field=f"files[{self.path!r}]", problem="is not base64", remedy="encode it as base64"
            ) from error


class FileShown(Struct, frozen=True, kw_only=True):
    """A file or folder: its path relative to the work folder, size in bytes, modification time in
    ms, and mode."""

    path: str
    type: Literal["file", "folder", "link", "other"]
    size: int
    changed: int
    mode: int


class Tree(Struct, frozen=True, kw_only=True):
    """The entries of a folder. `more` is true if there are entries that are not listed."""

    entries: list[FileShown]
    more: bool = False


class Written(Struct, frozen=True, kw_only=True):
    """The path and size of a file that was written."""

    path: str
    size: int


class EditFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replace text in a file. The text must occur exactly once, unless `all` is set, which replaces
    every occurrence."""

    path: FilePath
    search: Annotated[str, Meta(min_length=1)]
    replace: str
    all: bool = False


class Edited(Struct, frozen=True, kw_only=True):
    """The path of an edited file, and the number of occurrences that were replaced."""

    path: str
    replaced: int


class MakeFolder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create a folder and its parents."""

    path: FilePath


class MoveFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Move a file or folder."""

    path: FilePath
    to: FilePath

"""What a client uploads with a new session: the source of an agent, and files."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from .. import wire
from ..errors import InvalidValue

REMEDY = (
    'pass "https://…#ref" for a repository, a path below the server\'s agents, {"manifest": …}, '
    'or {"loader": …, "source": …}'
)


def source_of(given: str | Mapping[str, Any]) -> wire.Source:
    """Convert the `source` option of a new session to the agent source of a request. A URL selects
    the loader `git`, other text the loader `local`, and a mapping with a `manifest` the loader
    `inline`; a mapping with a `loader` contains the name of the loader."""
    if isinstance(given, str) and "://" in given:
        url, mark, ref = given.partition("#")
        return wire.Source(loader="git", source={"url": url, **({"ref": ref} if mark else {})})
    if isinstance(given, str) and given:
        return wire.Source(loader="local", source={"path": given})
    if isinstance(given, Mapping) and "manifest" in given:
        return wire.Source(loader="inline", source=dict(given))
    try:
        return msgspec.convert(given, wire.Source)
    except msgspec.ValidationError as error:
        raise InvalidValue(
            field="source",
            problem=f"must describe where to load an agent from ({error})",
            remedy=REMEDY,
        ) from None


def files_of(given: Mapping[str, bytes | str]) -> list[wire.File]:
    """Convert a mapping of paths to contents into the files of a request."""
    return [
        wire.File(path=path, content=data)
        if isinstance(data, str)
        else wire.File(path=path, content=base64.b64encode(data).decode(), encoding="base64")
        for path, data in given.items()
    ]

"""Converts the SDK's messages to JSON, and back. Pure.

Fields with their default value are omitted. When the SDK validates a message, every image becomes a
`BinaryImage`, and no audio a `BinaryAudio`. The key `types` contains the path and the class of each
file for which that is not the original class, so that the restored message equals the original.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryAudio,
    BinaryContent,
    BinaryImage,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
)
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import PydanticSerializationError

from ...errors import InvalidValue

log = logging.getLogger("holdfast.adapters")

Json: TypeAlias = dict[str, Any]

TYPES = "types"
CLASSES = {kind.__name__: kind for kind in (BinaryContent, BinaryImage, BinaryAudio)}
KINDS = ("kind", "part_kind")


def to_json(message: ModelMessage) -> Json:
    """Convert a message to JSON values. Raises `InvalidValue` if the SDK cannot serialise it."""
    try:
        (made,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidValue(
            field="messages",
            problem=f"contain a value that pydantic-ai cannot serialise ({error})",
            remedy="use values that ModelMessagesTypeAdapter can dump",
        ) from error
    found = lean(message, made)
    found["parts"] = [
        lean(part, each) for part, each in zip(message.parts, made["parts"], strict=True)
    ]
    if isinstance(message, ModelResponse):
        found["usage"] = lean_usage(message.usage, made["usage"])
    types = [
        [path, type(file).__name__]
        for path, file in _files(message)
        if type(file) is not (BinaryImage if file.is_image else BinaryContent)
    ]
    return {**found, TYPES: types} if types else found


def from_json(found: Sequence[Json]) -> list[ModelMessage | None]:
    """Restore messages from JSON. Returns None for a message that this version of the SDK cannot
    read, and logs it."""
    plain = [{key: value for key, value in each.items() if key != TYPES} for each in found]
    try:
        messages: list[ModelMessage | None] = [*ModelMessagesTypeAdapter.validate_python(plain)]
    except ValidationError:
        messages = [_one(each) for each in plain]
    for each, message in zip(found, messages, strict=True):
        for path, name in each.get(TYPES, ()):
            if message is not None and name in CLASSES:
                _retype(message, path, CLASSES[name])
    return messages


def _one(made: Json) -> ModelMessage | None:
    try:
        return ModelMessagesTypeAdapter.validate_python([made])[0]
    except ValidationError as error:
        log.warning("skipped a message that pydantic-ai cannot read: %s", error.errors()[0]["type"])
        return None


def lean(given: Any, made: Mapping[str, Any]) -> Json:
    """Return the JSON values of a dataclass without the fields that have their default value."""
    defaults = _defaults(type(given))  # type: ignore[arg-type]  # a class is hashable
    return {
        name: value
        for name, value in made.items()
        if name not in defaults
        or value != defaults[name]
        or isinstance(value, bool) != isinstance(defaults[name], bool)
    }


def lean_usage(given: RequestUsage | RunUsage, made: Mapping[str, Any]) -> Json:
    """Return the JSON values of a usage without counts that are zero and empty details."""
    usage = lean(given, made)
    return usage if usage.get("details") else {k: v for k, v in usage.items() if k != "details"}


@cache
def _defaults(kind: Any) -> Json:
    return {
        field.name: field.default
        for field in fields(kind)
        if field.name not in KINDS
        and (field.default is None or isinstance(field.default, str | int | float))
    }


# Files


def _files(message: ModelMessage) -> Iterator[tuple[list[Any], BinaryContent]]:
    for number, part in enumerate(message.parts):
        yield from _inside([number], getattr(part, "content", None))


def _inside(path: list[Any], value: Any) -> Iterator[tuple[list[Any], BinaryContent]]:
    if isinstance(value, BinaryContent):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _inside([*path, key], each)
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _inside([*path, place], each)


def _retype(message: ModelMessage, path: list[Any], kind: type[BinaryContent]) -> None:
    """Convert the file at a path in a message to another class."""
    number, *rest = path
    part: Any = message.parts[number]
    if not rest:
        part.content = _as(kind, part.content)
        return
    holder = part.content
    for key in rest[:-1]:
        holder = holder[key]
    holder[rest[-1]] = _as(kind, holder[rest[-1]])


def _as(kind: type[BinaryContent], file: BinaryContent) -> BinaryContent:
    return kind(
        data=file.data,
        media_type=file.media_type,
        identifier=file.identifier,
        vendor_metadata=file.vendor_metadata,
    )

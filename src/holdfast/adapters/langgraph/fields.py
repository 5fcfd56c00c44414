"""The fields of LangChain's messages as JSON values, and messages made of such fields. Pure.

LangChain validates the arguments of each message, which takes most of the time of loading a long
conversation. Fields that validation would not change are therefore set directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from ..json_values import SCALARS, is_json

Fields = dict[str, Any]  # of a message, with `type`; fields that are empty are left out
Check = Callable[[Any], bool]

CLASSES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}
TYPES = {made: name for name, made in CLASSES.items()}
TOKENS = {"input_tokens", "output_tokens", "total_tokens"}
DETAILS = {
    "input_token_details": {"audio", "cache_creation", "cache_read"},
    "output_token_details": {"audio", "reasoning"},
}
VALIDATORS = {"_backwards_compat_tool_calls", "coerce_args"}  # they do not change checked fields

_set = object.__setattr__


def fields_of(message: BaseMessage) -> Fields | None:
    """Return the fields of a message, or None if they are not JSON values, or not all that the
    message consists of."""
    name = TYPES.get(type(message))
    if name is None:
        return None
    given = _attributes(message)
    if not is_json(given):
        given = message.model_dump()
        if not is_json(given):
            return None
    fields = _not_empty(given)
    fields["type"] = name
    try:
        same = message_of(fields) == message
    except (TypeError, ValueError):
        return None
    return fields if same else None


def has_fields(value: Any, fields: Fields) -> bool:
    """Return whether a value is a message with these fields."""
    if TYPES.get(type(value)) != fields["type"]:
        return False
    try:
        return _not_empty(_attributes(value)) == fields
    except (TypeError, ValueError):  # arrays and tables cannot be compared
        return False


def _attributes(message: BaseMessage) -> Fields:
    return {**message.__dict__, **(message.__pydantic_extra__ or {})}


def _not_empty(given: Fields) -> Fields:
    return {
        name: value
        for name, value in given.items()
        if value is not None and (value or type(value) not in (list, dict))
    }


def message_of(fields: Fields) -> BaseMessage:
    """Return the message with these fields. Their lists and dicts become part of the message."""
    message = _unvalidated(fields)
    if message is not None:
        return message
    given = {key: value for key, value in fields.items() if key != "type"}
    return CLASSES[fields["type"]](**{"content": [], **given})


def _unvalidated(fields: Fields) -> BaseMessage | None:
    """Return the message with these fields, made without validation; None if validation could
    change or reject one of them."""
    name = fields["type"]
    checks, scalars, containers = CHECKS[name], *DEFAULTS[name]
    for field, value in fields.items():
        check = checks.get(field)
        if check is None or not check(value):
            return None
    if REQUIRED[name] - fields.keys():
        return None
    values = {**scalars, **{field: made() for field, made in containers}, **fields}
    made = CLASSES[name]
    message = made.__new__(made)
    _set(message, "__dict__", values)
    _set(message, "__pydantic_fields_set__", {"content", *fields} - {"type"})
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message


# The fields that validation returns unchanged, and how to recognise them


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_dict(value: Any) -> bool:
    return type(value) is dict


def _is_content(value: Any) -> bool:
    return type(value) is str or (
        type(value) is list and all(type(part) in (str, dict) for part in value)
    )


def _has_no_calls(value: Any) -> bool:
    return type(value) is dict and "tool_calls" not in value  # LangChain parses these


def _are_calls(value: Any) -> bool:
    return type(value) is list and all(map(_is_call, value))


def _is_call(call: Any) -> bool:
    return (
        type(call) is dict
        and len(call) == 4
        and call.get("type") == "tool_call"
        and type(call.get("name")) is str
        and type(call.get("args")) is dict
        and type(call.get("id")) is str
    )


def _is_usage(value: Any) -> bool:
    if type(value) is not dict or not value.keys() >= TOKENS:
        return False
    return all(
        type(part) is int if name in TOKENS else name in DETAILS and _is_details(part, name)
        for name, part in value.items()
    )


def _is_details(value: Any, name: str) -> bool:
    return (
        type(value) is dict
        and value.keys() <= DETAILS[name]
        and all(type(count) is int for count in value.values())
    )


COMMON: dict[str, Check] = {
    "content": _is_content,
    "additional_kwargs": _is_dict,
    "response_metadata": _is_dict,
    "type": _is_text,
    "name": _is_text,
    "id": _is_text,
}
OWN: dict[str, dict[str, Check]] = {
    "human": {},
    "ai": {
        "additional_kwargs": _has_no_calls,
        "tool_calls": _are_calls,
        "usage_metadata": _is_usage,
    },
    "system": {},
    "tool": {
        "tool_call_id": _is_text,
        "artifact": lambda value: True,
        "status": lambda value: value in ("success", "error"),
    },
}
REQUIRED: dict[str, frozenset[str]] = {
    name: frozenset({"tool_call_id"} if name == "tool" else ()) for name in CLASSES
}
KNOWN = {"additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls"}

Containers = list[tuple[str, Callable[[], Any]]]


def _defaults(name: str) -> tuple[Fields, Containers]:
    """Return the fields of a message without content, in LangChain's order, and which of them are
    empty lists and dicts."""
    sample = CLASSES[name](content=[], **dict.fromkeys(REQUIRED[name], ""))
    values = sample.__dict__
    return values, [(field, type(v)) for field, v in values.items() if type(v) in (list, dict)]


def _is_known(name: str) -> bool:
    """Return whether a class of messages is the one that the checks were written for. A version of
    LangChain may add fields and validators."""
    made = CLASSES[name]
    decorators = made.__pydantic_decorators__
    return (
        {field for field, _ in DEFAULTS[name][1]} <= KNOWN | {"content"}
        and all(type(v) in {*SCALARS, list, dict} for v in DEFAULTS[name][0].values())
        and not made.__private_attributes__
        and made.__pydantic_post_init__ is None
        and decorators.model_validators.keys() <= VALIDATORS
        and not decorators.field_validators
    )


DEFAULTS = {name: _defaults(name) for name in CLASSES}
CHECKS = {name: {**COMMON, **OWN[name]} if _is_known(name) else {} for name in CLASSES}

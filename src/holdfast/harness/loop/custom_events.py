"""Validation of custom events, whose kinds an application defines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InvalidValue
from ..agents.agent import OWN_KIND, kind_problem
from ..tools import BadArguments
from ..tools.values import as_result
from .typed_output import convert


def custom(known: Mapping[str, Any], kind: str, payload: Any) -> Any:
    """Validate the payload of a custom event against the type that the agent declares for its kind,
    and return it as plain values. Raises `InvalidValue` if the kind or the payload is invalid."""
    if wrong := kind_problem(kind):
        raise InvalidValue(field="kind", problem=wrong, remedy=OWN_KIND)
    if (declared := known.get(kind)) is None:
        return payload
    plain = payload if isinstance(payload, str) else as_result(payload).data
    try:
        convert(plain, declared)
    except BadArguments as error:
        wrong = "; ".join(f"{issue.path} {issue.problem}" for issue in error.issues)
        raise InvalidValue(
            field=kind, problem=wrong, remedy="pass a payload of the type that the agent declares"
        ) from error
    return plain

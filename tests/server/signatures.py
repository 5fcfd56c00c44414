"""Signatures of handlers, read once for each process.

Litestar reads the signature of every handler again for every app. That is half of what it takes to
make one, and hundreds of tests make apps of the same handlers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from litestar._signature.model import SignatureModel
from litestar.utils.signature import ParsedSignature


@cache
def share() -> None:
    """Let all apps of this process share what was read of the functions that modules define."""
    parse, build = ParsedSignature.from_fn, SignatureModel.create
    parsed: dict[Any, ParsedSignature] = {}
    built: dict[Any, tuple[ParsedSignature, type[SignatureModel]]] = {}

    def from_fn(fn: Any, signature_namespace: dict[str, Any]) -> ParsedSignature:
        known = (fn, *signature_namespace.items())
        if known not in parsed:
            made = parse(fn, signature_namespace)
            if not _lasts(fn):
                return made
            parsed[known] = made
        return parsed[known]

    def create(
        dependency_name_set: set[str],
        fn: Any,
        parsed_signature: ParsedSignature,
        type_decoders: Any,
        data_dto: Any = None,
    ) -> type[SignatureModel]:
        # The decoders are made anew for each app, of the same functions.
        known = (fn, frozenset(dependency_name_set), repr(type_decoders), data_dto)
        of, model = built.get(known, (None, None))
        if model is None or of is not parsed_signature:
            model = build(dependency_name_set, fn, parsed_signature, type_decoders, data_dto)
            if _lasts(fn):
                built[known] = (parsed_signature, model)
        return model

    patch = pytest.MonkeyPatch()  # to the end of the process
    patch.setattr(ParsedSignature, "from_fn", staticmethod(from_fn))
    patch.setattr(SignatureModel, "create", staticmethod(create))


def _lasts(fn: Any) -> bool:
    """Whether it is a function of a module, and not one that was made for a single app."""
    return "<locals>" not in getattr(fn, "__qualname__", "<locals>")

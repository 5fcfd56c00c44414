"""A server against its own OpenAPI document: whatever the document allows is asked, and nothing is
answered that it does not tell of. The suite asks a little, the soak a lot."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import hypothesis
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.server import ServerLimits, create_app

from ..crash.outcome import Outcome, Tick, quiet
from .scene import listening, settings

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
HEADERS = {"Authorization": "Bearer ann@acme+sessions:all,admin"}
SEEDED = "one"


@contextmanager
def in_a_thread(**more: Any) -> Iterator[str]:
    """A server on a loop of its own; its address."""
    limits = ServerLimits(rate=None, wait_seconds=0.2)
    app = create_app(settings(limits=limits, **more))
    ready, over = threading.Event(), asyncio.Event()
    where: list[Any] = []

    async def serve() -> None:
        async with listening(app) as url:
            where.extend((url, asyncio.get_running_loop()))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield where[0]
    finally:
        where[1].call_soon_threadsafe(over.set)
        thread.join(60)


def operations(url: str) -> dict[str, Any]:
    """All operations of the document, by their names."""
    schema = schemathesis.openapi.from_url(f"{url}/v1/openapi.json")
    results: list[Any] = [*schema.get_all_operations()]
    found = [result.ok() for result in results]
    return {operation.definition.raw["operationId"]: operation for operation in found}


def try_out(operation: Any, examples: int) -> None:
    """Ask for an operation in ways that the document allows, and in some that it does not."""
    modes = schemathesis.GenerationMode
    _try(operation, modes.POSITIVE, itertools.cycle((SEEDED, None)), examples)
    with suppress(hypothesis.errors.Unsatisfiable):  # there is nothing to get wrong
        _try(operation, modes.NEGATIVE, itertools.repeat(None), examples)


def _try(operation: Any, mode: Any, ids: Iterator[str | None], examples: int) -> None:
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        path, id = case.path_parameters or {}, next(ids)
        if id is not None and "session_id" in path:
            path["session_id"] = id
        checks = [check for check in CHECKS if check is not negative_data_rejection or wrong(case)]
        case.call_and_validate(headers=HEADERS, checks=checks, timeout=30)

    run()


def wrong(case: Any) -> bool:
    """Whether a request is sent that the document does not allow. Not so where the one thing
    wrong with it is a parameter that is no plain value: in a query it is a text like any other, or
    not there at all; or the header that says who asks, which is put back."""
    negative = schemathesis.GenerationMode.NEGATIVE
    parts = {kind for kind, part in case.meta.components.items() if part.mode is negative}
    if not all(isinstance(value, str | int | float) for value in (case.query or {}).values()):
        parts.discard(ParameterLocation.QUERY)
    return bool(parts - {ParameterLocation.HEADER})


def checked(*, examples: int, tick: Tick = quiet) -> Outcome:
    """All operations, each asked for so many times in either way."""
    outcome = Outcome()
    logging.disable(logging.CRITICAL)
    try:
        with in_a_thread() as url:
            seed(url)
            found = operations(url)
            for done, (name, operation) in enumerate(found.items(), 1):
                try:
                    try_out(operation, examples)
                except (Exception, FailureGroup) as error:  # whatever a check says
                    outcome.problems.append(f"{name}: {error}")
                outcome.counts["requests"] += 2 * examples
                tick(done, len(found))
    finally:
        logging.disable(logging.NOTSET)
    return outcome


def seed(url: str) -> None:
    """A session that waits for a person, so that there is something to ask for."""
    httpx.put(f"{url}/v1/sessions/{SEEDED}", headers=HEADERS)
    said = {"content": "Refund"}
    httpx.post(f"{url}/v1/sessions/{SEEDED}/messages", headers=HEADERS, json=said)

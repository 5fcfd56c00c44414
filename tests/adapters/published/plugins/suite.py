"""A pytest plugin for the tests of an SDK: the stores on which they run, and which of them run.

`HOLDFAST_SUITE` is JSON: the URLs of the stores by kind (`vault` is encrypted), the tests that are
left out, and the file for the report. Each test runs on every store, with tenants of its own.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast import Vault
from holdfast.stores.shared import SharedStore, shared_store

GIVEN = json.loads(os.environ["HOLDFAST_SUITE"])
STORES: dict[str, str] = GIVEN["stores"]

_numbers = itertools.count(1)
_running = {"kind": next(iter(STORES))}
_counts: Counter[str] = Counter()
_failed: list[str] = []


@pytest.fixture(autouse=True, params=STORES)
def kind(request: pytest.FixtureRequest) -> Any:
    """The kind of store of a test."""
    _running["kind"] = request.param
    return request.param


@functools.cache
def _opened(kind: str) -> SharedStore:
    vault = Vault([Vault.new_key("first")]) if kind == "vault" else None
    return shared_store(STORES[kind], vault=vault)


def store() -> SharedStore:
    """Return the store of the running test. It is open until the process ends."""
    return _opened(_running["kind"])


def tenant() -> str:
    """Return the name of a tenant that nobody has used; it takes the place of a database."""
    return f"suite-{next(_numbers)}"


def wait(call: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
    """Call an async function from a thread, and return its result."""
    return store().portal.wait(call, *args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set(GIVEN["left_out"])
    names = {item: item.nodeid.partition("[")[0] for item in items}
    files = {name.partition("::")[0] for name in names.values()}
    unknown = {name for name in left_out - {*names.values()} if name.partition("::")[0] in files}
    if unknown:
        raise pytest.UsageError(f"no longer in the suite: {', '.join(sorted(unknown))}")
    config.hook.pytest_deselected(items=[item for item in items if names[item] in left_out])
    items[:] = [item for item in items if names[item] not in left_out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(f"{report.nodeid}: {report.longreprtext.splitlines()[-1:]}")
    elif report.when == "call" or report.skipped:
        _counts[report.outcome] += 1


def pytest_sessionfinish() -> None:
    report = {"counts": _counts, "failed": _failed}
    Path(GIVEN["report"]).write_text(json.dumps(report), encoding="utf-8")

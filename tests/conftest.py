"""What holds for every test: none is skipped, none lets Holdfast block the event loop, and a
`parity` mark names a real row. What a store or a child process needs is not set up here."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

import hypothesis
import pytest
from blockbuster import blockbuster_ctx

pytest_plugins = ["tests.parity"]

# The suite takes a few examples of each law; `--hypothesis-profile soak` takes many.
hypothesis.settings.register_profile("test", max_examples=30, deadline=None, print_blob=True)
hypothesis.settings.register_profile("soak", max_examples=2_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("test")

R = TypeVar("R", pytest.TestReport, pytest.CollectReport)


@pytest.fixture(scope="session", autouse=True)
def blocking_the_loop_fails() -> Iterator[None]:
    """A blocking call of Holdfast on the event loop raises `BlockingError`. Threads, plain
    functions and the tests themselves may block."""
    with blockbuster_ctx("holdfast", excluded_modules=["holdfast.testing"]):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return fail_if_skipped((yield))


def fail_if_skipped(report: R) -> R:
    """A skipped test is a failed one, so that the suite cannot go quiet. An expected failure
    counts as skipped too, unless it gives its reason."""
    expected = getattr(report, "wasxfail", "").removeprefix("reason: ")
    if report.outcome == "skipped" and not expected:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else "xfail without a reason"
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped here, and this one was: {why}"
    return report

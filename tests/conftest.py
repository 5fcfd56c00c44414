"""What holds for every test: none is skipped, none lets Holdfast block the event loop, a `parity`
mark names a real row, and database servers that a test asks for end with the run. What a store or
a child process needs is not set up here."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import ssl
import sys
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any, TypeVar

import certifi
import httpx
import hypothesis
import pytest

from tests import servers
from tests.blocking import guarded
from tests.servers import recycled, sweep

# Compile each module once, also where the environment says not to keep bytecode: workers and the
# hundreds of processes that tests start would all compile the package and the tests again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest.register_assert_rewrite("holdfast.testing")  # before any test imports it
pytest_plugins = ["tests.parity"]

# The suite takes a few examples of each law, the same each time, so that it is red only for what
# was changed; `--hypothesis-profile soak` takes many and looks for new ones.
hypothesis.settings.register_profile("test", max_examples=30, deadline=None, derandomize=True)
hypothesis.settings.register_profile("soak", max_examples=2_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("test")

# The folders and files whose tests all need a server, and those that take their time: they kill,
# cut and race processes, which is the same on every Python.
SERVERS = {"faults_net", "mongodb", "postgres", "servers"}
SLOW = {
    "crash",
    "damage",
    "diskfaults",
    "processes",
    "removal",
    "test_workloads.py",
    "test_processes.py",
    "test_resume.py",
}

AT_HAND = 100  # tests, after which what is still alive is set aside
_finished = itertools.count(1)

R = TypeVar("R", pytest.TestReport, pytest.CollectReport)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "server: this test needs a database server")
    config.addinivalue_line("markers", "slow: this test kills, cuts or races processes")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that ran us in the background said so, and our children would heed it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    servers.begin()  # before the processes of pytest-xdist, so that they share


def pytest_unconfigure() -> None:
    sweep.finish()
    recycled.finish()
    servers.end()


def pytest_runtest_logfinish() -> None:
    sweep.sweep()
    if next(_finished) % AT_HAND == 0:
        _set_aside()


def _set_aside() -> None:
    """What is alive between two tests are modules and what they keep, far more than a test makes:
    without this the garbage collector would look at all of it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The thousands of tests and modules that are collected stay to the end: the garbage collector
    need not look at them, neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is run for a kind of server needs one: `-m "not server and not slow"` leaves it out."""
    _leave_out_repetitions(config, items)
    for item in items:
        given = getattr(item, "callspec", None)
        about = given and any(kind in given.params.values() for kind in servers.KINDS)
        if about or SERVERS & set(item.path.parts):
            item.add_marker("server")
        if SLOW & set(item.path.parts):
            item.add_marker("slow")


def _leave_out_repetitions(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A class of tests may name kinds of stores in `ONE_CASE`: those that another kind in the class
    differs from only by its connection. Of a test with many cases they run the first."""
    seen: set[object] = set()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        kind = given.get("store")
        test = (item.nodeid.partition("[")[0], kind)
        again = test in seen and kind in getattr(getattr(item, "cls", None), "ONE_CASE", ())
        seen.add(test)
        (left_out if again else kept).append(item)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session", autouse=True)
def _far_from_the_users_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers of a test, in child processes too, keep their local tokens apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Each HTTP client with the usual settings reads all certificates, which takes it 40 ms: here
    they share what was read. The usual ones are those of the package `certifi`, or what the
    environment names instead. Who asks for anything else gets a context of their own."""
    make = ssl.create_default_context
    usual = {certifi.where(), os.environ.get("SSL_CERT_FILE")}

    @cache
    def shared(cafile: str) -> ssl.SSLContext:
        return make(cafile=cafile)

    def create(*args: Any, **given: Any) -> ssl.SSLContext:
        alone = not args and given.keys() == {"cafile"}
        if alone and given["cafile"] in usual:
            return shared(given["cafile"])
        return make(*args, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", create)
        yield


@pytest.fixture(scope="session", autouse=True)
def _requests_wait_for_a_busy_machine() -> Iterator[None]:
    """Requests that a test makes without a timeout of its own wait for longer than 5 seconds: only
    a hang takes so long."""
    usual = httpx._config.DEFAULT_TIMEOUT_CONFIG
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "read", "write", "pool"):
            patch.setattr(usual, name, 60.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def blocking_the_loop_fails() -> Iterator[None]:
    """A blocking call of Holdfast on the event loop raises `BlockingError`. Threads, plain
    functions and the tests themselves may block."""
    with guarded("holdfast", excluded="holdfast.testing") as guard:
        for function in guard.functions.values():
            # The driver looks for the user's certificates when it connects, and nowhere else.
            function.can_block_in("asyncpg/connect_utils.py", "_parse_connect_arguments")
            # This one looks whether it runs in a container.
            function.can_block_in("pymongo/pool_options.py", "get_container_env_info")
            # The SDK looks at its own folders, and starts its program.
            function.can_block_in("claude_agent_sdk/query.py", "query")
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

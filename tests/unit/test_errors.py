"""Every error: its code, its fields, its text, and its way through a pickle."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError

LOG = {"tenant": "acme", "session": "s1", "thread": "main"}

# One of each, with the text that people see.
EXAMPLES: list[tuple[HoldfastError, str]] = [
    (HoldfastError(), ""),
    (
        errors.InvalidValue(field="id", problem="has 0 bytes", remedy="use 1 to 512", limit=512),
        "id has 0 bytes: use 1 to 512",
    ),
    (
        errors.SessionNotFound(tenant="acme", session="s1"),
        "no thread 'main' of session 's1' in tenant 'acme': "
        "check the id, or create the session first",
    ),
    (
        errors.SessionExists(tenant="acme", session="s1", thread="t"),
        "thread 't' of session 's1' already exists",
    ),
    (
        errors.SessionMoved(**LOG, to="elsewhere"),
        "session 's1' was moved to 'elsewhere' and accepts no events here",
    ),
    (
        errors.PhaseError(tenant="acme", session="s1", phase="expired", move="touch"),
        "session 's1' is expired: touch is not allowed",
    ),
    (
        errors.SurfaceTaken(tenant="acme", session="s1", surface="slack", address="D42"),
        "surface slack 'D42' belongs to session 's1'",
    ),
    (
        errors.DeletionRefused(tenant="acme", session="s1", reason="held: lawsuit"),
        "session 's1' cannot be deleted: held: lawsuit",
    ),
    (
        errors.HeadMoved(**LOG, expected=3, head=5),
        "thread 'main' of session 's1' is at event 5, but 3 was expected",
    ),
    (
        errors.LogReplaced(**LOG, known="old", log=None),
        "thread 'main' of session 's1' was deleted and created again; log 'old' no longer exists",
    ),
    (
        errors.LeaseLost(**LOG, token=4, newest=5, owner="b"),
        "lease 4 of thread 'main' of session 's1' is no longer valid: "
        "the newest lease is 5 (held by 'b')",
    ),
    (
        errors.LeaseLost(**LOG, token=4, newest=4, owner=None),
        "lease 4 of thread 'main' of session 's1' is no longer valid: "
        "the newest lease is 4 (released)",
    ),
    (
        errors.LeaseHeld(**LOG, owner="a", since=100, left=900),
        "thread 'main' of session 's1' is driven by 'a'; its lease expires in 900 ms",
    ),
    (
        errors.BlobNotFound(tenant="acme", session="s1", sha256="ab"),
        "session 's1' has no blob ab",
    ),
    (errors.StoreError(problem="the disk is on fire"), "the disk is on fire"),
    (errors.StoreUnavailable(problem="no answer"), "no answer"),
    (errors.StoreTooNew(problem="schema 9", found=9, known=1), "schema 9"),
    (errors.StoreDamaged(problem="'s.db' is malformed"), "'s.db' is malformed"),
    (errors.StoreReplaced(problem="'s.db' was removed", path="s.db"), "'s.db' was removed"),
    (errors.LogDamaged(**LOG, problem="event 7 cannot be read", seq=7), "event 7 cannot be read"),
    (
        errors.KeyMissing(problem="it is encrypted by 'k'", tenant="t", key="k", seq=3),
        "it is encrypted by 'k'",
    ),
    (
        errors.UnknownStore(kind="s3", available=["memory", "sqlite"]),
        "unknown kind of store 's3': use one of memory, sqlite",
    ),
    (errors.ModelError(model="a/b", problem="refused", status=401), "a/b: refused"),
    (errors.Diverged(model="a/b", problem="another prompt", step=2), "a/b: another prompt"),
    (errors.ModelUnavailable(model="a/b", problem="away"), "a/b: away"),
    (errors.ModelRateLimited(model="a/b", problem="slower", retry_after=2.0), "a/b: slower"),
    (errors.ModelTimeout(model="a/b", problem="no answer"), "a/b: no answer"),
    (
        errors.InvalidAgent(agent="shop", faults=["no model", "two tools 'x'"]),
        "agent 'shop' is invalid:\n- no model\n- two tools 'x'",
    ),
    (errors.ToolError(problem="there is no order 42"), "there is no order 42"),
    (
        errors.ToolMissing(session="s1", agent="shop", tool="refund"),
        "session 's1' needs tool 'refund', which agent 'shop' does not have: "
        "serve it with an agent that has this tool",
    ),
    (
        errors.SessionBusy(session="s1", run="r"),
        "session 's1' is busy with run 'r': wait, or queue the message",
    ),
    (
        errors.QueueFull(session="s1", limit=100),
        "the queue of session 's1' is full (100 messages): retry later",
    ),
    (
        errors.NotPending(session="s1", item="p", pending=["q"]),
        "item 'p' is not pending in session 's1'; pending: q",
    ),
    (
        errors.NotPending(session="s1", item=None, pending=["p", "q"]),
        "several items are pending in session 's1': pass the id of one of them (p, q)",
    ),
    (
        errors.NotPending(session="s1", item=None, pending=[]),
        "nothing is pending in session 's1'",
    ),
    (
        errors.NotPending(session="s1", item="p", pending=[]),
        "item 'p' is not pending in session 's1'; pending: none",
    ),
    (
        errors.AlreadyDecided(session="s1", item="p", outcome="expired", by=None, at=7),
        "item 'p' expired at 1970-01-01 00:00:00Z without a decision",
    ),
    (
        errors.AlreadyDecided(session="s1", item="p", outcome="denied", by=None, at=7),
        "item 'p' was already denied at 1970-01-01 00:00:00Z",
    ),
    (
        errors.AlreadyDecided(session="s1", item="p", outcome="denied", by="ann", at=7),
        "item 'p' was already denied by ann at 1970-01-01 00:00:00Z",
    ),
    (
        errors.UnsafePoint(session="s1", at=7, nearest=3),
        "event 7 is in the middle of a turn: use event 3 instead",
    ),
    (
        errors.RunFailed(session="s1", run="r", status="failed", reason="x", problem="no luck"),
        "run r of session 's1' failed: no luck",
    ),
    (errors.HarnessClosed(what="session 's1'"), "session 's1' is closed"),
    (errors.SandboxError(problem="'a': Is a directory"), "'a': Is a directory"),
    (
        errors.ServerUnavailable(problem="the server cannot be reached"),
        "the server cannot be reached",
    ),
    (errors.NoSuchFile(path="a"), "'a': No such file or directory"),
    (errors.OutsideSandbox(path="../x"), "'../x' is outside the sandbox"),
    (
        errors.InvalidSettings(faults=["no agent", "port is 'x'"]),
        "the settings of the server are invalid:\n- no agent\n- port is 'x'",
    ),
    (errors.Unauthorized(), "a valid key is required"),
    (errors.Forbidden(problem="needs scope bundles", scope="bundles"), "needs scope bundles"),
    (errors.NoRoute(path="/v1/x"), "no route matches path '/v1/x'"),
    (
        errors.MethodNotAllowed(method="PUT", allowed=["GET", "POST"]),
        "method PUT is not allowed here: use GET, POST",
    ),
    (
        errors.UnsupportedMedia(found="text/plain", wanted="application/json"),
        "content type 'text/plain' is not supported here: send application/json",
    ),
    (errors.RequestTooLarge(limit=10), "the request body is too large: send at most 10 bytes"),
    (
        errors.RequestTooSlow(seconds=30.0),
        "the request body did not arrive within 30 seconds: retry",
    ),
    (
        errors.RateLimited(what="requests a second", limit=5.0, retry_after=0.5),
        "the limit of 5 requests a second is exceeded: retry in 0.5 seconds",
    ),
    (
        errors.KeyReused(key="k"),
        "idempotency key 'k' was used for another request: use a new key",
    ),
    (
        errors.UnknownEngine(engine="x", available=["holdfast"]),
        "unknown engine 'x': use one of holdfast",
    ),
    (
        errors.UnknownAgent(agent="x", available=["shop"]),
        "unknown agent 'x': use one of shop",
    ),
    (
        errors.UnknownLoader(loader="x", available=["local", "git"]),
        "unknown loader 'x': use one of local, git",
    ),
    (errors.ServerError(problem="odd", status=500, reason="odd"), "odd"),
    (errors.WrongServer(status=200), "the program at this address is not a Holdfast server"),
    (
        errors.WrongLoop(what="the harness"),
        "the harness was opened on another event loop: use it on that loop, open one for each "
        "loop, or use holdfast.sync, which works from any thread; a store works on any loop if "
        "you open it with shared_store(url) or connect(url, portal=True)",
    ),
    (
        errors.InvalidBundle(
            faults=[errors.Fault(code="missing", path="$.mode", problem="is missing")], more=2
        ),
        "the bundle is invalid:\n- $.mode: is missing\n- and 2 more",
    ),
    (
        errors.NotContinuable(bundle="sha256:ab", problem="has no texts", remedy="read it"),
        "bundle sha256:ab has no texts: read it",
    ),
    (
        errors.MissingExtra(extra="postgres", needed_for="a PostgreSQL store"),
        "a PostgreSQL store needs an optional package: pip install 'holdfast[postgres]'",
    ),
]
ERRORS = [error for error, _ in EXAMPLES]


def classes(root: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield root
    for cls in root.__subclasses__():
        if cls.__module__.startswith(errors.__name__):
            yield from classes(cls)


def test_every_error_is_tried_here() -> None:
    assert {type(error) for error in ERRORS} == set(classes())


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [cls.code for cls in set(classes())]
    assert len(codes) == len(set(codes))
    assert all(code.replace("_", "").islower() for code in codes)


def test_a_retry_can_help_only_where_something_passes_by_itself() -> None:
    assert {cls for cls in classes() if cls.retryable} == {
        errors.HeadMoved,
        errors.LeaseHeld,
        errors.StoreUnavailable,
        errors.ModelUnavailable,
        errors.ModelRateLimited,
        errors.ModelTimeout,
        errors.SessionBusy,
        errors.QueueFull,
        errors.RequestTooSlow,
        errors.RateLimited,
        errors.ServerUnavailable,
    }


@pytest.mark.parametrize(("error", "text"), EXAMPLES)
def test_an_error_says_what_happened(error: HoldfastError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_survives_a_pickle_with_its_fields(error: HoldfastError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert again.fields == error.fields
        assert str(again) == str(error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_is_rebuilt_from_its_fields(error: HoldfastError) -> None:
    assert all(getattr(error, name) == value for name, value in error.fields.items())
    assert type(error)(**error.fields).fields == error.fields


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_can_be_raised_with_its_cause(error: HoldfastError) -> None:
    cause = OSError("disk full")
    with pytest.raises(type(error)) as caught:
        raise error from cause
    assert caught.value.__cause__ is cause


def test_fields_must_be_named() -> None:
    with pytest.raises(TypeError):
        errors.StoreError("no keyword")  # type: ignore[call-arg]  # what this test is about


def test_a_missing_extra_is_an_import_error_too() -> None:
    with pytest.raises(ImportError):
        raise errors.MissingExtra(extra="mongodb", needed_for="a MongoDB store")

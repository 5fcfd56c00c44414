"""Errors by name: which fault an exception is, what users are told of it, when to try again."""

from __future__ import annotations

import asyncio
import itertools
import logging
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pytest

from holdfast import errors
from holdfast.errors import InvalidValue
from holdfast.harness.faults import (
    FAULT_CODES,
    Attempts,
    ErrorPolicy,
    Retry,
    RunFault,
    Source,
    classify,
    context_outcome,
    make,
    public,
    retry_after,
    retryable,
)

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ456789"

# category, severity, whether the run goes on, whether the same call may be made again
TABLE = {
    "run_failed": ("run", "fatal", False, False),
    "run_aborted": ("run", "warn", False, False),
    "limit_steps": ("run", "warn", False, False),
    "limit_tokens": ("run", "warn", False, False),
    "limit_cost": ("run", "warn", False, False),
    "limit_budget": ("run", "warn", False, False),
    "limit_time": ("run", "warn", False, False),
    "limit_size": ("run", "warn", False, False),
    "no_output": ("run", "error", False, False),
    "crash_loop": ("run", "fatal", False, False),
    "model_failed": ("model", "error", False, False),
    "model_rate_limited": ("model", "warn", False, True),
    "model_timeout": ("model", "warn", False, True),
    "model_unavailable": ("model", "warn", False, True),
    "tool_failed": ("tool", "error", True, False),
    "bad_arguments": ("tool", "error", True, False),
    "denied": ("approval", "warn", True, False),
    "context_failed": ("context", "error", False, False),
    "storage_failed": ("storage", "error", True, False),
    "store_unavailable": ("storage", "error", True, True),
    "sandbox_failed": ("sandbox", "error", True, False),
    "runtime_failed": ("runtime", "fatal", False, False),
}


@pytest.mark.parity("harness-kernel", 126)
@pytest.mark.parametrize("code", TABLE)
def test_each_code_has_its_defaults(code: str) -> None:
    fault = make(code, "inside", source="run")
    found = (fault.category, fault.severity, fault.recoverable, fault.retryable)
    assert found == TABLE[code]
    assert (fault.code, fault.message) == (code, "inside")
    assert fault.public_message.endswith(".")
    assert retryable(fault) is TABLE[code][3]


def test_a_code_of_the_programs_own_is_what_is_usual_there() -> None:
    fault = make("quota", "no more", source="model")
    assert (fault.code, fault.category, fault.severity) == ("quota", "model", "error")


def test_there_are_no_other_codes() -> None:
    assert set(FAULT_CODES) == set(TABLE)


class Named(errors.HoldfastError):
    """An error of ours with a code of the table."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code  # type: ignore[misc]  # ours have it in the class


def rate_limited() -> errors.ModelRateLimited:
    return errors.ModelRateLimited(model="m", problem="slow down", status=429, retry_after=7.5)


CASES: list[tuple[BaseException, Source, str]] = [
    # by type
    (errors.ModelError(model="m", problem="no key", status=401), "model", "model_failed"),
    (errors.ModelUnavailable(model="m", problem="down"), "model", "model_unavailable"),
    (errors.ModelTimeout(model="m", problem="late"), "model", "model_timeout"),
    (rate_limited(), "model", "model_rate_limited"),
    (errors.StoreUnavailable(problem="down"), "storage", "store_unavailable"),
    (errors.StoreError(problem="odd"), "storage", "storage_failed"),
    (Named("bad_arguments"), "tool", "bad_arguments"),
    (Named("denied"), "tool", "denied"),
    (Named("limit_steps"), "run", "limit_steps"),
    (Named("crash_loop"), "run", "crash_loop"),
    (errors.StoreUnavailable(problem="down"), "run", "store_unavailable"),
    # and by what it is one of
    (errors.Diverged(model="m", problem="x"), "run", "model_failed"),
    (errors.OutsideSandbox(path="../x"), "tool", "sandbox_failed"),
    (errors.StoreTooNew(problem="x", found=2, known=1), "run", "storage_failed"),
    (errors.ToolError(problem="x"), "tool", "tool_failed"),
    (errors.InvalidValue(field="x", problem="y", remedy="z"), "run", "run_failed"),
    # what a tool or a provider of context meets inside is its own failure
    (errors.ModelUnavailable(model="m", problem="down"), "tool", "tool_failed"),
    (errors.StoreUnavailable(problem="down"), "tool", "tool_failed"),
    (errors.StoreUnavailable(problem="down"), "context", "context_failed"),
    (TimeoutError(), "tool", "tool_failed"),
    # of the standard library
    (TimeoutError(), "model", "model_timeout"),
    (ConnectionResetError(), "model", "model_unavailable"),
    (TimeoutError(), "storage", "store_unavailable"),
    (BrokenPipeError(), "storage", "store_unavailable"),
    (TimeoutError(), "run", "run_failed"),
    # cancelled is what is cancelled, and not what says so
    *((asyncio.CancelledError(), source, "run_aborted") for source in get_args(Source)),
    (RuntimeError("the order was cancelled"), "tool", "tool_failed"),
    (RuntimeError("aborted by the user"), "model", "model_failed"),
    (RuntimeError("rate limit, timeout, 429"), "model", "model_failed"),
    # the rest by where it came from
    (ValueError("x"), "run", "run_failed"),
    (ValueError("x"), "model", "model_failed"),
    (ValueError("x"), "tool", "tool_failed"),
    (ValueError("x"), "context", "context_failed"),
    (ValueError("x"), "storage", "storage_failed"),
    (ValueError("x"), "sandbox", "sandbox_failed"),
    (ValueError("x"), "runtime", "runtime_failed"),
]


@pytest.mark.parity("harness-kernel", 126)
@pytest.mark.parametrize(("error", "source", "code"), CASES)
def test_an_error_is_a_fault_by_its_type_and_place(
    error: BaseException, source: Source, code: str
) -> None:
    fault = classify(error, source=source)
    assert (fault.code, fault.source, fault.name) == (code, source, type(error).__name__)
    assert (fault.category, fault.severity, fault.recoverable, fault.retryable) == TABLE[code]


def test_a_fault_tells_operators_all_that_is_known() -> None:
    try:
        raise rate_limited()
    except errors.ModelRateLimited as error:
        fault = classify(error, source="model")
    assert fault.message == "ModelRateLimited: m: slow down"
    assert "test_faults.py" in (fault.stack or "")
    assert fault.details == {
        "model": "m",
        "problem": "slow down",
        "status": 429,
        "remedy": None,
        "retry_after": 7.5,
    }
    assert retry_after(fault) == 7.5
    assert retry_after(make("model_failed")) is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    error = errors.ModelError(model="m", problem="refused", status=status)
    assert not retryable(classify(error, source="model"))


def test_a_stop_is_never_tried_again_whatever_a_fault_says() -> None:
    assert not retryable(msgspec.structs.replace(make("run_aborted"), retryable=True))
    assert not retryable(msgspec.structs.replace(make("runtime_failed"), retryable=True))


# What users see


def secret_fault() -> RunFault:
    try:
        raise RuntimeError(f"login with {SECRET} failed")
    except RuntimeError as error:
        fault = classify(error, source="tool")
    return msgspec.structs.replace(fault, details={"token": "x", "host": "h"})


@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize("expose", [False, True])
def test_users_see_what_the_policy_lets_out_and_never_a_secret(expose: bool, stack: bool) -> None:
    policy = ErrorPolicy(expose_internal_errors=expose, include_stack_in_status=stack)
    seen = public(secret_fault(), policy)
    assert (seen.code, seen.category, seen.severity) == ("tool_failed", "tool", "error")
    assert SECRET not in str(seen)
    assert (seen.stack is not None) is (expose or stack)
    if expose:
        assert seen.message == "RuntimeError: login with [redacted] failed"
        assert (seen.name, seen.details) == ("RuntimeError", {"token": "[redacted]", "host": "h"})
    else:
        assert seen.message == seen.public_message == "A tool failed."
        assert (seen.name, seen.details) == (None, {})


# The hook


@pytest.mark.parity("harness-kernel", 134)
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, {"code": "model_failed", "severity": "error", "retryable": False}),
        ({}, {"code": "model_failed"}),
        (
            {"code": "model_rate_limited"},
            {
                "code": "model_rate_limited",
                "severity": "warn",
                "retryable": True,
                "public_message": FAULT_CODES["model_rate_limited"].public_message,
                "message": "ValueError: quota",
            },
        ),
        (
            {"code": "run_failed", "severity": "error"},
            {"code": "run_failed", "category": "run", "severity": "error", "recoverable": False},
        ),
        ({"code": "quota", "public_message": "Buy more."}, {"code": "quota", "category": "model"}),
        ({"public_message": "Buy more."}, {"code": "model_failed", "public_message": "Buy more."}),
        (make("limit_cost"), {"code": "limit_cost", "category": "run"}),
    ],
)
def test_the_hook_has_the_last_word(answer: Any, expected: dict[str, Any]) -> None:
    seen = []

    def hook(error: BaseException, fault: RunFault) -> Any:
        seen.append((str(error), fault.code))
        return answer

    fault = classify(ValueError("quota"), source="model", policy=ErrorPolicy(classify=hook))
    assert seen == [("quota", "model_failed")]
    assert {name: getattr(fault, name) for name in expected} == expected


def test_a_changed_code_decides_about_retries() -> None:
    error = errors.ModelUnavailable(model="m", problem="down")
    assert retryable(classify(error, source="model"))
    policy = ErrorPolicy(classify=lambda error, fault: {"code": "model_failed"})
    assert not retryable(classify(error, source="model", policy=policy))


def failing(error: BaseException, fault: RunFault) -> Any:
    raise RuntimeError(SECRET)


@pytest.mark.parity("harness-kernel", 134)
@pytest.mark.parametrize(
    "hook",
    [
        failing,
        lambda error, fault: {"severity": "dreadful"},
        lambda error, fault: {"colour": "red"},
        lambda error, fault: "model_failed",
    ],
)
def test_a_hook_that_fails_is_passed_over_and_logged(
    hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        fault = classify(ValueError("x"), source="model", policy=ErrorPolicy(classify=hook))
    assert fault.code == "model_failed"
    assert "classify hook" in caplog.text
    assert SECRET not in caplog.text


def test_a_stop_is_not_the_hooks_to_decide() -> None:
    policy = ErrorPolicy(classify=lambda error, fault: {"code": "model_failed"})
    fault = classify(asyncio.CancelledError(), source="model", policy=policy)
    assert fault.code == "run_aborted"


# Retries


@pytest.mark.parity("harness-kernel", 131)
@pytest.mark.parametrize(
    ("attempts", "waits"),
    [
        (Attempts(5, backoff=0.02, cap=0.05, jitter=0), [0.02, 0.04, 0.05, 0.05]),
        (Attempts(1), []),
        (Attempts(3, backoff=0, jitter=0), [0, 0]),
        (Attempts(3, backoff=9, cap=5, jitter=0), [9, 9]),
        (Attempts(4, jitter=0), [0.25, 0.5, 1.0]),
    ],
)
def test_waits_double_up_to_the_cap(attempts: Attempts, waits: list[float]) -> None:
    assert list(attempts.delays()) == pytest.approx(waits)


def test_the_jitter_takes_a_part_off() -> None:
    attempts = Attempts(3, backoff=1, cap=4, jitter=0.25)
    assert [attempts.delay(1, lambda part=part: part) for part in (0.0, 0.5, 1.0)] == [  # type: ignore[misc]
        1.0,
        0.875,
        0.75,
    ]
    drawn = [attempts.delay(3) for _ in range(200)]
    assert all(3 <= wait <= 4 for wait in drawn)
    assert len(set(drawn)) > 100


@pytest.mark.parametrize(
    ("asked", "wait"), [(None, 1), (0.5, 1), (3, 3), (20, 20), (600, 60), (-5, 1)]
)
def test_a_provider_is_not_asked_again_before_it_said(asked: float | None, wait: float) -> None:
    assert Attempts(2, backoff=1, cap=2, jitter=0).delay(1, retry_after=asked) == wait


def test_many_attempts_do_not_overflow() -> None:
    assert Attempts(100, backoff=1, cap=30, jitter=0).delay(5000) == 30


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("times", {"times": 0}),
        ("times", {"times": 1.5}),
        ("times", {"times": True}),
        ("times", {"times": 101}),
        ("backoff", {"times": 1, "backoff": -1}),
        ("backoff", {"times": 1, "backoff": float("nan")}),
        ("backoff", {"times": 1, "backoff": "1"}),
        ("cap", {"times": 1, "cap": float("inf")}),
        ("jitter", {"times": 1, "jitter": 1.5}),
    ],
)
def test_attempts_that_make_no_sense_are_refused(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as caught:
        Attempts(**given)
    assert caught.value.field == field


@pytest.mark.parametrize("given", [{"context_failure": "warn"}, {"classify": "model_failed"}])
def test_a_policy_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as caught:
        ErrorPolicy(**given)
    assert caught.value.field in given


def test_the_policy_out_of_the_box() -> None:
    policy = ErrorPolicy()
    assert (policy.expose_internal_errors, policy.include_stack_in_status) == (False, False)
    assert (policy.close_session_on_fatal, policy.context_failure) == (False, "fail")
    assert policy.retry == Retry(model=Attempts(2, backoff=0.5), storage=Attempts(5, backoff=0.1))


# Context

Failure = Literal["fail", "skip"]
WORDS: tuple[Failure | None, ...] = (None, "fail", "skip")
FLAGS = (None, True, False)


@pytest.mark.parity("harness-kernel", 130)
@pytest.mark.parametrize(
    ("policy", "mode", "required"), list(itertools.product(("fail", "skip"), WORDS, FLAGS))
)
def test_a_failing_provider_is_passed_over_only_where_all_agree(
    policy: Failure, mode: Failure | None, required: bool | None
) -> None:
    skipped = {
        ("skip", None, False),
        ("skip", "fail", False),
        ("skip", "skip", False),
        ("skip", "skip", None),
        ("skip", "skip", True),
    }
    expected = "skip" if (policy, mode, required) in skipped else "fail"
    given = ErrorPolicy(context_failure=policy)
    assert context_outcome(given, mode, required, None) == expected
    for itself in FLAGS:  # what the binding says counts more
        if required is not None:
            assert context_outcome(given, mode, itself, required) == expected


def test_the_documents_have_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "docs/logging.md").read_text()
    for code, kind in FAULT_CODES.items():
        goes_on, again = ("yes" if flag else "no" for flag in (kind.recoverable, kind.retryable))
        row = f"| `{code}` | {kind.category} | {kind.severity} | {goes_on} | {again} |"
        assert f"{row} {kind.public_message} |" in page
